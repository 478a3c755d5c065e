"""The declaration of an operation: its arguments and its outputs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, cached_property
from types import MappingProxyType
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


def primal(operation: str) -> str:
    """Return the operation whose gradients an operation computes, or the operation itself."""
    return operation.removesuffix("_vjp")


def name_of(layers: Iterable[str]) -> str:
    """Return the name of the operation that combines forms: their words, then ``attention``."""
    return "_".join((*layers, "attention"))


class Missing(Enum):
    """The default of an argument that is required."""

    REQUIRED = "required"


REQUIRED: Final = Missing.REQUIRED


@dataclass(frozen=True)
class Bounds:
    """The range of the numbers of an argument."""

    least: int
    #: A number, or a size: ``S``, or ``C-N`` for `C` minus `N`. Empty if there is no upper bound.
    most: int | str = ""
    above: bool = False  # whether `least` itself is excluded
    below: bool = False  # whether `most` itself is excluded
    step: int = 1  # the number must be a multiple of this

    def __str__(self) -> str:
        lower = f"above {self.least}" if self.above else f"from {self.least}"
        most = str(self.most).replace("-", " - ")
        upper = "" if self.most == "" else f" to below {most}" if self.below else f" to {most}"
        return f"{'even, ' if self.step == 2 else ''}{lower}{upper}"


@dataclass(frozen=True)
class Argument:
    """One argument of an operation."""

    name: str
    kind: Kind
    meaning: str  # A description of half a line, for tables
    role: tuple[Role, ...]  # what it does. A bias has two roles: it changes scores, and it masks.
    rule: str  # the rule that defines it
    #: The shape of the array, in letters. For `integers`, the shape of the array that may be given instead
    #: of one integer.
    shape: Shape = ()
    numbers: Numbers = "floating"  # the numbers that the array holds
    broadcasts: bool = False  # whether an array that broadcasts to the shape is accepted
    #: Whether an array that broadcasts may have fewer entries on an axis than the shape, each of which
    #: stands for a block of equal size (QUANT-5).
    by_blocks: bool = False
    turns: tuple[str, ...] = ()  # the names of the conventions that exchange its last two axes
    minus_infinity: bool = False  # whether minus infinity marks an entry as absent
    default: Any = REQUIRED  # the default, or `REQUIRED`
    binds: str = ""  # the letter whose size it gives: `heads` gives `Hq`
    bounds: Bounds | None = None  # the range of its numbers
    ascending: bool = False  # whether the numbers of an array begin at the least and do not decrease
    covers: bool = False  # whether the last number of an ascending array is the most
    #: The size that the entries of an array of integers add up to, none of them negative: ``R/2``.
    sums: str = ""
    words: tuple[str, ...] = ()  # the words that are accepted, if it is a word
    needs: tuple[str, ...] = ()  # arguments that must be given with it. A call without them is refused.
    excludes: tuple[str, ...] = ()  # arguments that must not be given with it. A call with both is refused.
    #: If none of these arguments is given, it is accepted and has no effect.
    matters_with: tuple[str, ...] = ()
    #: The possible faults and the rule that refuses each: ``dtype``, ``form`` (not a number, not a pair),
    #: ``bounds``, ``alone`` (without an argument in `needs`, or with one in `excludes`), ``shape``, or a
    #: letter whose size has a rule of its own.
    refusals: Mapping[str, str] = field(default_factory=dict, hash=False)
    called: str = ""  # its name in a sentence, if that differs from `name`
    since: str = "2026.11.21"  # the first version of the standard that has it

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
    """One result of an operation."""

    name: str
    shape: Shape  # the shape, in letters
    numbers: Literal["floating", "lse"] = "floating"  # ``floating`` is the dtype of the first array
    turns: tuple[str, ...] = ()  # the names of the conventions that exchange its last two axes
    option: str = ""  # the argument that asks for it. Empty for an output that is always returned.
    rule: str = ""  # the rule that defines it
    #: The letter of the axis that the entries of a list of int32 or int64 are places of; empty if it is no
    #: list. The expected value of a list says how often it holds each place, and how often none.
    lists: str = ""
    #: The argument whose gradient it is. It has the dtype and the shape of that argument, and is returned
    #: when that argument is given.
    of: str = ""
    apart: bool = False  # whether only calls that are about it ask for it. It has no cotangent.
    since: str = "2026.11.21"  # the first version of the standard that has it


#: `dataclasses.replace`, for what many operations share: it takes long, and every start declares them all.
changed = cache(replace)


@dataclass(frozen=True)
class Operation:
    """One function of the standard.

    Attributes
    ----------
    positional : tuple of Argument
        The arrays, which are given by position.
    named : tuple of Argument
        The arguments that are given by name only.
    results : tuple of Output
        The outputs, in the order in which they are returned. The first is always
        returned, a later one if its option is true, a gradient if its argument is
        given.
    forward : tuple of Argument
        Results of the operation whose gradients it computes. A function may take
        them by name, and is given them then. Cases do not contain them.
    headless : bool
        Whether arrays of two axes stand for one head, without axes for batch and
        heads (SHAPE-2).
    reduces : str
        The operation that defines its results, on other arrays. Empty if it has a definition of its own.
        Arguments that both have are the same, and the other operation alone is asked to refuse them.
    layers : tuple of str
        The forms that it combines, in the order of their words in its name, or the one form that it has.
        Empty if it has none.
    otherwise : mapping of str to (str, str)
        The size of a letter if an argument is absent: ``{"S": ("memory", "L")}`` means
        that without a memory there are as many keys as queries.
    """

    positional: tuple[Argument, ...]
    named: tuple[Argument, ...]
    results: tuple[Output, ...]
    forward: tuple[Argument, ...] = ()
    headless: bool = False
    reduces: str = ""
    layers: tuple[str, ...] = ()
    otherwise: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)

    @cached_property
    def arguments(self) -> Mapping[str, Argument]:
        """Every argument by its name, in order."""
        return MappingProxyType({argument.name: argument for argument in (*self.positional, *self.named)})

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """Names of the positional arguments, in order."""
        return tuple(argument.name for argument in self.positional)

    @cached_property
    def in_order(self) -> tuple[Argument, ...]:
        """Its arguments, so that each follows those that determine its sizes."""
        sources = {name for name, _ in self.otherwise.values()}
        leading = next(argument for argument in self.positional if not argument.broadcasts)
        first = {argument.name: argument for argument in self.named if argument.name in sources}
        return tuple({leading.name: leading, **first, **self.arguments}.values())

    @cached_property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword-only arguments."""
        return tuple(argument.name for argument in self.named)

    @cached_property
    def offers(self) -> tuple[str, ...]:
        """Names that a function may take besides the arrays: the options, and results of the forward pass."""
        return (*self.options, *(argument.name for argument in self.forward))

    @cached_property
    def parameters(self) -> Mapping[str, Argument]:
        """Every argument and every result of the forward pass that a function may take, by its name."""
        return MappingProxyType({**self.arguments, **{argument.name: argument for argument in self.forward}})

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, starting with the one that is always returned."""
        return tuple(output.name for output in self.results)

    def stated(self, arguments: Mapping[str, Any]) -> list[str]:
        """Name the arguments of a call that a function needs for it: all but words that are the default.

        A kernel of one encoding has no argument for it.
        """
        declared = self.arguments
        return [
            name
            for name, value in arguments.items()
            if name not in declared or not declared[name].words or value != declared[name].default
        ]

    @property
    def stacked(self) -> bool:
        """Whether it combines several forms."""
        return len(self.layers) > 1

    @cached_property
    def differentiates(self) -> bool:
        """Whether its outputs are gradients, as those of a vector-Jacobian product are."""
        return any(output.of for output in self.results)

    def wanted(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Name the outputs that a call returns.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> OPERATIONS["attention"].wanted({"return_weights": True})
        ('output', 'weights')
        >>> OPERATIONS["attention_vjp"].wanted({"query": 1, "key": 1, "value": 1, "bias": 1})
        ('d_query', 'd_key', 'd_value', 'd_bias')
        """
        return tuple(
            output.name
            for output in self.results
            if (
                arguments.get(output.of) is not None
                if output.of
                else arguments.get(output.option, not output.option) is True
            )
        )

    def judged(self, arguments: Mapping[str, Any], only: Collection[str] = ()) -> tuple[str, ...]:
        """Name the outputs of a call that have expected values, or those of them that are named.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> OPERATIONS["attention"].judged({"query": 1, "key": 1, "value": 1})
        ('output', 'lse', 'weights')
        """
        asked = {output.option: True for output in self.results if output.option and not output.apart}
        return tuple(name for name in self.wanted({**arguments, **asked}) if not only or name in only)

    def names(self, role: Role) -> tuple[str, ...]:
        """Return the names of the arguments that have a role."""
        return tuple(name for name, argument in self.arguments.items() if role in argument.role)

    def together(self, name: str) -> tuple[str, ...]:
        """Return the arguments that must be left out together with one, starting with that one.

        Examples
        --------
        >>> from attnspec import OPERATIONS
        >>> OPERATIONS["attention"].together("dropout_mask")
        ('dropout_mask', 'dropout_rate')
        """
        return (name, *(other.name for other in self.named if name in other.needs))
