"""The chapter `gradients`: gradients of attention, and of what does not contribute to the output."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from attnspec.backends import DTYPES, Backend
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.comparison import same_bits
from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.relations.nan import beyond_the_head, compare_except, spoil
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.relations.rounding_bias import signed_sum
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option, segments
from attnspec.conformance.suite.problem import GROUPED, MASKED, SHAPES, Problem, Shape
from attnspec.dtypes import SHORT
from attnspec.reference.budget.budget import budget

chapter = Chapter("gradients")

_VJP = "attention_vjp"
#: Longer than tiles of 16 and 32, and no multiple of them; with one query too. Then one more than tiles
#: of 128, on either side, with depths that are longer than tiles of 16 and 64.
_TILED = (
    Shape((1, 2), 19, 35, 4, 3),
    Shape((2,), 1, 37, 4, 4),
    Shape((1,), 2, 257, 20, 13),
    Shape((1,), 257, 2, 40, 72),
)


def cotangents(problem: Problem, *, lse: bool = False) -> dict[str, NDArray[Any]]:
    """Draw cotangents of both signs for the output, and for the lse if requested."""
    cotangent = {"d_output": problem.array(*problem.shape[:-1], problem.value.shape[-1])}
    if lse:
        h = problem.array(*problem.shape[:-1])
        cotangent["d_lse"] = h.astype(lse_dtype(h.dtype.name))
    return cotangent


@chapter.group("GRAD-1", "GRAD-2", operation=_VJP)
def random_cotangents(draw: Draw) -> Iterator[Yielded]:
    """Cotangents are random, because a sum of all outputs as the loss would hide most mistakes."""
    for problem in draw.problems((*SHAPES, Shape((5, 2), 3, 4, 4, 3))):
        yield problem.arguments | cotangents(problem)


@chapter.group("GRAD-1", "SCORE-2", operation=_VJP, each=("scale", "is_causal"))
def random_cotangents_beside(draw: Draw, option: str) -> Iterator[Yielded]:
    """Cotangents are random beside a scale or a causal mask, which most implementations have."""
    for problem in draw.problems(MASKED):
        own = {"scale": problem.choice(1.5, -1.0, 0.0)} if option == "scale" else {"is_causal": True}
        rules = ("GRAD-1", "SCORE-3" if option == "scale" else "MASK-3")
        yield Call(problem.arguments | cotangents(problem) | own, rules)


@chapter.group("GRAD-1", operation=_VJP)
def one_allowed_key(draw: Draw) -> Iterator[Yielded]:
    """With one key only its value has a gradient, and query and key have gradients of 0."""
    for problem in draw.problems((SHAPES[0],)):
        given = problem.arguments | cotangents(problem)
        nothing = {f"d_{name}": np.zeros(given[name].shape) for name in ("query", "key")}
        yield Call(given, expected={**nothing, "d_value": given["d_output"].astype(np.float64)})


@chapter.group("GRAD-1", operation=_VJP)
def query_of_zeros(draw: Draw) -> Iterator[Yielded]:
    """With a query of 0 all values have the same gradient, and the keys have gradients of 0."""
    for problem in draw.problems(MASKED):
        given = problem.arguments | cotangents(problem) | {"query": np.zeros_like(problem.query)}
        share = given["d_output"].astype(np.float64).sum(axis=-2, keepdims=True) / problem.shape[-1]
        expected = {
            "d_key": np.zeros(problem.key.shape),
            "d_value": np.broadcast_to(share, problem.value.shape),
        }
        yield Call(given, expected=expected, outputs=tuple(expected))


@chapter.group("GRAD-3", "HEAD-1", operation=_VJP)
def shared_heads(draw: Draw) -> Iterator[Yielded]:
    """The gradient of a key head is the sum over its two, three or five query heads."""
    for problem in draw.problems(GROUPED, 2):
        yield problem.arguments | cotangents(problem)


@chapter.group("GRAD-6", operation=_VJP, each=("alone", "beside"))
def cotangent_of_the_lse(draw: Draw, beside: str) -> Iterator[Yielded]:
    """The cotangent of the lse changes the gradients of queries and keys, but not those of values."""
    for problem in draw.problems((*MASKED, *GROUPED)):
        cotangent = cotangents(problem, lse=True)
        if beside == "alone":
            cotangent["d_output"] = np.zeros_like(cotangent["d_output"])
        yield Call(
            problem.arguments | cotangent, ("GRAD-6",) if beside == "beside" else ("GRAD-6", "GRAD-14")
        )


@chapter.group("GRAD-14", "GRAD-6", operation=_VJP)
def loss_on_the_lse_alone(draw: Draw) -> Iterator[Yielded]:
    """The values have gradients of 0 if the cotangents of the output are 0."""
    for problem in draw.problems(MASKED):
        cotangent = cotangents(problem, lse=True)
        cotangent["d_output"] = np.zeros_like(cotangent["d_output"])
        yield Call(problem.arguments | cotangent, outputs=("d_value",))


@chapter.group("GRAD-13", operation=_VJP, each=("some", "all"))
def cotangents_of_zero(draw: Draw, rows: str) -> Iterator[Yielded]:
    """A query with cotangents of 0 has a gradient of 0, and contributes 0 to other gradients."""
    for problem in draw.problems(MASKED):
        cotangent = cotangents(problem)
        cotangent["d_output"][..., 1 if rows == "some" else slice(None), :] = 0
        yield problem.arguments | cotangent


_LAYOUTS = ("transposed", "positions first", "column major", "within", "sliced")


@chapter.group("GRAD-15", "NUM-8", operation=_VJP, each=_LAYOUTS)
def strides_of_the_cotangent(draw: Draw, layout: str) -> Iterator[Yielded]:
    """The cotangent of the output is read with its strides."""
    for problem in draw.in_each_dtype(SHAPES[4]):
        yield Call(problem.arguments | cotangents(problem), layout={"d_output": layout})


@chapter.group("GRAD-15", "NUM-8", operation=_VJP)
def cotangent_with_strides_of_zero(draw: Draw) -> Iterator[Yielded]:
    """The cotangent has a stride of 0 over heads, like the derivative of a mean over heads."""
    for problem in draw.in_each_dtype(SHAPES[4]):
        cotangent = cotangents(problem)["d_output"]
        cotangent = np.array(np.broadcast_to(cotangent[..., :1, :, :], cotangent.shape))
        yield Call(problem.arguments | {"d_output": cotangent}, layout={"d_output": "repeated"})


@chapter.group("GRAD-15", "NUM-4", operation=_VJP)
def cotangents_left_alone(draw: Draw) -> Iterator[Yielded]:
    """Inputs and cotangents have the same bytes after the call."""
    for problem in draw.in_each_dtype(MASKED[0]):
        yield Calls((problem.arguments | cotangents(problem),), _call_all, live=True, beside=True)


def _call_all(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Make the calls only. The inputs are compared in every call of the suite."""
    call(backend, calls[0].operation, calls[0].arguments)
    return None


@chapter.group("NUM-9", operation=_VJP, each=("plain", "is_causal"))
def gradients_repeated(draw: Draw, option: str) -> Iterator[Yielded]:
    """The same call gives the same gradients three times, on more than one tile."""
    for problem in draw.in_each_dtype(_TILED[0]):
        own = {"is_causal": True} if option == "is_causal" else {}
        yield Calls((problem.arguments | cotangents(problem) | own,), _repeats, live=True, beside=True)


def _repeats(backend: Backend, calls: tuple[Case, ...]) -> Found:
    first, *others = [call(backend, calls[0].operation, calls[0].arguments) for _ in range(3)]
    pairs = ((name, other) for other in others for name in first)
    return next(filter(None, (same_bits(name, other[name], first[name]) for name, other in pairs)), None)


@chapter.group("GRAD-19", "NUM-2", "NUM-5", operation=_VJP, each=("flat", "peaked", "large", "shifted"))
def every_gradient_in_its_budget(draw: Draw, kind: str) -> Iterator[Yielded]:
    """Gradients are within their budgets for weights nearly equal or near 0 and 1, and other amplitudes."""
    for index, dtype in enumerate(DTYPES):
        problem = draw.problem(
            Shape((2,), 9, 24, 8, 6), dtype, index, {"flat": 0.1, "peaked": 4.0}.get(kind, 1)
        )
        arguments = problem.arguments | cotangents(problem)
        if kind == "large":
            arguments |= {"value": arguments["value"] * 16, "d_output": arguments["d_output"] / 8}
        if kind == "shifted":  # further than exponentials reach in float32
            signs = np.where(np.arange(problem.shape[-2]) % 2, -1, 1)[:, None]
            arguments["bias"] = (128 * signs).astype(dtype)
        yield arguments


@chapter.group("GRAD-19", operation=_VJP, each=("plain", *OPTIONS))
def gradients_past_every_tile(draw: Draw, option: str) -> Iterator[Yielded]:
    """The last query and the last key count as the first do, alone and with each option."""
    for shape in _TILED:
        for problem in draw.in_each_dtype(shape, dtypes=("float32",)):
            needs, own = (
                draw_option(problem, option) if option in OPTIONS and shape is _TILED[0] else ({}, {})
            )
            if shape is _TILED[0] or option == "plain":
                yield problem.arguments | needs | own | cotangents(problem, lse=option == "sinks")


@chapter.group("GRAD-19", "GRAD-9", operation=_VJP, each=("causality", "a causal offset", "a window"), step=1)
def masked_gradients_of_many_more_keys(draw: Draw, mask: str) -> Iterator[Yielded]:
    """The queries that a tile of keys begins or ends with are found from their places among the keys."""
    for problem in draw.in_each_dtype(Shape((1,), 40, 140, 4, 3), dtypes=("float32",)):
        own: dict[str, Any] = {"window": (30, 0)} if mask == "a window" else {"is_causal": True}
        own |= {"query_offset": 100} if mask == "a causal offset" else {}
        yield problem.arguments | own | cotangents(problem)


@chapter.group("GRAD-20", operation=_VJP)
def gradients_have_no_bias(draw: Draw) -> Iterator[Yielded]:
    """With cotangents and values of one sign, rounding errors add up if they are biased."""
    for dtype in SHORT:
        random = np.random.default_rng(draw.number())
        shapes = draw.shapes(Shape((), 32, 24, 16, 16))
        arguments = {name: random.normal(size=shapes[name]).astype(dtype) for name in ("query", "key")}
        arguments["value"] = (1 + random.random(shapes["value"])).astype(dtype)
        rows = (*shapes["query"][:-1], shapes["value"][-1])
        arguments["d_output"] = (1 + random.random(rows)).astype(dtype)
        forward = {name: arguments[name] for name in ("query", "key", "value")}
        yield Calls((arguments, Call(forward, operation="attention")), _check_bias)


def _check_bias(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the summed errors of the values' gradient with the bound for unbiased rounding."""
    case, forward = calls
    weights = np.swapaxes(expected(forward)["weights"], -1, -2)
    allowed = budget(case.operation, case.arguments, case.dtype, profile=backend.profile)["d_value"]
    share = signed_sum(
        call(backend, case.operation, case.arguments)["d_value"].astype(np.float64),
        expected(case)["d_value"],
        allowed,
        dtype=case.dtype,
        cast=(weights, case.arguments["d_output"].astype(np.float64)),
    )
    return (
        f"d_value: errors of one sign add up to {share:.3g} times what chance leaves" if share > 1 else None
    )


_WIDE = SHAPES[4]  # two batch entries of three heads, five queries, seven keys
#: Ways to leave the second query of every head without a key.
_EMPTYING = ("mask", "bias", "is_causal", "window", "query_lengths", "key_lengths", "segments")


@chapter.group("GRAD-9", operation=_VJP, each=("mask", "bias", "key_lengths", "is_causal"))
def keys_that_nobody_attends_to(draw: Draw, source: str) -> Iterator[Yielded]:
    """A key that no query may attend to has a gradient of 0, whatever finite numbers it holds."""
    for problem in draw.problems(MASKED[:3]):
        keys = problem.shape[-1]
        gone = np.arange(keys) >= keys - 1
        key, value = problem.key.copy(), problem.value.copy()
        if source != "is_causal":
            key[..., gone, :] *= 1000  # at most some 4000: float16 ends at 65504
            value[..., gone, :] = -10000
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": ~gone},
            "bias": {"bias": np.where(gone, -np.inf, 0).astype(key.dtype)},
            "key_lengths": {"key_lengths": keys - 1},
            "is_causal": {"is_causal": True, "query_offset": -1},
        }
        yield problem.arguments | {"key": key, "value": value} | cotangents(problem) | options[source]


@chapter.group("GRAD-10", "MASK-6", operation=_VJP, each=_EMPTYING)
def query_that_attends_to_nothing(draw: Draw, source: str) -> Iterator[Yielded]:
    """A query that may attend to nothing has a gradient of 0, and the other gradients are not NaN."""
    for number, problem in enumerate(draw.problems((_WIDE, *MASKED[1:3]))):
        yield problem.arguments | _empty_rows(problem, source) | cotangents(problem, lse=number % 4 == 1)


def _empty_rows(problem: Problem, source: str) -> dict[str, Any]:
    """Give the options that leave at least one query without a key."""
    queries, keys = problem.shape[-2:]
    empty = np.arange(queries)[:, None] == 1
    entries = np.arange(np.prod(problem.batch, dtype=int)).reshape(problem.batch)
    options: dict[str, dict[str, Any]] = {
        "mask": {"mask": problem.mask() & ~empty},
        "bias": {"bias": np.where(empty, -np.inf, problem.array(queries, keys)).astype(problem.query.dtype)},
        "is_causal": {"is_causal": True, "query_offset": -2},
        "window": {"window": (0, 0), "query_offset": -1},
        "query_lengths": {"query_lengths": queries - 1},
        "key_lengths": {"key_lengths": np.where(entries == 0, 0, keys)},
        "segments": segments(problem),
    }
    if source == "segments":
        options[source]["query_segment_ids"][..., 1] = 3  # which no key has
    return options[source]


@chapter.group("GRAD-11", "MASK-2", operation=_VJP, each=("bias", "mask", "is_causal"))
def bias_where_the_pair_is_disallowed(draw: Draw, source: str) -> Iterator[Yielded]:
    """The gradient of the bias is 0 where the bias or another argument disallows the pair."""
    for problem in draw.problems(MASKED):
        bias, mask = problem.array(*problem.shape), problem.mask()
        options: dict[str, dict[str, Any]] = {
            "bias": {"bias": np.where(mask, bias, -np.inf).astype(bias.dtype)},
            "mask": {"bias": bias, "mask": mask},
            "is_causal": {"bias": bias, "is_causal": True},
        }
        yield problem.arguments | cotangents(problem) | options[source]


@chapter.group("GRAD-12", operation=_VJP, each=("mask", "key_lengths", "query_lengths", "bias"))
def nan_that_nobody_attends_to(draw: Draw, source: str) -> Iterator[Yielded]:
    """NaN in padding changes no gradient."""
    for problem in draw.problems((_WIDE, *MASKED[1:3])):
        queries, keys = problem.shape[-2:]
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": np.arange(keys) < keys - 1},
            "key_lengths": {"key_lengths": keys - 1},
            "query_lengths": {"query_lengths": queries - 1},
            "bias": {"bias": problem.array(*problem.shape), "query_lengths": queries - 1},
        }
        clean = problem.arguments | cotangents(problem) | options[source]
        names = {"query_lengths": ("query",), "bias": ("bias",)}.get(source, ("key", "value"))
        for number in (np.nan, np.inf):
            spoiled = {name: clean[name].copy() for name in names}
            for array in spoiled.values():
                array[..., -1, :] = number
            yield Calls((clean, clean | spoiled), _compare_with_clean)


def _compare_with_clean(backend: Backend, calls: tuple[Case, ...]) -> Found:
    return compare_except(backend, calls, {})


@chapter.group("GRAD-12", operation=_VJP, each=("query", "key", "value", "d_output", "d_lse", "bias"))
def nan_across_a_disallowed_pair(draw: Draw, name: str) -> Iterator[Yielded]:
    """NaN in a query or key does not change the gradients across a disallowed pair."""
    for problem in draw.problems((_WIDE, MASKED[2])):
        queries, keys = problem.shape[-2:]
        # The first query attends to the first two keys alone, and no other query to the first key.
        mask = (np.arange(queries)[:, None] == 0) ^ (np.arange(keys) > 0)
        mask[:, 1] = True
        clean = problem.arguments | cotangents(problem, lse=name == "d_lse") | {"mask": mask}
        clean |= {"bias": problem.array(*problem.shape)} if name == "bias" else {}
        for number in (np.nan, np.inf):
            yield Calls((clean, clean | {name: spoil(clean[name], number)}), _beyond_the_pairs)


def _beyond_the_pairs(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the gradients that depend neither on the first query nor on the keys that it attends to."""
    places = {"d_query": np.s_[0, 0, :1], "d_key": np.s_[0, 0, :2], "d_value": np.s_[0, 0, :2]}
    places |= {"d_bias": np.s_[0, 0, :1]} if "bias" in calls[0].arguments else {}
    return compare_except(backend, calls, places)


@chapter.group("GRAD-18", operation=_VJP, each=("query", "key", "value", "d_output", "d_lse"))
def nan_in_one_head(draw: Draw, name: str) -> Iterator[Yielded]:
    """NaN in one head reaches no other head or batch entry, and from a query no other query."""
    for problem in draw.problems((_WIDE, *MASKED[1:3], GROUPED[0])):
        clean = problem.arguments | cotangents(problem, lse=name == "d_lse")
        for number in (np.nan, np.inf):
            yield Calls((clean, clean | {name: spoil(clean[name], number)}), beyond_the_head)


@chapter.group("GRAD-17", operation=_VJP)
def no_silent_zero(draw: Draw) -> Iterator[Yielded]:
    """A gradient that is not computed raises an error instead of being 0 everywhere."""
    for problem in draw.problems(MASKED):
        yield Calls((problem.arguments | cotangents(problem),), _not_zero)
        for name, array in (
            ("bias", problem.array(*problem.shape)),
            ("sinks", problem.array(*problem.shape[-3:-2]) if len(problem.shape) > 2 else problem.array(1)),
        ):
            yield Calls((problem.arguments | {name: array} | cotangents(problem),), _not_zero)


def _not_zero(backend: Backend, calls: tuple[Case, ...]) -> Found:
    (case,) = calls
    values = expected(case)
    for name, got in call(backend, case.operation, case.arguments).items():
        if got.size and not got.any() and values[name].any():
            return f"{name}: expected a gradient or an error, got 0 everywhere"
    return None
