"""The chapter `gradients`: gradients of merging, rotary embedding and multi-head attention."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.suite.alone import draw_acting
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.heads import ALONE, as_deep_and_long, draw_bias_of, tokens_and_weights
from attnspec.conformance.suite.options import positions
from attnspec.conformance.suite.problem import MASKED, Problem, Shape, grid
from attnspec.dtypes import DTYPES

chapter = Chapter("gradients")

_MERGE, _ROTARY = "merge_partials_vjp", "rotary_vjp"
#: Parts, batch axes with heads, queries, depth: as many parts as heads among them, and one part alone.
_PARTS = (
    (3, (2,), 4, 3),
    (2, (2, 2), 3, 2),
    (4, (1,), 2, 5),
    (1, (2,), 2, 4),
    (3, (), 5, 1),
    (3, (3,), 3, 3),
)
#: How far from 0 lses lie: the exponential of the second overflows, that of the third is 0.
_SHIFTS = {"near 0": 0, "far above": 10000, "far below": -10000}
#: Batch axes with heads, positions and depth.
_FEATURES = ((2, 3, 5, 8), (2, 1, 4, 6), (3, 2), (1, 2, 2, 3, 4))
_BASES = (10000.0, 2.0, 100.0)


def _parts(random: np.random.Generator, dtype: str, index: int, *, lse: bool = True) -> dict[str, Any]:
    """Draw parts and the cotangents of the merged results."""
    count, outer, queries, depth = _PARTS[index % len(_PARTS)]
    rows, of_lse = (*outer, queries), lse_dtype(dtype)
    arguments = {
        "outputs": grid(random, (count, *rows, depth), 1.0).astype(dtype),
        "lses": grid(random, (count, *rows), 2.0).astype(of_lse),
        "d_output": grid(random, (*rows, depth), 1.0).astype(dtype),
    }
    return arguments | ({"d_lse": grid(random, rows, 1.0).astype(of_lse)} if lse else {})


@chapter.group("GRAD-21", "GRAD-2", operation=_MERGE, each=("output", "output and lse"))
def parts_of_a_merged_row(draw: Draw, beside: str) -> Iterator[Yielded]:
    """Each part has its share of the cotangents, in its own dtype, with and without one of the lse."""
    for index, (random, dtype) in enumerate(draw.generators(10)):
        yield _parts(random, dtype, index // 2, lse=beside != "output")


@chapter.group("GRAD-21", operation=_MERGE)
def loss_on_the_merged_lse_alone(draw: Draw) -> Iterator[Yielded]:
    """The outputs have gradients of 0, and each lse has its share of the cotangent."""
    for index, (random, dtype) in enumerate(draw.generators(10)):
        arguments = _parts(random, dtype, index // 2)
        yield arguments | {"d_output": np.zeros_like(arguments["d_output"])}


@chapter.group("GRAD-21", "CACHE-7", operation=_MERGE, each=(0.0, 5.0, np.nan))
def parts_with_nothing_to_pass_on_to(draw: Draw, poison: float) -> Iterator[Yielded]:
    """One part is empty, or several, or in one row all of them, whatever their outputs hold."""
    for index, (random, dtype) in enumerate(draw.generators(8)):
        arguments = _parts(random, dtype, index // 2)
        empty = random.random(arguments["lses"].shape) < 0.4
        empty[..., 1] = True
        arguments["lses"][empty] = -np.inf
        arguments["outputs"][empty] = poison
        yield arguments


@chapter.group("GRAD-21", operation=_MERGE, each=tuple(_SHIFTS))
def lses_far_from_each_other(draw: Draw, shift: str) -> Iterator[Yielded]:
    """Parts with shares near 0 and 1, by lses near 0 and far from it."""
    for index, (random, dtype) in enumerate(draw.generators(8)):
        arguments = _parts(random, dtype, index // 2)
        yield arguments | {"lses": (8 * arguments["lses"] + _SHIFTS[shift]).astype(arguments["lses"].dtype)}


@chapter.group("GRAD-21", operation=_MERGE)
def parts_that_are_the_same(draw: Draw) -> Iterator[Yielded]:
    """Equal parts have equal shares of the cotangents, and the lses have no gradient from the output."""
    for index, (random, dtype) in enumerate(draw.generators(10)):
        arguments = _parts(random, dtype, index // 2)
        same = {
            name: np.array(np.broadcast_to(arguments[name][:1], arguments[name].shape))
            for name in ("outputs", "lses")
        }
        count = len(arguments["lses"])
        expected = {
            f"d_{name}": np.broadcast_to(arguments[of].astype(np.float64) / count, arguments[name].shape)
            for name, of in (("outputs", "d_output"), ("lses", "d_lse"))
        }
        yield Call(arguments | same, expected=expected)


def _cotangents(random: np.random.Generator, dtype: str, index: int) -> dict[str, Any]:
    """Draw features, whose values do not matter, and the cotangent of the rotated features."""
    shape = _FEATURES[index % len(_FEATURES)]
    return {name: grid(random, shape, 1.0).astype(dtype) for name in ("features", "d_rotated")}


@chapter.group("GRAD-22", "POS-1", "GRAD-2", operation=_ROTARY, each=("half-split", "interleaved"))
def turned_back(draw: Draw, layout: str) -> Iterator[Yielded]:
    """A cotangent is turned by the negative angle, in both layouts and for several bases."""
    rules = ("GRAD-22", "POS-3" if layout == "interleaved" else "POS-2", "POS-1", "GRAD-2")
    for index, (random, dtype) in enumerate(draw.generators(10)):
        own = {"interleaved": True} if layout == "interleaved" else {}
        yield Call(
            _cotangents(random, dtype, index // 2) | own | {"base": _BASES[index // 2 % len(_BASES)]}, rules
        )


@chapter.group("GRAD-22", "POS-4", operation=_ROTARY, each=("half-split", "interleaved"))
def cotangents_past_the_rotary_depth(draw: Draw, layout: str) -> Iterator[Yielded]:
    """Cotangents past the rotary depth keep their bits, and the others rotate by the angles of this depth."""
    for index, (random, dtype) in enumerate(draw.generators(10)):
        arguments = _cotangents(random, dtype, index // 2)
        depth = max(2, arguments["features"].shape[-1] - 2)
        own: dict[str, Any] = {"rotary_depth": depth, "offset": 3}
        rules: tuple[str, ...] = ("GRAD-22", "POS-4", "POS-5")
        if layout == "interleaved":
            own["interleaved"], rules = True, (*rules, "POS-3")
        yield Call(arguments | own, rules)


@chapter.group("GRAD-22", "POS-5", operation=_ROTARY, each=("one", "each its own"))
def turned_back_from_an_offset(draw: Draw, offset: str) -> Iterator[Yielded]:
    """The offset is one for all or one for each batch entry, far along or before the beginning."""
    for index, (random, dtype) in enumerate(draw.generators(10)):
        arguments = _cotangents(random, dtype, index // 2)
        low, high = ((-3, 4), (100, 1000))[index // 2 % 2]
        batch = arguments["features"].shape[:-3]
        own = offset == "each its own" and batch
        yield arguments | {
            "offset": random.integers(low, high, batch) if own else int(random.integers(low, high))
        }


@chapter.group("GRAD-22", "POS-14", operation=_ROTARY, each=("half-split", "interleaved"))
def turned_back_with_a_factor(draw: Draw, layout: str) -> Iterator[Yielded]:
    """The factor of rotated features multiplies their cotangents, and none past the rotary depth."""
    rules: tuple[str, ...] = ("GRAD-22", "POS-14", "POS-5", "POS-4")
    more = {"interleaved": True} if layout == "interleaved" else {}
    rules = (*rules, "POS-3") if more else rules
    for index, (random, dtype) in enumerate(draw.generators(3)):
        own = {"attention_factor": (1.25, 0.3, -2.0)[index // 2], "offset": 2, "rotary_depth": 2}
        yield Call(_cotangents(random, dtype, index // 2) | own | more, rules)


_ALIBI = "alibi_bias_vjp"


def _of_bias(problem: Problem) -> dict[str, Any]:
    """Draw slopes, a cotangent, and queries and keys, whose numbers do not matter."""
    heads = problem.query.shape[-3] if problem.query.ndim > 2 else 1
    slopes = np.round(problem.random.normal(size=heads) * 2**16) / 2**16
    return {
        "query": problem.query,
        "key": problem.key,
        "d_bias": problem.array(*problem.shape),
        "slopes": slopes.astype(lse_dtype(str(problem.query.dtype))),
    }


def _slopes(draw: Draw, *shapes: Shape, dtypes: tuple[str, ...] = tuple(DTYPES)) -> Iterator[dict[str, Any]]:
    for index, shape in enumerate(shapes):
        yield from map(_of_bias, draw.in_each_dtype(shape, dtypes=dtypes, index=index))


@chapter.group("GRAD-25", "GRAD-2", operation=_ALIBI, each=(1, 2, 3, 6, 8))
def slopes_of_heads(draw: Draw, heads: int) -> Iterator[Yielded]:
    """Each slope collects from all pairs of its head and from all batch entries, whatever the slopes are."""
    yield from _slopes(draw, Shape((3, heads), 3, 4, 2, 2), Shape((heads,), 5, 2, 2, 2))


@chapter.group("GRAD-25", "POS-8", operation=_ALIBI, each=("one", "each its own", "far"))
def slopes_from_an_offset(draw: Draw, offset: str) -> Iterator[Yielded]:
    """Distances are counted from the queries' positions, also where there are fewer key heads."""
    offsets = {"one": 3, "each its own": np.array([2, -4]), "far": 100_003}
    for call in _slopes(draw, Shape((2, 6), 3, 5, 2, 2, groups=3)):
        yield call | {"query_offset": offsets[offset]}


@chapter.group("GRAD-25", "POS-8", "MASK-14", operation=_ALIBI, each=("queries", "keys", "both"))
def slopes_at_positions(draw: Draw, of: str) -> Iterator[Yielded]:
    """The distance is that of the positions that are given, a negative one like any other."""
    for problem in draw.problems(MASKED):
        drawn = positions(problem)
        names = {"queries": ("query_positions",), "keys": ("key_positions",)}.get(of, tuple(drawn))
        yield _of_bias(problem) | {name: drawn[name] for name in names}


@chapter.group("GRAD-25", "POS-8", operation=_ALIBI, each=("queries", "keys", "batch entries"))
def slopes_of_many_pairs(draw: Draw, many: str) -> Iterator[Yielded]:
    """The sum runs over more than a tile holds, and no order of it changes it beyond the budget."""
    sizes = {"queries": ((2,), 131, 17), "keys": ((2,), 17, 131), "batch entries": ((33, 2), 3, 5)}
    outer, queries, keys = sizes[many]
    yield from _slopes(draw, Shape(outer, queries, keys, 2, 2), dtypes=("float32", "bfloat16"))


@chapter.group("GRAD-25", "GRAD-13", operation=_ALIBI, each=("zero", "causal", "one head"))
def slopes_of_masked_pairs(draw: Draw, what: str) -> Iterator[Yielded]:
    """Pairs with a cotangent of 0 add nothing. Arrays of two axes have one slope."""
    shape = Shape((), 3, 5, 2, 2) if what == "one head" else Shape((2, 3), 3, 5, 2, 2)
    for call in _slopes(draw, shape, dtypes=("float32", "float16")):
        g = call["d_bias"]
        masked = {"zero": 0 * g, "causal": np.tril(g, 1), "one head": g}[what]
        yield Call(call | {"d_bias": masked}, ("GRAD-25", "SHAPE-2" if what == "one head" else "GRAD-13"))


@chapter.group("GRAD-25", "GRAD-15", operation=_ALIBI, each=("transposed", "reversed", "sliced"))
def slopes_from_strides(draw: Draw, layout: str) -> Iterator[Yielded]:
    """The cotangent of the bias is read with its strides."""
    for call in _slopes(draw, Shape((2, 3), 3, 5, 2, 2), dtypes=("float32", "float16")):
        yield Call(call, layout={"d_bias": layout})


_VJP = "multi_head_attention_vjp"
_PROJECTIONS = ("query", "key", "value", "output")
#: What is given beside the arrays, and the rules on it.
_OPTIONS = {
    "scale": ("SCORE-3",),
    "is_causal": ("MASK-3",),
    "mask": ("MASK-1",),
    "biases": ("PROJ-3",),
}


def _draw(
    random: np.random.Generator, dtype: str, heads: int, key_heads: int, **sizes: int
) -> dict[str, Any]:
    """Draw tokens, weights and the cotangent of the output."""
    arguments = tokens_and_weights(random, dtype, heads, key_heads, **sizes)
    rows = (*arguments["tokens"].shape[:-1], arguments["output_weight"].shape[-1])
    return arguments | {"d_output": grid(random, rows, 1.0).astype(dtype)}


def _biases(random: np.random.Generator, arguments: dict[str, Any]) -> dict[str, Any]:
    """Draw a bias for each weight."""
    return {
        f"{name}_bias": grid(random, weight.shape[-1:], 1.0).astype(weight.dtype)
        for name in _PROJECTIONS
        for weight in (arguments[f"{name}_weight"],)
    }


@chapter.group("GRAD-23", "GRAD-2", "HEAD-6", operation=_VJP, each=(4, 2, 1))
def through_all_projections(draw: Draw, key_heads: int) -> Iterator[Yielded]:
    """The tokens have the sum of the gradients of queries, keys and values."""
    for random, dtype in draw.generators(9):
        yield _draw(random, dtype, 4, key_heads)


@chapter.group("GRAD-23", "HEAD-7", operation=_VJP, each=(4, 5))
def through_a_memory(draw: Draw, depth: int) -> Iterator[Yielded]:
    """Keys and values contribute to the gradient of the memory, but not to that of the tokens."""
    for random, dtype in draw.generators(9):
        yield _draw(random, dtype, 2, 2, memory=depth)


@chapter.group("GRAD-23", "HEAD-7", "MASK-3", operation=_VJP)
def through_a_memory_of_the_shape_of_tokens(draw: Draw) -> Iterator[Yielded]:
    """A memory has the shape of the tokens, and the call is causal: only the values tell them apart."""
    for random, dtype in draw.generators(2):
        yield as_deep_and_long(_draw(random, dtype, 2, 2, memory=5))


@chapter.group("GRAD-23", "PROJ-7", operation=_VJP, each=(4, 2))
def through_linear_layers(draw: Draw, key_heads: int) -> Iterator[Yielded]:
    """The gradient of a weight is transposed like the weight, also if the weight is square."""
    for index, (random, dtype) in enumerate(draw.generators(9)):
        arguments = _draw(random, dtype, 4, key_heads, width=8 if index // 2 % 2 else 5)
        own = _biases(random, arguments)
        for name in _PROJECTIONS:
            arguments[f"{name}_weight"] = np.ascontiguousarray(arguments[f"{name}_weight"].T)
        yield Call(arguments | own | {"convention": "linear"}, ("GRAD-23", "PROJ-7", "PROJ-3"))


@chapter.group("GRAD-23", operation=_VJP, each=tuple(_OPTIONS))
def through_multi_head_attention_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option of the forward pass counts in the backward pass, and biases have gradients."""
    for index, (random, dtype) in enumerate(draw.generators(9)):
        heads, memory = (4, 4) if index // 2 % 2 else (3, 0)
        arguments = _draw(random, dtype, heads, heads, memory=memory)
        keys = 6 if memory else 3
        mask = random.random((2, heads, 3, keys)) < 0.7
        mask[..., 0] = True
        own: dict[str, dict[str, Any]] = {
            "scale": {"scale": (0.5, -1.0)[index // 2 % 2]},
            "is_causal": {"is_causal": True},
            "mask": {"mask": mask},
            "biases": _biases(random, arguments),
        }
        rules = (*_OPTIONS[option], *(("HEAD-7",) if memory else ()))
        yield Call(arguments | own[option], ("GRAD-23", *rules))


@chapter.group("GRAD-23", "PROJ-3", "PROJ-7", operation=_VJP, each=(*ALONE[:2], "convention"))
def through_multi_head_attention_with_alone(draw: Draw, name: str) -> Iterator[Yielded]:
    """One bias acts, or the convention of square weights, and no other option is given."""

    def make(random: np.random.Generator, dtype: str) -> dict[str, Any]:
        if name != "convention":
            arguments = _draw(random, dtype, 2, 2)
            return arguments | draw_bias_of(random, arguments, name)
        names = ("tokens", "d_output", *(f"{own}_weight" for own in _PROJECTIONS))
        arrays = {own: grid(random, (4, 4), 0.5).astype(dtype) for own in names}
        return arrays | {"heads": 2, "convention": "linear"}

    rule = "PROJ-7" if name == "convention" else "PROJ-3"
    yield from draw_acting(draw, _VJP, name, make, "GRAD-23", rule)


@chapter.group("GRAD-23", operation=_VJP, each=("square", "as many tokens as features"))
def through_multi_head_attention_of_one_width(draw: Draw, sizes: str) -> Iterator[Yielded]:
    """Tokens, heads and output have the same width, so no shape shows that a gradient is transposed."""
    width = 6 if sizes == "square" else 4
    for random, dtype in draw.generators(9):
        count = 3 if sizes == "square" else width
        arguments: dict[str, Any] = {
            name: grid(random, (2, count, width), 0.5).astype(dtype) for name in ("tokens", "d_output")
        }
        for name in _PROJECTIONS:
            arguments[f"{name}_weight"] = grid(random, (width, width), 0.5).astype(dtype)
        yield Call(arguments | _biases(random, arguments) | {"heads": 2}, ("GRAD-23", "PROJ-3"))
