"""Entries that replace steps of attention over ranks."""

from collections.abc import Callable
from typing import Any

from attnspec.conformance.gallery.bases.ranks import RING, Mesh, Pair, Rank, Ranks, sunk
from attnspec.conformance.gallery.entry import Array, Entry, rows
from attnspec.reference.notation import Attention

Steps = dict[str, Callable[..., Any]]
#: Name, base, rule, class, sentence, steps of the base, and the thread if there is one.
_Row = tuple[str, Ranks, str, str, str, Steps] | tuple[str, Ranks, str, str, str, Steps, str]


def over_ranks(*table: _Row, step: str = "attend_sharded") -> tuple[Entry, ...]:
    """Make entries that replace steps of a base."""
    run = "attend" if step == "attend_sharded" else "differentiate"
    return rows(
        *(
            (name, step, rule, kind, getattr(ranks.with_step(**steps), run), sentence, *seen)
            for name, ranks, rule, kind, sentence, steps, *seen in table
        )
    )


def own(mesh: Mesh, rank: Rank) -> Array:
    """Return the columns of the own shard."""
    return mesh.columns(rank.shard)


def is_own(rank: Rank, columns: Array) -> bool:
    """Whether some keys are those of the own shard, or none are."""
    mine = own(rank.mesh, rank)
    return len(columns) == len(mine) and bool((columns == mine).all())


def changed(change: Callable[..., Any]) -> Steps:
    """Replace the cut of a block by one whose result is changed."""
    return {"block": lambda call, rank, columns: change(RING.block(call, rank, columns), rank, columns)}


def visited(choose: Callable[[list[Array], Mesh, Rank], list[Array]]) -> Steps:
    """Replace the keys of the steps of a ring."""
    return {"visits": lambda mesh, rank: choose(RING.visits(mesh, rank), mesh, rank)}


def folded(fold: Callable[[Pair, list[Pair]], Pair]) -> Steps:
    """Replace what is returned for all parts, given what is right and the parts."""
    return {"folded": lambda merge, parts: fold(RING.folded(merge, parts), list(parts))}


def collected(move: Callable[[Mesh, list[tuple[Rank, Array]]], list[tuple[Rank, Array]]]) -> Steps:
    """Move the rows of ranks before they are put together."""
    return {"collected": lambda mesh, results, whole: RING.collected(mesh, move(mesh, results), whole)}


def with_sink(call: Attention, rank: Rank, whole: Pair, change: Callable[[Array], Array]) -> Pair:
    """Merge sinks that are changed."""
    return sunk(call.but(sinks=change(call.sinks)) if call.sinks is not None else call, rank, whole)
