"""Cases: one call each, with its expected results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec.dtypes import name_of
from attnspec.operations import OPERATIONS

Statistic = Literal["value", "shape", "variance", "disallowed"]


@dataclass(frozen=True)
class Provenance:
    """The source of a case, and how its inputs were obtained."""

    source: str
    inputs: str


#: The chapter of cases by formula, which has no rules of its own.
SIZES = "sizes"

GENERATED = Provenance("the suite", "drawn by a seeded generator")


@dataclass(frozen=True)
class Figure:
    """Numbers that a worked example printed, which must agree at the printed precision.

    Attributes
    ----------
    example, cell : str
        The worked example and its cell: ``"004"``, ``"In [13]"``.
    of : str
        The printed array: an argument or an output of the case, or
        ``variant/output`` for an alternative.
    text : tuple of str
        The numbers as printed, in row-major order.
    select : tuple of int
        Leading indices into the array, if only a part of it is printed.
    transposed : bool
        Whether the last two axes are swapped in the print.
    statistic : {"value", "shape", "variance", "disallowed"}
        The printed statistic. ``disallowed`` is 1 where a boolean mask is False.
    places : int or None
        The number of known digits after the point (of the mantissa, if there is an
        exponent), if trailing zeros are not printed. None if all known digits are.
    cut : bool
        Whether the print is truncated: it has only the first numbers, and the last
        of them has only its first digits.
    """

    example: str
    cell: str
    of: str
    text: tuple[str, ...]
    select: tuple[int, ...] = ()
    transposed: bool = False
    statistic: Statistic = "value"
    places: int | None = None
    cut: bool = False


@dataclass(frozen=True)
class Alternative:
    """The values of a case for a named variant of a rule.

    A backend that declares the variant must return them. Any other backend must not.
    """

    rule: str
    variant: str
    expected: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Misuse:
    """A call that must be rejected, and the argument at fault.

    Attributes
    ----------
    argument : str
        The argument at fault.
    named : tuple of str
        Other arguments that the error may name instead, because they disagree.
    allowed : bool
        Whether the call may be computed too. It then has expected values.
    """

    argument: str
    named: tuple[str, ...] = ()
    allowed: bool = False


@dataclass(frozen=True)
class Case:
    """One call: its arguments, the rules that it tests, and the expected results.

    Attributes
    ----------
    id : str
        A permanent id. It is never renamed and never reused.
    title : str
        A short description.
    chapter : str
        Its chapter, as in `attnspec.CHAPTERS`.
    operation : str
        The function to call, as in `attnspec.OPERATIONS`.
    rules : tuple of str
        The rules that it tests, the main one first.
    arguments : mapping of str to array, number, bool, str, tuple or None
        The arguments, by canonical name. Arrays are read-only. A window is a tuple.
    expected : mapping of str to array
        The expected values, by output name. Each element is the float64 nearest to
        the exact value. Empty for a misuse.
    alternatives : tuple of Alternative
        The values of the variants of its rules.
    misuse : Misuse or None
        Set if the call must be rejected.
    figures : tuple of Figure
        The printed numbers that belong to it.
    provenance : Provenance
        The source of the case.
    group : str
        The name of its group of generated cases. Empty for a golden vector.
    outputs : tuple of str
        The outputs that are judged. Empty for all.
    layout : mapping of str to str
        Memory layouts of arguments by name, such as ``transposed``, if not row-major.
    """

    id: str
    title: str
    chapter: str
    operation: str
    rules: tuple[str, ...]
    arguments: Mapping[str, Any]
    provenance: Provenance = GENERATED
    expected: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    alternatives: tuple[Alternative, ...] = ()
    misuse: Misuse | None = None
    figures: tuple[Figure, ...] = ()
    group: str = ""
    outputs: tuple[str, ...] = ()
    layout: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.id

    @cached_property
    def dtype(self) -> str:
        """The dtype of its first array, in which it is judged."""
        arrays = (self.arguments.get(name) for name in OPERATIONS[self.operation].arrays)
        return next((name_of(array.dtype) for array in arrays if isinstance(array, np.ndarray)), "")

    @property
    def name(self) -> str:
        """Its id and its dtype, which together are unique."""
        return f"{self.id}-{self.dtype}"

    @property
    def calls(self) -> "tuple[Case, ...]":
        """Its one call, as a relation has several."""
        return (self,)

    @property
    def live(self) -> bool:
        """Whether stored answers cannot show it, because it needs arrays in other memory layouts."""
        return bool(self.layout)

    @property
    def refusal(self) -> bool:
        """Whether the call may or must be rejected."""
        return self.misuse is not None

    @property
    def must_raise(self) -> bool:
        """Whether the call must be rejected."""
        return self.misuse is not None and not self.misuse.allowed

    @cached_property
    def fingerprint(self) -> str:
        """A digest that is equal for calls of the same operation with the same numbers, in any dtype."""
        return fingerprint(self.operation, self.arguments)


def fingerprint(operation: str, arguments: Mapping[str, Any]) -> str:
    """Return a digest of a call. It is equal for equal numbers in any dtype."""
    digest = blake2b(operation.encode(), digest_size=12)
    for name in sorted(arguments):
        thing = arguments[name]
        digest.update(f"\0{name}\0".encode())
        if isinstance(thing, np.ndarray):
            exact = thing.dtype.kind in "biuc"
            numbers = np.ascontiguousarray(thing if exact else thing.astype(np.float64))
            digest.update(f"{thing.shape} {numbers.dtype.kind}\0".encode() + numbers.tobytes())
        else:
            digest.update(f"{type(thing).__name__} {thing!r}".encode())
    return digest.hexdigest()
