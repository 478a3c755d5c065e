"""The chapter `gradients`: gradients beside every option, and relations between calls."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from attnspec.backends.user.slopes import linear_bias
from attnspec.case import Misuse
from attnspec.conformance.relations.nan import beyond_the_head, spoil
from attnspec.conformance.suite.errors import judge_each
from attnspec.conformance.suite.gradients import cotangents
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import NO_PAIRS, OPTIONS, draw_option, dropout, sinks
from attnspec.conformance.suite.problem import GROUPED, MASKED, PLANES, SHAPES, SHARED, Shape, share_along

chapter = Chapter("gradients")

_VJP = "attention_vjp"
#: The rule that a gradient with an option bears on first; those of masking bear on GRAD-9.
_RULES = {"scale": "GRAD-1", "softcap": "GRAD-5", "bias": "GRAD-4", "sinks": "GRAD-7", "dropout": "GRAD-8"}
_NAMES = tuple(name for name in OPTIONS if name != "dropout_rate")
_PAIRS = sorted(
    (pair for pair in combinations((*_NAMES, "grouped", "d_lse"), 2) if pair not in NO_PAIRS),
    key=lambda pair: "positions" in pair,  # a newer option does not change the dtypes of older pairs
)


#: A given scale, and none for the default.
_SCALES = {"given": 0.375, "default": None, "zero": 0.0, "negative": -1.25}
_ASKED: dict[str, Any] = {"return_d_scale": True}
_WITH_SCALE = ("d_query", "d_scale")


@chapter.group("GRAD-24", operation=_VJP, each=tuple(_SCALES))
def scale_with_a_gradient(draw: Draw, scale: str) -> Iterator[Yielded]:
    """One number collects from all pairs of all heads and batch entries."""
    rules = ("GRAD-24", "SCORE-2" if scale == "default" else "SCORE-3")
    for index, problem in enumerate(draw.problems((*MASKED, *GROUPED))):
        own = _ASKED | cotangents(problem, lse=index % 2 == 1)
        own |= {} if _SCALES[scale] is None else {"scale": _SCALES[scale]}
        yield Call(problem.arguments | own, rules, outputs=_WITH_SCALE)


@chapter.group("GRAD-24", operation=_VJP, each=tuple(name for name in _NAMES if name != "scale"))
def scale_beside(draw: Draw, option: str) -> Iterator[Yielded]:
    """Pairs that an option disallows add nothing to the gradient of the scale, and others what it changes."""
    for problem in draw.problems((MASKED[0], GROUPED[0])):
        needs, own = draw_option(problem, option)
        call = problem.arguments | needs | own | cotangents(problem, lse=True) | {"scale": 0.75}
        yield Call(call | _ASKED, ("GRAD-24", OPTIONS[option].rule), outputs=_WITH_SCALE)


@chapter.group("GRAD-24", operation=_VJP, each=("queries", "keys", "heads", "causal"))
def scale_over_many(draw: Draw, many: str) -> Iterator[Yielded]:
    """The sum runs over more queries, keys or heads than a tile holds."""
    sizes = {"queries": Shape((2,), 130, 9, 4, 3), "keys": Shape((2,), 3, 260, 4, 3)}
    shape = sizes.get(many, Shape((2, 16) if many == "heads" else (2,), 33, 65, 8, 8))
    shape = Shape((2, 16), 3, 5, 4, 4, groups=8) if many == "heads" else shape
    for problem in draw.problems((shape,)):
        own = {"is_causal": True} if many == "causal" else {}
        yield Call(problem.arguments | cotangents(problem) | own | _ASKED, outputs=_WITH_SCALE)


@chapter.group("GRAD-24", "GRAD-13", operation=_VJP, each=("cotangents", "queries", "keys"))
def scale_without_a_gradient(draw: Draw, none: str) -> Iterator[Yielded]:
    """Where all cotangents are 0, or there are no pairs, the scale has a gradient of 0."""
    sizes = {"cotangents": MASKED[0], "queries": Shape((2, 2), 0, 5, 4, 4), "keys": Shape((2, 2), 3, 0, 4, 4)}
    for problem in draw.in_each_dtype(sizes[none]):
        own = cotangents(problem, lse=True)
        own = {name: 0 * array for name, array in own.items()} if none == "cotangents" else own
        rules = ("GRAD-24", "GRAD-13") if none == "cotangents" else ("GRAD-24", "SHAPE-7")
        yield Call(problem.arguments | own | _ASKED, rules, outputs=_WITH_SCALE)


@chapter.group("GRAD-4", operation=_VJP)
def bias_that_is_broadcast(draw: Draw) -> Iterator[Yielded]:
    """The bias has every shape that broadcasts, and its gradient is summed to that shape."""
    for problem in draw.problems((*MASKED, *GROUPED), 3):
        bias = problem.broadcastable(problem.array(*problem.shape))
        yield problem.arguments | {"bias": bias} | cotangents(problem)


@chapter.group("GRAD-4", operation=_VJP, each=tuple(SHARED), step=1)
def bias_for_several(draw: Draw, along: str) -> Iterator[Yielded]:
    """The gradient of a bias is summed over entries, heads, queries or keys, and over none of the others."""
    for problem in draw.problems((Shape((3, 4), 5, 6, 4, 3, groups=2),)):
        bias = share_along(problem.array(*problem.shape), SHARED[along])
        yield problem.arguments | {"bias": bias} | cotangents(problem)


@chapter.group("GRAD-4", operation=_VJP, each=tuple(PLANES), step=1)
def pairs_in_tiles(draw: Draw, which: str) -> Iterator[Yielded]:
    """A mask or a bias is read in tiles, of each entry for all heads or of each head for all entries."""
    option, along = PLANES[which]
    for problem in draw.problems((Shape((2, 2), 34, 66, 2, 2),)):
        pairs = problem.mask() if option == "mask" else problem.array(*problem.shape)
        call = problem.arguments | {option: share_along(pairs, SHARED[along])} | cotangents(problem)
        yield Call(call, ("GRAD-4",) if option == "bias" else ("MASK-1", "GRAD-9"))


@chapter.group("GRAD-4", operation=_VJP, each=("queries", "keys"))
def bias_that_many_share(draw: Draw, axis: str) -> Iterator[Yielded]:
    """A bias is broadcast along more queries, or more keys, than a tile holds."""
    shape = Shape((2,), 67, 9, 4, 3) if axis == "queries" else Shape((2,), 3, 130, 4, 3)
    for problem in draw.problems((shape,)):
        bias = problem.array(*problem.shape)
        bias = bias[..., :1, :] if axis == "queries" else bias[..., :1]
        yield problem.arguments | {"bias": bias} | cotangents(problem)


@chapter.group("GRAD-1", "SCORE-4", operation=_VJP, each=("no mask", "causality", "a causal offset"), step=1)
def linear_bias_of_more_keys(draw: Draw, beside: str) -> Iterator[Yielded]:
    """A bias with slopes has the distances of the forward pass, with the last query at the last key."""
    for problem in draw.problems((Shape((2, 4), 5, 40, 4, 3, groups=2), Shape((2,), 6, 9, 4, 4)), 1):
        later = problem.shape[-1] - problem.shape[-2]
        own: dict[str, Any] = {} if beside == "no mask" else {"is_causal": True}
        call = problem.arguments | own | ({"query_offset": later} if beside == "a causal offset" else {})
        call |= {"bias": linear_bias(call, from_end=True)} | cotangents(problem)
        yield Call(call, outputs=("d_query", "d_key", "d_value"))


@chapter.group("GRAD-5", "SCORE-5", operation=_VJP, each=("alone", "bias"))
def softcap(draw: Draw, beside: str) -> Iterator[Yielded]:
    """Scores far past the cap have gradients near 0 before the cap, and a bias has the full gradient."""
    for problem in draw.problems((*MASKED, *GROUPED)):
        options: dict[str, Any] = {"softcap": problem.choice(0.25, 0.5, 2.0)}
        if beside == "bias":
            options["bias"] = problem.array(*problem.shape)
        yield problem.arguments | options | cotangents(problem)


@chapter.group("GRAD-7", "SOFT-5", operation=_VJP, each=("alone", "lse", "nothing else"))
def one_sink_for_each_head(draw: Draw, beside: str) -> Iterator[Yielded]:
    """The gradient of a sink is the sum over all queries of its head, also those that attend to nothing."""
    for problem in draw.problems((*MASKED, *GROUPED)):
        options = sinks(problem)
        if beside == "nothing else":
            mask = problem.mask()
            mask[..., 1, :] = False
            options["mask"] = mask
        yield problem.arguments | options | cotangents(problem, lse=beside != "alone")


@chapter.group("GRAD-7", "GRAD-10", "SOFT-5", operation=_VJP)
def sink_of_minus_infinity(draw: Draw) -> Iterator[Yielded]:
    """A sink of minus infinity has a weight and a gradient of 0, also in a row with no allowed key."""
    for problem in draw.problems(MASKED):
        sink, mask = sinks(problem)["sinks"], problem.mask()
        sink[0], mask[..., 1, :] = -np.inf, False
        yield problem.arguments | {"sinks": sink, "mask": mask} | cotangents(problem, lse=True)


@chapter.group("GRAD-8", "DROP-1", operation=_VJP, each=("rate", "no rate"))
def dropped_weights(draw: Draw, rate: str) -> Iterator[Yielded]:
    """A dropped weight passes no gradient to its value, but its score still has a gradient."""
    for problem in draw.problems((*MASKED, *GROUPED)):
        options = dropout(problem)
        if rate == "no rate":
            del options["dropout_rate"]
        yield problem.arguments | options | cotangents(problem)


@chapter.group("GRAD-9", operation=_VJP, each=tuple(name for name in _NAMES if name not in _RULES))
def masked_pairs(draw: Draw, option: str) -> Iterator[Yielded]:
    """The pairs that each source of masking disallows do not change the gradients."""
    for problem in draw.problems((*MASKED[:3], GROUPED[0])):
        needs, own = draw_option(problem, option)
        yield Call(problem.arguments | needs | own | cotangents(problem), ("GRAD-9", OPTIONS[option].rule))


@chapter.group("ERR-3", operation=_VJP, each=_PAIRS)
def gradients_with_options_in_pairs(draw: Draw, pair: tuple[str, str]) -> Iterator[Yielded]:
    """Two options have their effect together in the backward pass."""
    shape = GROUPED[0] if "grouped" in pair else MASKED[0]
    dtype = ("float32", "float32", "float64", "float16")[_PAIRS.index(pair) % 4]
    problem = draw.problem(shape, dtype)
    parts = [draw_option(problem, name) for name in pair if name in OPTIONS]
    options = {name: thing for place in (0, 1) for part in parts for name, thing in part[place].items()}
    rules = tuple(dict.fromkeys(_RULES.get(name, "GRAD-9") for name in pair if name in OPTIONS))
    extra = tuple(rule for name, rule in (("grouped", "GRAD-3"), ("d_lse", "GRAD-6")) if name in pair)
    yield Call(problem.arguments | options | cotangents(problem, lse="d_lse" in pair), (*rules, *extra))


#: What there is none of, and the rule that says which gradient that gives.
_NONE = {
    "batch": (Shape((0, 2), 3, 5, 4, 4), "GRAD-2"),
    "queries": (Shape((2, 2), 0, 5, 4, 4), "GRAD-9"),
    "keys": (Shape((2, 2), 3, 0, 4, 4), "GRAD-10"),
}


@chapter.group("GRAD-2", "SHAPE-7", operation=_VJP, each=tuple(_NONE))
def nothing_to_differentiate(draw: Draw, none: str) -> Iterator[Yielded]:
    """Without queries keys and values have gradients of 0, and without keys the queries have."""
    shape, rule = _NONE[none]
    for problem in draw.in_each_dtype(shape, dtypes=("float32",)):
        yield Call(problem.arguments | cotangents(problem), tuple(dict.fromkeys((rule, "GRAD-2", "SHAPE-7"))))


@chapter.group("GRAD-2", "ERR-14", "ERR-1", operation=_VJP, each=("bias", "sinks", "key", "value"))
def gradient_of_another_dtype(draw: Draw, name: str) -> Iterator[Yielded]:
    """An array of another dtype is refused, or has a gradient of that dtype."""
    for dtype, other in (("float32", "float64"), ("float32", "float16"), ("bfloat16", "float32")):
        for problem in draw.in_each_dtype(MASKED[0], dtypes=(dtype,)):
            shapes = {"bias": problem.shape, "sinks": problem.shape[-3:-2]}
            array = problem.array(*shapes[name]) if name in shapes else problem.arguments[name]
            own: dict[str, Any] = {name: array.astype(other)}
            rules = "GRAD-2", "ERR-14" if name in shapes else "ERR-1"
            misuse = replace(Misuse(name), allowed=True)
            yield Call(problem.arguments | own | cotangents(problem), rules, misuse=misuse)


@chapter.group("NUM-8", operation=_VJP, each=("transposed", "column major", "sliced"))
def strides_in_the_backward_pass(draw: Draw, layout: str) -> Iterator[Yielded]:
    """The backward pass reads all arrays with their strides."""
    for problem in draw.in_each_dtype(SHAPES[4], dtypes=("float32",)):
        own = {"bias": problem.array(*problem.shape), "mask": problem.mask()}
        given = problem.arguments | own
        yield Call(given | cotangents(problem), layout=dict.fromkeys(given, layout))


@chapter.group("ERR-13", operation=_VJP, each=("numbers", "mask", "is_causal", "scale"))
def earlier_gradients(draw: Draw, changed: str) -> Iterator[Yielded]:
    """A call after one of the same shapes with other numbers or another option has its own gradients."""
    for problem in draw.in_each_dtype(MASKED[0], dtypes=("float32",)):
        before = problem.arguments | cotangents(problem)
        if changed in OPTIONS:
            needs, own = draw_option(problem, changed)
            after = before | needs | own
        else:
            after = {name: np.flip(array) for name, array in before.items()}
        yield Calls((before, after, before), judge_each, live=True, beside=True)


@chapter.group("GRAD-18", operation=_VJP, step=3)
def nan_beside_each_option(draw: Draw) -> Iterator[Yielded]:
    """NaN in a query reaches no gradient of another query or head, whichever option the call has."""
    for index, option in enumerate(OPTIONS):
        problem = draw.problem(SHAPES[4], "float32", index)
        needs, own = draw_option(problem, option)
        clean = problem.arguments | needs | own | cotangents(problem, lse=True)
        yield Calls((clean, clean | {"query": spoil(clean["query"])}), beyond_the_head)
