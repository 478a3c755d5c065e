"""The declaration of one argument and of one output of an operation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

#: The kind of an argument. `integers` is one integer or an array of integers.
Kind = Literal["array", "integers", "number", "integer", "flag", "window", "word"]
#: The numbers that an array holds. `lse` means floating-point numbers of the dtype of an lse (NUM-7).
Numbers = Literal["floating", "lse", "boolean", "integer"]
#: What an argument does: it is an operand, changes scores, masks, enters the denominator, changes the
#: weights, selects how an operation works, or asks for an output.
Role = Literal["data", "scores", "masks", "denominator", "weights", "form", "asks"]
#: Letters, products of letters, and quotients that are rounded up: see `attnspec.operations.letters`.
Shape = tuple[str, ...]


class Missing(Enum):
    """The default of an argument that is required."""

    REQUIRED = "required"


REQUIRED: Final = Missing.REQUIRED


@dataclass(frozen=True)
class Bounds:
    """The range of the numbers of an argument.

    Attributes
    ----------
    least : int
    most : int or str
        A number, or a size: ``S``, or ``C-N`` for `C` minus `N`. Empty if there is no upper bound.
    above, below : bool
        Whether `least` and `most` themselves are excluded.
    step : int
        The number must be a multiple of this.
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
        A description of half a line, for tables.
    role : tuple of str
        What it does. A bias has two roles: it changes scores, and it masks.
    rule : str
        The rule that defines it.
    shape : tuple of str
        The shape of the array, in letters. For `integers`, the shape of the array that
        may be given instead of one integer.
    numbers : {"floating", "lse", "boolean", "integer"}
        The numbers that the array holds.
    broadcasts : bool
        Whether an array that broadcasts to the shape is accepted.
    by_blocks : bool
        Whether an array that broadcasts may have fewer entries on an axis than the shape, each of
        which stands for a block of equal size (QUANT-5).
    turns : tuple of str
        The names of the conventions that exchange its last two axes.
    minus_infinity : bool
        Whether minus infinity marks an entry as absent.
    default : object
        The default, or `REQUIRED`.
    binds : str
        The letter whose size it gives: `heads` gives `Hq`.
    bounds : Bounds or None
        The range of its numbers.
    ascending : bool
        Whether the numbers of an array begin at the least and do not decrease.
    sums : str
        The size that the entries of an array of integers add up to, none of them negative: ``R/2``.
    words : tuple of str
        The words that are accepted, if it is a word.
    needs : tuple of str
        Arguments that must be given with it. A call without them is refused.
    excludes : tuple of str
        Arguments that must not be given with it. A call with both is refused.
    matters_with : tuple of str
        If none of these arguments is given, it is accepted and has no effect.
    refusals : mapping of str to str
        The possible faults and the rule that refuses each: ``dtype``, ``form``
        (not a number, not a pair), ``bounds``, ``alone`` (without an argument in
        `needs`, or with one in `excludes`), ``shape``, or a letter whose size has a rule of its own.
    called : str
        Its name in a sentence, if that differs from `name`.
    since : str
        The first version of the standard that has it.
    """

    name: str
    kind: Kind
    meaning: str
    role: tuple[Role, ...]
    rule: str
    shape: Shape = ()
    numbers: Numbers = "floating"
    broadcasts: bool = False
    by_blocks: bool = False
    turns: tuple[str, ...] = ()
    minus_infinity: bool = False
    default: Any = REQUIRED
    binds: str = ""
    bounds: Bounds | None = None
    ascending: bool = False
    sums: str = ""
    words: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    matters_with: tuple[str, ...] = ()
    refusals: Mapping[str, str] = field(default_factory=dict, hash=False)
    called: str = ""
    since: str = "2026.11.21"

    @property
    def required(self) -> bool:
        """Whether every call must have it."""
        return self.default is REQUIRED

    @property
    def noun(self) -> str:
        """Its name in a sentence."""
        return self.called or self.name.replace("_", " ")

    def axis(self, *letters: str) -> int | None:
        """Return the axis of the first of these letters it has, counted from the end, or None.

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
        The shape, in letters.
    numbers : {"floating", "lse"}
        ``floating`` is the dtype of the first array.
    turns : tuple of str
        The names of the conventions that exchange its last two axes.
    option : str
        The argument that asks for it. Empty for an output that is always returned.
    rule : str
        The rule that defines it.
    of : str
        The argument whose gradient it is. It has the dtype and the shape of that
        argument, and is returned when that argument is given.
    apart : bool
        Whether only calls that are about it ask for it. It has no cotangent.
    since : str
        The first version of the standard that has it.
    """

    name: str
    shape: Shape
    numbers: Literal["floating", "lse"] = "floating"
    turns: tuple[str, ...] = ()
    option: str = ""
    rule: str = ""
    of: str = ""
    apart: bool = False
    since: str = "2026.11.21"
