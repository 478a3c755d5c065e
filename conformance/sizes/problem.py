"""What a group of sizes asks for, and the values of options at the edges of tiles."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from attnspec.formula import Formula

#: The sizes of tiles in use.
TILES = (16, 32, 64, 128, 256)
#: Axes of masks and biases.
_AXES = (("L", "S"), ("B", "H", "L", "S"), ("S",), ("B", "S"), ("H", "L", "S"), ("B", "L", "S"))


@dataclass(frozen=True)
class Asked:
    """A problem that a group asks for.

    Attributes
    ----------
    formula : Formula
    dtype : str
    name : str
        The end of its id; empty for a number.
    layout : mapping of str to str
    operation : str
    """

    formula: Formula
    dtype: str = "float32"
    name: str = ""
    layout: Mapping[str, str] = field(default_factory=dict)
    operation: str = "attention"


def edge(number: int, most: int) -> int:
    """Return an integer on, before or after a multiple of a tile, another for each number, below `most`.

    Below 18, where no tile has a place, it is half of `most`, and at least 1.

    Examples
    --------
    >>> from attnspec.conformance.sizes.problem import edge
    >>> [edge(number, 300) for number in range(6)], edge(0, 9)
    ([15, 32, 65, 127, 256, 33], 4)
    """
    tiles = [tile for tile in TILES if tile + 1 < most]
    if not tiles:
        return max(most // 2, 1)
    tile = tiles[number % len(tiles)]
    found = tile * (1 + number // len(tiles) % 3) + number % 3 - 1
    while found >= most:
        found -= tile
    return found


def value_of(name: str, number: int, batch: tuple[int, ...], queries: int, keys: int) -> dict[str, Any]:
    """Return the value of an option in a problem by formula, and what it needs."""
    entries = prod(batch)
    axes = _AXES[number % len(_AXES)]
    last = keys - queries  # the offset of the last query at the last key
    offset = {"query_offset": last} if last else {}  # many kernels with a window have no offset
    lengths = {"key_lengths": keys, "query_lengths": queries}
    if name in lengths:
        return {name: tuple(edge(number + 7 * entry, lengths[name]) for entry in range(entries))}
    values: dict[str, dict[str, Any]] = {
        "is_causal": {"is_causal": True},
        "query_offset": {"is_causal": True, "query_offset": (last, edge(number, keys))[number % 2]},
        "window": {"window": (edge(number, keys), edge(number + 3, keys))} | offset,
        "left": {"window": (edge(number, keys), None), "is_causal": True} | offset,
        "segments": {"segments": edge(number, keys)},
        "mask": {"mask": axes},
        "bias": {"bias": axes},
        "dropout": {"dropout_mask": axes, "dropout_rate": (0.5, 0.25)[number % 2]},
        "sinks": {"sinks": True},
        "scale": {"scale": (-0.25, 0.5, 0.0, -1.0 / 16)[number % 4]},
        "softcap": {"softcap": (1.0, 3.0)[number % 2]},
        "plain": {},
    }
    return values[name]


#: The names of options of problems. Those in one line exclude each other.
NAMES = (
    ("plain", "is_causal", "query_offset", "window", "left"),
    ("key_lengths", "segments"),
    ("query_lengths",),
    ("mask", "dropout", "bias"),
    ("sinks", "scale", "softcap"),
)
