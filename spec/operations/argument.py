"""What there is to say of an argument and of an output of an operation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

#: What an argument is, before its numbers are looked at. `integers` is one integer, or an array of them.
Kind = Literal["array", "integers", "number", "integer", "flag", "window", "word"]
#: What the numbers of an array are. `lse` is floating-point of the dtype that an lse is held in.
Numbers = Literal["floating", "lse", "boolean", "integer"]
#: What an argument does: it is what is computed with, changes scores, masks, enters the denominator, changes
#: the weights, says how an operation is meant, or asks for an output.
Role = Literal["data", "scores", "masks", "denominator", "weights", "form", "asks"]
#: Letters, and products of letters: see `attnspec.operations.letters`.
Shape = tuple[str, ...]


class Missing(Enum):
    """The default of an argument that has none."""

    REQUIRED = "required"


REQUIRED: Final = Missing.REQUIRED


@dataclass(frozen=True)
class Bounds:
    """Between which numbers an argument has to lie.

    Attributes
    ----------
    least : int
    most : int or str
        A number, or a size: ``S``, or ``C-N`` for `C` less `N`. Empty where nothing is too much.
    above, below : bool
        Whether `least` is too little and `most` too much already.
    step : int
        Of what the number has to be a multiple.
    """

    least: int
    most: int | str = ""
    above: bool = False
    below: bool = False
    step: int = 1

    def __str__(self) -> str:
        lower = f"above {self.least}" if self.above else f"from {self.least}"
        most = str(self.most).replace("-", " - ")
        upper = "" if self.most == "" else f" to below {most}" if self.below else f" to {most}"
        return f"{'even, ' if self.step == 2 else ''}{lower}{upper}"


@dataclass(frozen=True)
class Argument:
    """One argument of an operation.

    Attributes
    ----------
    name : str
    kind : {"array", "integers", "number", "integer", "flag", "window", "word"}
    meaning : str
        In half a line, for tables.
    role : tuple of str
        What it does; a bias both changes scores and masks.
    rule : str
        The rule that says what it means.
    shape : tuple of str
        Of the array, in letters. Of `integers` that of the array which may be given
        in place of one integer.
    numbers : {"floating", "lse", "boolean", "integer"}
        Of the array.
    broadcasts : bool
        Whether any shape will do that broadcasts to that one.
    turns : tuple of str
        The conventions that exchange its last two axes, by their words.
    minus_infinity : bool
        Whether minus infinity in it is no number but says that something is not there.
    default : object
        What it is when it is not given; `REQUIRED` for none.
    binds : str
        The letter of which it is the size: `heads` says how many `Hq` are.
    bounds : Bounds or None
        Of its numbers.
    words : tuple of str
        Which it may be, where it is a word.
    needs : tuple of str
        What has to be given with it: a call with it alone is refused.
    matters_with : tuple of str
        Without any of which it is allowed, and changes nothing.
    refusals : mapping of str to str
        What may be wrong with it, to the rule that refuses it: ``dtype``, ``form``
        (no number, no pair), ``bounds``, ``alone`` (without what it needs),
        ``shape``, and a letter where its size has a rule of its own.
    called : str
        What it is called in a sentence, where that is not its name.
    since : str
        The version of the standard that had it first.
    """

    name: str
    kind: Kind
    meaning: str
    role: tuple[Role, ...]
    rule: str
    shape: Shape = ()
    numbers: Numbers = "floating"
    broadcasts: bool = False
    turns: tuple[str, ...] = ()
    minus_infinity: bool = False
    default: Any = REQUIRED
    binds: str = ""
    bounds: Bounds | None = None
    words: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    matters_with: tuple[str, ...] = ()
    refusals: Mapping[str, str] = field(default_factory=dict, hash=False)
    called: str = ""
    since: str = "2026.11.21"

    @property
    def required(self) -> bool:
        """Whether every call has it."""
        return self.default is REQUIRED

    @property
    def noun(self) -> str:
        """What it is called in a sentence."""
        return self.called or self.name.replace("_", " ")

    def axis(self, *letters: str) -> int | None:
        """Tell which axis is that of a letter, counted from the end; None where it has none.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> key = OPERATIONS["attention"].arguments["key"]
        >>> key.axis("Hq", "Hkv"), key.axis("D"), key.axis("L")
        (-3, -1, None)
        """
        places = [place for place, letter in enumerate(self.shape) if letter in letters]
        return places[0] - len(self.shape) if places else None


@dataclass(frozen=True)
class Output:
    """One result of an operation.

    Attributes
    ----------
    name : str
    shape : tuple of str
        In letters.
    numbers : {"floating", "lse"}
        ``floating`` is the dtype of the first array.
    turns : tuple of str
        The conventions that exchange its last two axes, by their words.
    option : str
        The argument that asks for it; empty for what is always returned.
    rule : str
        The rule that says what it is.
    of : str
        The argument whose gradient it is: it has the dtype and the shape of that
        argument, and is returned when that argument is given.
    since : str
        The version of the standard that had it first.
    """

    name: str
    shape: Shape
    numbers: Literal["floating", "lse"] = "floating"
    turns: tuple[str, ...] = ()
    option: str = ""
    rule: str = ""
    of: str = ""
    since: str = "2026.11.21"
