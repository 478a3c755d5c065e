"""Cases: one call each, with what it must give."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec.operations import OPERATIONS

Statistic = Literal["value", "shape", "variance", "disallowed"]


@dataclass(frozen=True)
class Provenance:
    """Where a case comes from: its source, and how its inputs were obtained."""

    source: str
    inputs: str


GENERATED = Provenance("the suite", "drawn by a seeded generator")


@dataclass(frozen=True)
class Figure:
    """Numbers that a worked example prints, to be met at their printed precision.

    Attributes
    ----------
    example, cell : str
        Which worked example, and which of its cells: ``"004"``, ``"In [13]"``.
    of : str
        What is printed: an argument or an output of the case, or
        ``variant/output`` for an alternative.
    text : tuple of str
        The numbers as printed, in row-major order.
    select : tuple of int
        Leading indices into the array, where only a part of it is printed.
    transposed : bool
        Whether the last two axes are swapped in the print.
    statistic : {"value", "shape", "variance", "disallowed"}
        What of it is printed; ``disallowed`` is 1 where a boolean mask is False.
    places : int or None
        Digits after the point (of the mantissa, where there is an exponent)
        that are known although trailing zeros are not printed; None means just
        those that are.
    cut : bool
        Whether the print breaks off: the numbers are the first ones, and of the
        last only the first digits are there.
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
    """The values that a named variant of a rule gives for a case.

    A backend that declares the variant must give them; any other must not.
    """

    rule: str
    variant: str
    expected: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Misuse:
    """A call that must be refused, and the argument at fault.

    Attributes
    ----------
    argument : str
        The one at fault.
    named : tuple of str
        What else the error may name instead: arguments that do not fit each other.
    allowed : bool
        Whether the call may be computed too; then it has expected values.
    """

    argument: str
    named: tuple[str, ...] = ()
    allowed: bool = False


@dataclass(frozen=True)
class Case:
    """One call: its arguments, the rules it bears on, and what it must give.

    Attributes
    ----------
    id : str
        Permanent: never renamed, never used again.
    title : str
        What it shows, in a few words.
    chapter : str
        The chapter it stands under, as in `attnspec.CHAPTERS`.
    operation : str
        The function called, as in `attnspec.OPERATIONS`.
    rules : tuple of str
        The rules it bears on, the one it is there for first.
    arguments : mapping of str to array, number, bool, str, tuple or None
        Everything to call it with, by canonical name. Arrays are read-only; a
        window is a tuple.
    expected : mapping of str to array
        By output name, each element the float64 nearest to the exact value.
        Empty for a misuse.
    alternatives : tuple of Alternative
        What the variants of its rules give instead.
    misuse : Misuse or None
        Set when the call must be refused.
    figures : tuple of Figure
        The printed numbers that it answers for.
    provenance : Provenance
        Where it comes from.
    group : str
        What the generated cases of one kind have in common; empty for a golden vector.
    outputs : tuple of str
        The outputs that are judged; all where empty.
    layout : mapping of str to str
        How arguments lie in memory, where it is not in rows: by name, such as ``transposed``.
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
        """That of its first array, in which it is judged."""
        arrays = (self.arguments.get(name) for name in OPERATIONS[self.operation].arrays)
        return next((str(array.dtype) for array in arrays if isinstance(array, np.ndarray)), "")

    @property
    def name(self) -> str:
        """Its id and its dtype, which together tell it from every other case."""
        return f"{self.id}-{self.dtype}"

    @cached_property
    def fingerprint(self) -> str:
        """What it has in common with every call of the same operation on the same numbers, in any dtype."""
        return fingerprint(self.operation, self.arguments)


def fingerprint(operation: str, arguments: Mapping[str, Any]) -> str:
    """Digest a call: equal for equal numbers, whatever dtype holds them.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.case import fingerprint
    >>> calls = [{"query": np.ones((1, 2), dtype), "scale": 2.0} for dtype in ("float16", "float64")]
    >>> fingerprint("scores", calls[0]) == fingerprint("scores", calls[1])
    True
    """
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
