"""The chapter `sharding`: queries, keys and heads that are spread over ranks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from attnspec.conformance.suite.alone import draw_option_alone
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import FORMS, PER_ENTRY, segments, sinks
from attnspec.conformance.suite.orders import ORDERS, Mesh, in_turn, split, split_in_order
from attnspec.conformance.suite.problem import Problem, Shape

chapter = Chapter("sharding")

Options = dict[str, Any]
_OPERATION = "sharded_attention"
#: As many queries as keys, which self-attention has, and fewer; with grouped heads and without.
_WHOLE = Shape((2, 4), 8, 8, 4, 4, groups=2)
_LATE = Shape((4,), 6, 11, 3, 5, groups=4)
_LONG = Shape((1, 2), 16, 16, 4, 3)
_PLAIN = Shape((2, 2), 5, 7, 2, 3)
#: The numbers of ranks.
RANKS = (1, 2, 3, 4, 8)
_TURNS = tuple(Mesh(ranks) for ranks in RANKS[1:])
#: What compares positions.
_COMPARED: Mapping[str, Options] = {
    "causal": {"is_causal": True},
    "window": {"window": (3, 2)},
    "wide window": {"window": (6, None)},
    "causal and window": {"is_causal": True, "window": (4, None)},
}


@chapter.group("SHARD-1", operation=_OPERATION, each=RANKS)
def over_ranks(draw: Draw, ranks: int) -> Iterator[Yielded]:
    """Nothing is masked, and each rank has as many rows as the others, or one more."""
    for problem, mesh in in_turn(draw, (_WHOLE, _LATE, _PLAIN), [Mesh(ranks)]):
        yield split(problem, mesh)


@chapter.group("SHARD-1", operation=_OPERATION, each=(*FORMS, *(f"{name} of entries" for name in PER_ENTRY)))
def with_an_option(draw: Draw, name: str) -> Iterator[Yielded]:
    """Each option of attention, by the rows of the whole."""
    option = FORMS[name] if name in FORMS else PER_ENTRY[name.removesuffix(" of entries")]
    for problem, mesh in in_turn(draw, (_WHOLE, _PLAIN), _TURNS[len(name) % 4 :] + _TURNS):
        own = option.needs(problem) | option.draw(problem)
        yield Call(split(problem, mesh) | own, ("SHARD-1", "STACK-2", option.rule))


@chapter.group("SHARD-1", "STACK-2", "MASK-14", operation=_OPERATION)
def positions_of_queries_alone(draw: Draw) -> Iterator[Yielded]:
    """Queries have positions, and keys have those of their rows."""
    problem = draw.problem(_WHOLE, "float32")
    call = draw_option_alone(problem, _OPERATION, "query_positions", split(problem, Mesh(2)))
    yield replace(call, rules=())


@chapter.group("NUM-14", "SHARD-1", operation=_OPERATION)
def scores_of_minus_infinity(draw: Draw) -> Iterator[Yielded]:
    """One key has scores of minus infinity, and the keys of all shards share the rest."""
    for problem, mesh in in_turn(draw, (_WHOLE, _PLAIN), _TURNS):
        query, key = problem.query.copy(), problem.key.copy()
        query[..., 0] = np.abs(query[..., 0]) + 1
        key[..., 1, :2] = (-np.inf, 64)  # 64 alone would give the key most of the weight
        yield split(problem, mesh) | {"query": query, "key": key}


@chapter.group("SHARD-2", operation=_OPERATION, each=tuple(ORDERS))
def in_order(draw: Draw, order: str) -> Iterator[Yielded]:
    """Causality and windows go by positions, whatever the order of storage."""
    for number, compared in enumerate(_COMPARED.values()):
        meshes = [Mesh(RANKS[1:][(number + more) % 4], order) for more in range(2)]
        for problem, mesh in in_turn(draw, (_LONG, _LATE), meshes):
            yield Call(split_in_order(problem, mesh) | compared, ("SHARD-2", "MASK-14"))


@chapter.group("SHARD-2", operation=_OPERATION, each=tuple(_COMPARED))
def without_positions(draw: Draw, compared: str) -> Iterator[Yielded]:
    """Rows are positions, moved by an offset; the offset is that of the first query of all."""
    for problem, mesh in in_turn(draw, (_LONG, _LATE, _WHOLE), _TURNS):
        queries, keys = problem.shape[-2:]
        offset = {"query_offset": keys - queries} if keys > queries else {}
        yield Call(split(problem, mesh) | _COMPARED[compared] | offset, ("SHARD-2", "MASK-7"))


@chapter.group("SHARD-2", operation=_OPERATION, each=("2^24", "2^31", "2^33", "2^40"))
def positions_past(draw: Draw, power: str) -> Iterator[Yielded]:
    """Positions need 64 bits, or more digits than a float32 has; causality and windows go by them."""
    first = 2 ** int(power[2:]) - 7
    for order in ("contiguous", "zigzag"):
        for problem, mesh in in_turn(draw, (_LONG,), [Mesh(4, order)]):
            window = {"window": (3, 0)} if order == "zigzag" else {"is_causal": True}
            yield Call(split_in_order(problem, mesh, first) | window, ("SHARD-2", "MASK-14"))


@chapter.group("SHARD-2", operation=_OPERATION, each=("the last shard", "every shard"))
def filled_up_in(draw: Draw, where: str) -> Iterator[Yielded]:
    """Positions of -1 are no keys: they fill up shards to one size, whatever numbers they hold."""
    for order in ("contiguous", "zigzag", "striped"):
        for problem, mesh in in_turn(draw, (_LONG, _PLAIN), [Mesh(4, order), Mesh(2, order)]):
            call = split_in_order(problem, mesh) | {"is_causal": True}
            places, cuts = call["key_positions"], call["key_shards"]
            for first, end in pairwise(cuts.tolist()):
                if end > first and (where == "every shard" or end == cuts[-1]):
                    places[..., end - 1] = -1
                    call["value"][..., end - 1, :] = 1000
            yield Call(call, ("SHARD-2", "MASK-15", "MASK-14"))


#: Boundaries of the queries and the keys of `_PLAIN`, which has 5 and 7.
_UNEVEN: Mapping[str, tuple[Mesh, ...]] = {
    "uneven": (
        Mesh(2, queries=(0, 4, 5), keys=(0, 1, 7)),
        Mesh(3, queries=(0, 1, 2, 5), keys=(0, 5, 6, 7)),
        Mesh(4, queries=(0, 2, 3, 4, 5), keys=(0, 1, 3, 6, 7)),
    ),
    "no queries": (
        Mesh(2, queries=(0, 0, 5), keys=(0, 4, 7)),
        Mesh(3, queries=(0, 3, 3, 5), keys=(0, 2, 5, 7)),
        Mesh(2, queries=(0, 5, 5), keys=(0, 4, 7)),
    ),
    "no keys": (
        Mesh(2, queries=(0, 2, 5), keys=(0, 0, 7)),
        Mesh(3, queries=(0, 2, 3, 5), keys=(0, 3, 3, 7)),
        Mesh(2, queries=(0, 2, 5), keys=(0, 7, 7)),
    ),
    "neither": (
        Mesh(3, queries=(0, 2, 2, 5), keys=(0, 3, 3, 7)),
        Mesh(4, queries=(0, 0, 5, 5, 5), keys=(0, 0, 7, 7, 7)),
        Mesh(3, queries=(0, 0, 0, 5), keys=(0, 7, 7, 7)),
    ),
    "more ranks than rows": (Mesh(8), Mesh(8, "striped"), Mesh(8, "zigzag")),
}


@chapter.group("SHARD-3", "SHARD-13", operation=_OPERATION, each=tuple(_UNEVEN))
def shards_of_sizes(draw: Draw, sizes: str) -> Iterator[Yielded]:
    """Shards have few or no queries and keys, also where a row ends without an allowed key."""
    for number, (problem, mesh) in enumerate(in_turn(draw, (_PLAIN,) * 3, _UNEVEN[sizes])):
        own: Options = ({}, {"is_causal": True}, sinks(problem))[number % 3]
        rule = ((), ("MASK-3",), ("SOFT-5",))[number % 3]
        yield Call(split(problem, mesh) | own, ("SHARD-3", "SHARD-13", *rule))


@chapter.group("SHARD-3", "SHARD-13", operation=_OPERATION, each=RANKS[1:])
def empty_shard_of(draw: Draw, ranks: int) -> Iterator[Yielded]:
    """One rank has no key, the first, the last or another one, and the next one no query."""
    for number, problem in enumerate(draw.problems((_PLAIN, _LATE, _LONG))):
        queries, keys = problem.shape[-2:]
        empty = (0, ranks - 1, ranks // 2)[number // 2]
        mesh = Mesh(
            ranks,
            queries=_with_an_empty_shard(queries, ranks, (empty + 1) % ranks),
            keys=_with_an_empty_shard(keys, ranks, empty),
        )
        own: Options = {"is_causal": True} if number % 2 else {}
        yield Call(split(problem, mesh) | own, ("SHARD-3", "SHARD-13", *(["MASK-3"] if own else [])))


def _with_an_empty_shard(rows: int, shards: int, empty: int) -> tuple[int, ...]:
    """Return boundaries of shards as equal as possible, one of which has no row."""
    others = [rows * shard // (shards - 1) for shard in range(shards)]
    return (*others[: empty + 1], *others[empty:])


@chapter.group("SHARD-3", operation=_OPERATION, each=("queries", "keys", "both"))
def nothing_at_all(draw: Draw, nothing: str) -> Iterator[Yielded]:
    """No rank has a query, or a key."""
    shape = _PLAIN._replace(
        queries=5 if nothing == "keys" else 0,
        keys=7 if nothing == "queries" else 0,
    )
    for problem, mesh in in_turn(draw, (shape,), [Mesh(3)]):
        yield split(problem, mesh)


def _shards_of_keys(problem: Problem, mesh: Mesh) -> Any:
    """Return the number of the shard of each key."""
    cuts = split(problem, mesh)["key_shards"]
    return np.searchsorted(cuts, np.arange(problem.shape[-1]), side="right") - 1


def _one_shard_each(problem: Problem, mesh: Mesh) -> Options:
    """Allow to each query the keys of one shard, in turn, and nothing to the last query."""
    queries = problem.shape[-2]
    mask = _shards_of_keys(problem, mesh) == (np.arange(queries) % mesh.shards)[:, None]
    mask[-1] = False
    return {"mask": mask}


def _far_window(problem: Problem, _: Mesh) -> Options:
    """Put the queries so that some see keys of one far shard, and others none."""
    queries = problem.shape[-2]
    standing = np.broadcast_to(np.arange(queries)[::-1] * 2, (*problem.batch, queries)).copy()
    return {"query_positions": standing, "window": (1, 0)}


def _no_segment(problem: Problem, mesh: Mesh) -> Options:
    """Put the keys of each shard into a segment, and the last query into one of no shard."""
    queries, keys = problem.shape[-2:]
    shard = _shards_of_keys(problem, mesh)
    own = np.arange(queries) % mesh.shards
    own[-1] = mesh.shards
    return {
        "query_segment_ids": np.broadcast_to(own, (*problem.batch, queries)).copy(),
        "key_segment_ids": np.broadcast_to(shard, (*problem.batch, keys)).copy(),
    }


def _first_keys_alone(_: Problem, __: Mesh) -> Options:
    """Leave all shards but the first without a key."""
    return {"key_lengths": 2}


_NOTHING: Mapping[str, tuple[str, Callable[[Problem, Mesh], Options]]] = {
    "mask": ("MASK-1", _one_shard_each),
    "window": ("MASK-8", _far_window),
    "segments": ("MASK-11", _no_segment),
    "lengths": ("MASK-9", _first_keys_alone),
    "no key": ("MASK-9", lambda _, __: {"key_lengths": 0}),
    "causality": ("MASK-7", lambda p, _: {"is_causal": True, "query_offset": -(p.shape[-2] // 2)}),
}


@chapter.group("SHARD-4", operation=_OPERATION, each=tuple(_NOTHING))
def shards_without_an_allowed_key(draw: Draw, by: str) -> Iterator[Yielded]:
    """Most shards have no key for a row, and for some rows no shard has one."""
    rule, make = _NOTHING[by]
    for problem, mesh in in_turn(draw, (_WHOLE, _LONG, _PLAIN), _TURNS):
        yield Call(split(problem, mesh) | make(problem, mesh), ("SHARD-4", rule))


@chapter.group("SHARD-4", operation=_OPERATION, each=("NaN", "infinity"))
def not_a_number_in_a_row(draw: Draw, what: str) -> Iterator[Yielded]:
    """A score of NaN or plus infinity in one shard makes its row NaN, and no other row."""
    for problem, mesh in in_turn(draw, (_WHOLE, _PLAIN), _TURNS[:2]):
        call = split(problem, mesh)
        bias = np.zeros(problem.shape[-2:], problem.query.dtype)
        bias[1, -2] = np.nan if what == "NaN" else np.inf
        yield Call(call | {"bias": bias}, ("SHARD-1", "NUM-11"))


@chapter.group("SHARD-5", operation=_OPERATION, each=RANKS)
def sinks_over_ranks(draw: Draw, ranks: int) -> Iterator[Yielded]:
    """Sinks of both signs are a large part of the denominator, and some are minus infinity."""
    for number, (problem, mesh) in enumerate(in_turn(draw, (_WHOLE, _LATE, _PLAIN), [Mesh(ranks)])):
        own = sinks(problem)
        if number % 3 == 1:
            own["sinks"][0] = -np.inf
        masks: Options = ({}, {"is_causal": True}, {"key_lengths": 0})[number % 3]
        rule = ("SHARD-5", "MASK-3", "MASK-9")[number % 3]
        yield Call(split(problem, mesh) | own | masks, tuple(dict.fromkeys(("SHARD-5", "SOFT-5", rule))))


def _documents(problem: Problem, mesh: Mesh) -> Options:
    """Number documents that begin in one shard and end in a later one."""
    keys = problem.shape[-1]
    standing = split_in_order(problem, mesh)
    first = np.array([0, keys // 4, keys // 2 + 1])
    return {
        f"{side}_segment_ids": np.searchsorted(first, standing[f"{side}_positions"], side="right")
        for side in ("query", "key")
    }


@chapter.group("SHARD-6", operation=_OPERATION, each=tuple(ORDERS))
def documents_across_shards(draw: Draw, order: str) -> Iterator[Yielded]:
    """Documents begin and end inside of shards, and causality counts over all of them."""
    for problem, mesh in in_turn(draw, (_LONG, _LATE), [Mesh(ranks, order) for ranks in (2, 3, 4)]):
        call = split_in_order(problem, mesh) | _documents(problem, mesh)
        yield Call(call | {"is_causal": True}, ("SHARD-6", "MASK-11", "MASK-14"))


@chapter.group("SHARD-6", operation=_OPERATION, each=tuple(ORDERS))
def bias_of_alibi(draw: Draw, order: str) -> Iterator[Yielded]:
    """The bias falls with the distance of positions, with a slope for each head."""
    for problem, mesh in in_turn(draw, (_LONG, _WHOLE), [Mesh(ranks, order) for ranks in (2, 3, 4)]):
        call = split_in_order(problem, mesh)
        distance = call["query_positions"][..., :, None] - call["key_positions"][..., None, :]
        slopes = np.ldexp(1.0, -np.arange(1, problem.shape[-3] + 1))[:, None, None]
        bias = (-slopes * np.abs(distance)[..., None, :, :]).astype(problem.query.dtype)
        yield Call(call | {"bias": bias, "is_causal": True}, ("SHARD-6", "SCORE-4", "MASK-14"))


_PAIRS: Mapping[str, str] = {
    "mask": "MASK-1",
    "mask of keys": "MASK-1",
    "mask of queries": "MASK-1",
    "bias": "SCORE-4",
    "bias of heads": "SCORE-4",
    "bias of minus infinity": "MASK-2",
    "dropout": "DROP-1",
    "dropout_rate": "DROP-2",
}


@chapter.group("SHARD-6", operation=_OPERATION, each=tuple(_PAIRS))
def pairs_of(draw: Draw, name: str) -> Iterator[Yielded]:
    """An array of pairs has the rows of all queries and the columns of all keys, beside other positions."""
    meshes = [Mesh(3, "zigzag"), Mesh(2, "striped"), Mesh(4)]
    for problem, mesh in in_turn(draw, (_WHOLE, _LATE, _LONG), meshes):
        own = FORMS[name].draw(problem) | {"is_causal": True}
        yield Call(split_in_order(problem, mesh) | own, ("SHARD-6", "MASK-14", _PAIRS[name]))


@chapter.group("SHARD-7", operation=_OPERATION, each=("first", "last", "middle"))
def largest_scores_in_the_shard(draw: Draw, place: str) -> Iterator[Yielded]:
    """The maximum grows, or does not, from shard to shard; the maxima are asked for too."""
    for problem, mesh in in_turn(draw, (_WHOLE, _LONG, _PLAIN), _TURNS):
        keys = problem.shape[-1]
        at = {"first": 0, "last": keys - 1, "middle": keys // 2}[place]
        bias = -4.0 * np.abs(np.arange(keys) - at)
        bias = np.broadcast_to(bias.astype(problem.query.dtype), problem.shape[-2:]).copy()
        call = split(problem, mesh) | {"bias": bias, "return_max": True}
        yield Call(call, ("SHARD-7", "SCORE-4", "SOFT-8"))


@chapter.group("SHARD-7", operation=_OPERATION, each=("causal", "sinks", "softcap"))
def maxima_beside(draw: Draw, name: str) -> Iterator[Yielded]:
    """The maximum of a row is the largest allowed score, without the sink and after the softcap."""
    own: Callable[[Problem], Options] = {
        "causal": lambda _: {"is_causal": True},
        "sinks": sinks,
        "softcap": lambda _: {"softcap": 1.5},
    }[name]
    for problem, mesh in in_turn(draw, (_WHOLE, _PLAIN), _TURNS):
        rules = ("SHARD-7", "SOFT-8", {"causal": "MASK-3", "sinks": "SOFT-5", "softcap": "SCORE-5"}[name])
        yield Call(split(problem, mesh) | own(problem) | {"return_max": True}, rules)


@chapter.group("SHARD-7", "SOFT-6", operation=_OPERATION, each=RANKS)
def lse_of_the_whole(draw: Draw, ranks: int) -> Iterator[Yielded]:
    """The lse is that of all shards, without another option and beside causality."""
    for number, (problem, mesh) in enumerate(in_turn(draw, (_WHOLE, _PLAIN, _LONG), [Mesh(ranks)])):
        own: Options = {"is_causal": True} if number % 2 else {}
        rules = ("SHARD-7", "SOFT-6", *(["MASK-3"] if own else []))
        yield Call(split(problem, mesh) | own | {"return_lse": True}, rules)


@chapter.group("SHARD-9", operation=_OPERATION, each=RANKS[1:])
def scores_far_from_zero(draw: Draw, ranks: int) -> Iterator[Yielded]:
    """All scores of a row are far above or below 0, so that rounding an lse moves every part."""
    for size in (50, -50, 1000, -1000):
        for problem, mesh in in_turn(draw, (_WHOLE, _LONG), [Mesh(ranks)]):
            bias = np.full(problem.shape[-2:], size, problem.query.dtype)
            yield Call(split(problem, mesh) | {"bias": bias}, ("SHARD-9", "SCORE-4"))
    for problem, mesh in in_turn(draw, (_WHOLE, _LONG), [Mesh(ranks)]):
        yield Call(split(problem, mesh) | {"scale": 30.0}, ("SHARD-9", "SCORE-3"))


@chapter.group("SHARD-9", "SHARD-1", operation=_OPERATION, each=tuple(_COMPARED))
def everything_at_once(draw: Draw, compared: str) -> Iterator[Yielded]:
    """Segments, sinks, a softcap, a bias and dropout, over heads and shards."""
    cuts = (0, 2, 4)
    for problem, mesh in in_turn(draw, (_WHOLE, _LATE), [Mesh(4, "zigzag", heads=cuts), Mesh(3, "striped")]):
        own = segments(problem) | sinks(problem) | FORMS["dropout_rate"].draw(problem)
        own |= FORMS["bias"].draw(problem) | {"softcap": 2.0, "scale": 0.4} | _COMPARED[compared]
        yield Call(
            split_in_order(problem, mesh) | own,
            ("SHARD-1", "STACK-2", "MASK-14", "MASK-11", "SOFT-5", "DROP-2", "SCORE-4", "SCORE-5", "SCORE-3"),
        )


@chapter.group(
    "SHARD-13", "SHARD-1", operation=_OPERATION, each=("rows", "rows and heads", "rows of one rank")
)
def each_rank_returns(draw: Draw, what: str) -> Iterator[Yielded]:
    """Every rank has as many rows as the others, or one rank has all of them: the place of a row shows."""
    meshes: Mapping[str, list[Mesh]] = {
        "rows": [Mesh(2), Mesh(4), Mesh(8)],
        "rows and heads": [
            Mesh(2, heads=(0, 2, 4)),
            Mesh(4, heads=(0, 2, 4)),
            Mesh(2, heads=(0, 1, 2, 3, 4)),
        ],
        "rows of one rank": [
            Mesh(3, queries=(0, 0, 0, 8)),
            Mesh(2, queries=(0, 8, 8)),
            Mesh(3, queries=(0, 0, 8, 8)),
        ],
    }
    for problem, mesh in in_turn(draw, (_WHOLE,) * 3, meshes[what]):
        yield split(problem, mesh)
