"""Ranks in one process: a ring, an all-gather and a tree over shards of keys, in named steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, cast

import numpy as np

from attnspec.conformance.gallery.bases.online import A, with_positions
from attnspec.conformance.gallery.bases.splitting import finished
from attnspec.conformance.gallery.bases.splitting import merged as merged_parts
from attnspec.conformance.gallery.entry import Array, base
from attnspec.reference.attention import check_arguments
from attnspec.reference.call import Arguments, Call, Mask
from attnspec.reference.gradients import Gradients, check_cotangents
from attnspec.reference.notation import Attention
from attnspec.reference.sharding import without_shards

#: Output and lse of some keys, ``(*B, Hq, L, Dv)`` and ``(*B, Hq, L, 1)``.
Pair = tuple[Array, Array]
#: Arguments with a row for each query and a column for each key.
PAIRS = ("mask", "bias", "dropout_mask")


@dataclass(frozen=True)
class Mesh:
    """The boundaries of all ranks."""

    queries: list[int]
    keys: list[int]
    heads: list[int]
    group: int  # query heads of a key head

    @property
    def shards(self) -> int:
        """The number of shards of queries and keys."""
        return len(self.keys) - 1

    def columns(self, shard: int) -> Array:
        """Return the columns of a shard of the keys."""
        return np.arange(self.keys[shard], self.keys[shard + 1])


@dataclass(frozen=True)
class Rank:
    """One rank: its number of the shard, its rows, its query heads and its key heads."""

    mesh: Mesh
    shard: int
    rows: Array
    heads: slice
    key_heads: slice

    @property
    def place(self) -> tuple[Any, ...]:
        """Where the rows of the rank lie in arrays of the whole, ``(*B, Hq, L, ...)`` with one more axis."""
        return (..., self.heads, self.rows, slice(None))


def mesh_of(given: Arguments) -> Mesh:
    """Read the boundaries of a call."""
    heads, group = given["query"].shape[-3], given["query"].shape[-3] // given["key"].shape[-3]
    parts = [0, heads] if given.get("head_shards") is None else given["head_shards"].tolist()
    return Mesh(given["query_shards"].tolist(), given["key_shards"].tolist(), parts, group)


def ranks_of(mesh: Mesh) -> list[Rank]:
    """List the ranks that have a head and a row."""
    return [
        Rank(mesh, shard, np.arange(*rows), slice(*heads), read_by(mesh, *heads))
        for heads in pairwise(mesh.heads)
        for shard, rows in enumerate(pairwise(mesh.queries))
        if heads[1] > heads[0] and rows[1] > rows[0]
    ]


def read_by(mesh: Mesh, first: int, end: int) -> slice:
    """Return the key heads that some query heads read."""
    return slice(first // mesh.group, -(-end // mesh.group))


def explicit(call: A) -> A:
    """Give every query and key its position, and every pair its element of mask, bias and dropout."""
    mask = call.mask
    for source in (base.by_key_lengths(call), base.by_query_lengths(call)):
        mask = source if mask is None or mask is True else mask if source is True else mask & source
    pairs = {name: getattr(call, name) for name in PAIRS} | {"mask": None if mask is True else mask}
    whole = {name: x if x is None else np.broadcast_to(x, call.shape) for name, x in pairs.items()}
    return with_positions(call).but(query_lengths=None, key_lengths=None, sinks=None, **whole)


# The steps of the forward pass, which entries replace.


def meshed(mesh: Mesh) -> Mesh:
    """Compute where the rows, the keys and the heads are stored."""
    return mesh


def visits(mesh: Mesh, rank: Rank) -> list[Array]:
    """List the keys of each step of the ring: the own ones first, then those of the rank before."""
    return [mesh.columns((rank.shard - step) % mesh.shards) for step in range(mesh.shards)]


def gathered(mesh: Mesh, _rank: Rank) -> list[Array]:
    """Gather all keys, in their order of storage."""
    return [np.concatenate([mesh.columns(shard) for shard in range(mesh.shards)] or [np.arange(0)])]


def block(call: A, rank: Rank, columns: Array) -> A:
    """Cut the arrays of a rank and of some keys out of the call."""
    pairs = {name: getattr(call, name) for name in PAIRS}
    own = {name: x if x is None else x[rank.place][..., columns] for name, x in pairs.items()}
    for side, places in (("query", rank.rows), ("key", columns)):
        for name in (f"{side}_positions", f"{side}_segment_ids"):
            x = getattr(call, name)
            own[name] = None if x is None else x[..., places]
    for name in ("d_output", "d_lse"):
        if hasattr(call, name):
            own[name] = getattr(call, name)[rank.place]
    keys, values = (x[..., rank.key_heads, :, :][..., columns, :] for x in (call.key, call.value))
    return call.but(query=call.query[rank.place], key=keys, value=values, **own)


def needed(_call: Attention, _rank: Rank) -> bool:
    """Compute every block."""
    return True


def seen(call: Attention, _rank: Rank) -> Mask:
    """Return the allowed pairs of a block."""
    return np.broadcast_to(base.allowed_pairs(call), call.shape)


def partial(call: Attention, _rank: Rank, allowed: Mask) -> Pair:
    """Attend to the keys of a block."""
    s = base.score(call)
    if call.keys:
        p, lse = finished(cast("Any", None), np.where(allowed, s, -np.inf).astype(s.dtype))
    else:
        p, lse = s, np.full((*s.shape[:-1], 1), -np.inf, s.dtype)
    return base.weighted_sum(call, base.drop(call, p), allowed), lse


def merged(_rank: Rank, one: Pair, other: Pair) -> Pair:
    """Merge two partial results by their lse."""
    outputs, lses = (np.stack(pair) for pair in zip(one, other, strict=True))
    with np.errstate(invalid="ignore"):
        return merged_parts(cast("Any", None), outputs, lses)


def in_turn(merge: Callable[[Pair, Pair], Pair], parts: Sequence[Pair]) -> Pair:
    """Merge each part with all before it."""
    return reduce(merge, parts)


def in_a_tree(merge: Callable[[Pair, Pair], Pair], parts: Sequence[Pair]) -> Pair:
    """Merge neighbours, and then neighbours of what is merged."""
    while len(parts) > 1:
        pairs = [tuple(parts[at : at + 2]) for at in range(0, len(parts), 2)]
        parts = [merge(*pair) if len(pair) > 1 else pair[0] for pair in pairs]
    return parts[0]


def sunk(call: Attention, rank: Rank, whole: Pair) -> Pair:
    """Merge the sink, which has no value, with what all keys give."""
    if call.sinks is None:
        return whole
    sink = np.broadcast_to(call.sink[rank.heads], whole[1].shape).astype(whole[1].dtype)
    return merged(rank, whole, (np.zeros_like(whole[0]), sink))


def weights(call: Attention, _rank: Rank, allowed: Mask, lse: Array) -> Array:
    """Compute the weights of a block again, from the lse of all keys."""
    p = np.exp(np.where(allowed, base.score(call) - np.where(lse == -np.inf, 0, lse), -np.inf))
    kept: Array = base.drop(call, p)
    return kept


def largest(parts: list[Array]) -> Array:
    """Return the largest of the maxima of all blocks."""
    most: Array = np.stack(parts).max(axis=0)
    return most


def collected(_mesh: Mesh, results: list[tuple[Rank, Array]], whole: Array) -> Array:
    """Put the rows of every rank where they belong."""
    for rank, own in results:
        whole[rank.place] = own
    return whole


# The steps of the backward pass.


def statistics(_rank: Rank, lse: Array, _parts: list[Array]) -> Array:
    """Return the lse from which the backward pass computes weights: that of all keys."""
    return lse


def added(parts: list[Array]) -> Array:
    """Add up arrays in their order."""
    total: Array = sum(parts[1:], parts[0])
    return total


def deltas(terms: list[Array]) -> Array:
    """Return the mean of the cotangents of the weights, over all keys."""
    return added(terms)


def given_back(rank: Rank, whole: Array, columns: Array, part: Array) -> None:
    """Add what the queries of a rank contribute to the gradients of some keys, on the rank that owns them."""
    own = whole[..., rank.key_heads, :, :]
    own[..., columns, :] += part


def of_queries(parts: list[Array]) -> Array:
    """Add up what the blocks contribute to the gradients of the queries of a rank."""
    return added(parts)


def of_sinks(whole: Array, rank: Rank, part: Array) -> None:
    """Add what the rows of a rank contribute to the gradients of its sinks."""
    whole[rank.heads] += part


def of_scale(parts: list[Array]) -> Array:
    """Add up what all ranks contribute to the gradient of the scale."""
    return np.asarray(sum(parts))


def of_bias(_mesh: Mesh, whole: Array, rank: Rank, columns: Array, part: Array) -> None:
    """Keep what a block contributes to the gradient of the bias, by the rows and columns of the whole."""
    own = whole[..., rank.heads, :, :]
    own[..., rank.rows[:, None], columns] = part


@dataclass(frozen=True)
class Ranks:
    """Attention over ranks. Each field except the name and the words is a step that an entry may replace."""

    name: str
    words: str
    meshed: Callable[[Mesh], Mesh] = meshed
    visits: Callable[[Mesh, Rank], list[Array]] = visits
    block: Callable[[Any, Rank, Array], Any] = block
    needed: Callable[[Attention, Rank], bool] = needed
    seen: Callable[[Attention, Rank], Mask] = seen
    partial: Callable[[Attention, Rank, Mask], Pair] = partial
    merged: Callable[[Rank, Pair, Pair], Pair] = merged
    folded: Callable[[Callable[[Pair, Pair], Pair], Sequence[Pair]], Pair] = in_turn
    sunk: Callable[[Attention, Rank, Pair], Pair] = sunk
    weights: Callable[[Attention, Rank, Mask, Array], Array] = weights
    largest: Callable[[list[Array]], Array] = largest
    collected: Callable[[Mesh, list[tuple[Rank, Array]], Array], Array] = collected
    statistics: Callable[[Rank, Array, list[Array]], Array] = statistics
    deltas: Callable[[list[Array]], Array] = deltas
    given_back: Callable[[Rank, Array, Array, Array], None] = given_back
    of_queries: Callable[[list[Array]], Array] = of_queries
    of_sinks: Callable[[Array, Rank, Array], None] = of_sinks
    of_scale: Callable[[list[Array]], Array] = of_scale
    of_bias: Callable[[Mesh, Array, Rank, Array, Array], None] = of_bias

    def with_step(self, **steps: Callable[..., Any]) -> "Ranks":
        """Replace steps."""
        changed: dict[str, Any] = dict(steps)
        return replace(self, **changed)

    def blocks(self, call: A, rank: Rank) -> list[tuple[Array, A]]:
        """Return the needed blocks of a rank with their columns, and always one."""
        every = [(columns, self.block(call, rank, columns)) for columns in self.visits(rank.mesh, rank)]
        return [each for each in every if self.needed(each[1], rank)] or every[:1]

    def forward(self, call: Attention, whole: Attention, rank: Rank) -> tuple[Pair, list[Array]]:
        """Compute output and lse of a rank, and the lse of each of its blocks."""
        cuts = [own for _, own in self.blocks(whole, rank)]
        parts = [self.partial(own, rank, self.seen(own, rank)) for own in cuts]
        folded = self.folded(lambda one, other: self.merged(rank, one, other), parts)
        return self.sunk(call, rank, folded), [lse for _, lse in parts]

    def attend(self, given_call: Call, given: Arguments) -> Any:
        """Compute what a call returns."""
        mesh, call = self.meshed(mesh_of(given)), _entered(given_call, given, Attention)
        whole = explicit(call)
        shape, dtype = call.shape, call.query.dtype
        outputs, lses, tops, shares = [], [], [], []
        for rank in ranks_of(mesh):
            (output, lse), _ = self.forward(call, whole, rank)
            outputs.append((rank, output.astype(dtype)))
            lses.append((rank, lse.astype(dtype)))
            cuts = self.blocks(whole, rank)
            if call.return_max:
                tops.append((rank, self.largest([base.maxima(own)[..., None] for _, own in cuts])))
            if call.return_weights:
                own_shares = np.zeros((*output.shape[:-1], call.keys), dtype)
                for columns, own in cuts:
                    own_shares[..., columns] = self.weights(own, rank, self.seen(own, rank), lse)
                shares.append((rank, own_shares))
        empty = np.full((*shape[:-1], 1), -np.inf, dtype)
        results = base.finish(
            call,
            self.collected(mesh, outputs, np.zeros((*shape[:-1], call.value.shape[-1]), dtype)),
            self.collected(mesh, lses, empty.copy())[..., 0],
            self.collected(mesh, shares, np.zeros(shape, dtype)) if call.return_weights else empty,
        )
        if not call.return_max:
            return results
        most = self.collected(mesh, tops, empty)[..., 0]
        return (*(results if isinstance(results, tuple) else (results,)), most)

    def differentiate(self, given_call: Call, given: Arguments) -> tuple[Array, ...]:
        """Compute the gradients of a call, each in the dtype of its array."""
        mesh, call = self.meshed(mesh_of(given)), _entered(given_call, given, Gradients)
        call = base.convert_cotangents(call)
        whole = explicit(call)
        d_query, d_key, d_value = (np.zeros_like(x) for x in (call.query, call.key, call.value))
        t_whole, d_sinks = np.zeros(call.shape, call.query.dtype), np.zeros(call.shape[-3], call.query.dtype)
        scales: list[Array] = [np.zeros((), call.query.dtype)]
        for rank in ranks_of(mesh):
            (_, lse), parts = self.forward(call, whole, rank)
            used = self.statistics(rank, lse, parts)
            shift = np.where(used == -np.inf, 0, used)
            found = []
            for columns, own in self.blocks(whole, rank):
                allowed = self.seen(own, rank)
                p = np.exp(np.where(allowed, base.score(own) - shift, -np.inf))
                found.append((columns, own, allowed, p, base.d_weights(own)))
            delta = self.deltas([base.delta(own, p, r, allowed) for _, own, allowed, p, r in found])
            of_rows = []
            for columns, own, allowed, p, r in found:
                t = base.d_scores(own, p, r, delta, allowed)
                u = base.d_products(own, t)
                of_rows.append(base.d_query(own, u, allowed))
                self.given_back(rank, d_key, columns, base.d_key(own, u, allowed))
                self.given_back(rank, d_value, columns, base.d_value(own, p, allowed))
                self.of_bias(mesh, t_whole, rank, columns, t)
                if call.return_d_scale:
                    scales.append(base.d_scale(own, u, allowed))
            d_query[rank.place] = self.of_queries(of_rows)
            if call.sinks is not None:
                own = found[0][1].but(sinks=call.sinks[rank.heads])
                self.of_sinks(d_sinks, rank, base.d_sinks(own, lse[..., 0], delta))
        results = [d_query, d_key, d_value]
        results += [] if call.bias is None else [base.d_bias(call, t_whole)]
        results += [] if call.sinks is None else [d_sinks]
        names = ("query", "key", "value", "bias", "sinks")
        arrays = [given[name] for name in names if given.get(name) is not None]
        rounded = [d.astype(array.dtype) for d, array in zip(results, arrays, strict=True)]
        return (*rounded, *([self.of_scale(scales)] if call.return_d_scale else []))


def _entered(call: Call, given: Arguments, made: type[A]) -> A:
    """Check a call as the reference does, and convert it to the working precision."""
    whole = made(call.steps, call.xp, call.dtype, **without_shards(given))
    checked = check_arguments(whole)
    if isinstance(checked, Gradients):
        checked = check_cotangents(checked)
    return cast("A", base.enter(checked))


RING = Ranks("ring", "in a ring")
GATHER = Ranks("gather", "after gathering all keys", visits=gathered)
TREE = Ranks("tree", "in a tree", folded=in_a_tree)
