"""How much of each property is tried: everything, or the fixed part that ``--quick`` leaves.

The plugin chooses before the test files are read, for they are decorated by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

Each = TypeVar("Each")


@dataclass
class _Extent:
    quick: bool = False


_CHOSEN = _Extent()


def choose(*, quick: bool) -> None:
    """Choose for the test files that are read from now on."""
    _CHOSEN.quick = quick


def quick() -> bool:
    """Whether the quick part was chosen."""
    return _CHOSEN.quick


def examples(most: int) -> int:
    """How many examples of a property are tried: all, or a quarter of them.

    Examples
    --------
    >>> from attnspec.conformance.extent import examples
    >>> examples(12)
    12
    """
    return most // 4 if quick() else most


def some(things: Sequence[Each]) -> Sequence[Each]:
    """Take what a test goes through: all, or the first.

    Examples
    --------
    >>> from attnspec.conformance.extent import some
    >>> some((1, 2))
    (1, 2)
    """
    return things[:1] if quick() else things


def tried(dtypes: Sequence[str]) -> Sequence[str]:
    """Take the dtypes that a test goes through: all, or float32 where it is among them.

    Examples
    --------
    >>> from attnspec.conformance.extent import tried
    >>> tried(("float16", "float32"))
    ('float16', 'float32')
    """
    return ("float32",) if quick() and "float32" in dtypes else some(dtypes)
