"""Conditions on the sizes of calls, such as fewer queries than keys, that predict which calls fail."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product

from attnspec.conformance.traits import (
    BATCHED,
    FEWER_QUERIES,
    HEADS,
    MORE_THAN,
    NOT_A_MULTIPLE,
    ODD_HEADS,
    OTHER_QUERIES,
    UNPAIRED,
    USUAL,
)

#: The sizes of the tiles of kernels.
_TILES = (8, 16, 32, 64, 128)
#: A condition holds for at least this share of the failing calls.
_MOST = 0.8


@cache
def traits_of_sizes(sizes: tuple[int, ...]) -> frozenset[str]:
    """Return the conditions that the sizes of a call meet."""
    return frozenset(trait for trait, holds in _conditions(*sizes).items() if holds) if sizes else frozenset()


@cache
def every_trait() -> tuple[str, ...]:
    """Return every condition on sizes, the plainest first."""
    return (*_conditions(),)


def _conditions(
    batch: int = 0, heads: int = 0, _: int = 0, queries: int = 0, keys: int = 0, depth: int = 0, *__: int
) -> dict[str, bool]:
    holds = {
        FEWER_QUERIES: queries < keys,
        OTHER_QUERIES: queries != keys,
        BATCHED: batch > 1,
        HEADS: heads > 1,
        ODD_HEADS: heads & (heads - 1) > 0,
        UNPAIRED: depth % 2 > 0,
    }
    for tile, (name, size) in product(_TILES, {"keys": keys, "queries": queries}.items()):
        holds[f"{MORE_THAN}{tile} {name}"] = size > tile
        holds[f"{name}{NOT_A_MULTIPLE}{tile}"] = size % tile > 0
    return holds


def conditions(bad: Mapping[frozenset[str], int], others: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield each condition on sizes that nearly all failing calls meet, alone and beside another trait."""
    enough = _MOST * sum(bad.values())

    def are_common(*traits: str) -> bool:
        return sum(number for kinds, number in bad.items() if {*traits} <= kinds) >= enough

    own = [trait for trait in every_trait() if are_common(trait)]
    shorter = [pair for pair in _remainders() if are_common(*pair)]
    yield from ((trait,) for trait in own)
    yield from combinations(own, 2)
    # A trait of most calls tells no more beside a size than the size alone.
    beside = [other for other in others if other not in (*own, *USUAL) and are_common(other)]
    yield from ((trait, other) for trait in own for other in beside)
    yield from ((other, *pair) for pair in shorter for other in beside if are_common(other, *pair))


@cache
def _remainders() -> tuple[tuple[str, str], ...]:
    """Return the conditions on several tiles of which the last is shorter, by tile and by what is in it."""
    return tuple(
        (f"{MORE_THAN}{tile} {name}", f"{name}{NOT_A_MULTIPLE}{tile}")
        for tile, name in product(_TILES, ("keys", "queries"))
    )
