"""The chapter `numerics`: numbers of companions far from those of most calls, and unread integers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend
from attnspec.case import Misuse
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_dtype, lse_dtype
from attnspec.conformance.judge.failure import Raised
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.drawn_stacks import Arguments
from attnspec.conformance.suite.faults import fitting, with_needs
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import SHAPES, grid
from attnspec.conformance.suite.whole_calls import draw_with
from attnspec.dtypes import DTYPES, FORMATS

chapter = Chapter("numerics")

#: How far the lses of four parts lie below the first, and how far they all lie from 0.
_BELOW = {"8 apart": (0, 8, 16, 24), "equal": (0, 0, 0, 0), "40 apart": (0, 40, 30, 20)}
_FAR = {"8 apart": 0, "equal": -40000, "40 apart": 65536}


@chapter.group("CACHE-6", operation="merge_partials", each=tuple(_BELOW))
def lses_far_apart(draw: Draw, apart: str) -> Iterator[Yielded]:
    """Parts with small shares, which float64 holds, and lses past the range of float16."""
    below = np.array(_BELOW[apart], np.float64)[:, None]
    for index, dtype in enumerate(DTYPES):
        random = np.random.default_rng(draw.number(index))
        lses = _FAR[apart] - below + grid(random, (4, 3), 1.0)
        yield {
            "outputs": grid(random, (4, 3, 5), 1.0).astype(dtype),
            "lses": lses.astype(lse_dtype(dtype)),
        }


@chapter.group("ERR-1", operation="merge_partials")
def finer_lses(draw: Draw) -> Iterator[Yielded]:
    """Lses of float64 beside other outputs are refused, or taken at their values."""
    for dtype in ("float32", "bfloat16"):
        random = np.random.default_rng(draw.number())
        outputs = grid(random, (3, 4, 5), 2.0).astype(dtype)
        lses = 300000 + grid(random, (3, 4), 1.0) + 2.0**-7
        yield Call({"outputs": outputs, "lses": lses}, misuse=replace(Misuse("lses"), allowed=True))


#: Arguments of positions at numbers that are falsy or small, by operation and rule.
_SMALL: Mapping[tuple[str, str], Arguments] = {
    ("rotary", "POS-14"): {"attention_factor": 0.0, "positions": np.arange(3)},
    ("rotary", "POS-1"): {"base": 0.5, "positions": np.arange(3)},
    ("rotary_frequencies", "POS-24"): {"scaling": "llama3", "factor": 0.5, "original_length": 64},
}


@chapter.group("NUM-3", each=tuple(_SMALL))
def small_numbers_of_positions(draw: Draw, of: tuple[str, str]) -> Iterator[Yielded]:
    """A factor of 0, and a base and a factor below 1, are used as they are."""
    operation, rule = of
    random = np.random.default_rng(draw.number())
    for dtype in ("float32", "float16"):
        call = {"features": grid(random, (2, 3, 16), 1.0).astype(dtype), **_SMALL[of]}
        yield Call(call, (rule,), operation=operation)


@chapter.group("QUANT-1", operation="dequantize")
def decoded_numbers_past_the_largest(_draw: Draw) -> Iterator[Yielded]:
    """A product past the largest number of float32 or float64 is infinite."""
    for dtype in ("float32", "float64"):
        scales = np.array([FORMATS[dtype].largest / 64], dtype)
        yield {"scales": scales, "codes": np.array([[63, -63, 100, -100]], np.int8)}


@chapter.group("QUANT-2", operation="dequantize")
def large_zero_points(_draw: Draw) -> Iterator[Yielded]:
    """Zero points past 16 bits, and past the integers that float32 holds."""
    for dtype, zero in (("float32", 70000), ("float64", 2**26 + 1)):
        codes = np.array([[-128, 0, 127]], np.int8)
        yield {"scales": np.array([2.0**-8], dtype), "codes": codes, "zero_points": np.array([zero])}


@chapter.group("PAGE-6", "PAGE-3", operation="paged_attention", each=("padding", "entries"))
def integers_past_every_key(draw: Draw, which: str) -> Iterator[Yielded]:
    """A left padding above the length leaves no key, and an entry that is not read holds any integer."""
    for index, dtype in enumerate(("float32", "float16")):
        call = draw_with(draw, "paged_attention", dtype, index=index)
        lengths, size = call["key_lengths"], call["key_pages"].shape[-2]
        last = np.arange(call["block_table"].shape[-1]) * size >= np.reshape(lengths, (-1, 1))
        if which == "padding":
            padding = np.zeros(len(call["block_table"]), np.int64)
            padding[0] = np.reshape(lengths, -1)[0] + 1
            yield Call(call | {"left_padding": padding}, ("PAGE-6",))
        else:
            yield Call(call | {"block_table": np.where(last, 2**40, call["block_table"])}, ("PAGE-3",))


@chapter.group("GRAD-22", each=("rotary_frequencies", "rotary_vjp", "alibi_bias", "alibi_bias_vjp"))
def numbers_of_which_the_shape_counts(_draw: Draw, operation: str) -> Iterator[Yielded]:
    """Arrays of which only the shape and the dtype count may hold NaN."""
    form = OPERATIONS[operation]
    names = [name for name in ("features", "query", "key") if name in form.arrays]
    for dtype in ("float32", "bfloat16"):
        call = {
            name: x.astype(lse_dtype(dtype) if name == "slopes" else dtype)
            for name, x in fitting(operation).items()
        }
        spoiled = {name: np.full_like(call[name], np.nan) for name in names}
        yield Call(call | spoiled, (form.results[0].rule,), operation=operation)


_OF_LENGTHS = {"key_lengths": "MASK-9", "query_lengths": "MASK-10"}


@chapter.group("ERR-9", each=tuple(_OF_LENGTHS))
def lengths_out_of_range(draw: Draw, name: str) -> Iterator[Yielded]:
    """A length below 0 or past the axis is refused, or excludes every position or none."""
    for problem in draw.in_each_dtype(SHAPES[4], dtypes=("float32", "bfloat16")):
        most = problem.shape[-1 if name == "key_lengths" else -2]
        lengths = np.array([-1, most + 2] * 4)[: problem.shape[0]]
        rules = _OF_LENGTHS[name], "ERR-9"
        calls = (Call(problem.arguments | {name: x}, rules) for x in (lengths, np.clip(lengths, 0, most)))
        yield Calls(tuple(calls), _judge_as_clipped, rules, live=True)


def _judge_as_clipped(backend: Backend, cases: tuple[Case, ...]) -> Found:
    """Judge the results of the first call, if it has any, by the values of the second."""
    from attnspec.conformance.judge.judge import judge_outputs

    first, second = cases
    try:
        outputs = call(backend, first.operation, first.arguments)
    except Raised:
        return None
    verdict = judge_outputs(backend, second, outputs)
    return None if verdict.status == "pass" else verdict


#: Calls that must be rejected: the operation, the rule, the argument at fault, and what is given.
_REFUSED: tuple[tuple[str, str, str, Arguments], ...] = (
    ("rotary_frequencies", "POS-25", "original_length", {
        "scaling": "longrope", "factor": 0.5, "original_length": 1, "length": 2,
        "short_factors": np.ones(2), "long_factors": np.ones(2)}),
    ("rotary_frequencies", "POS-25", "base", {
        "scaling": "yarn", "factor": 2.0, "original_length": 64, "base": 0.5}),
    ("append_cache", "CACHE-2", "lengths", {"new": np.ones((2, 2, 0, 4)), "lengths": -1}),
    ("append_cache", "CACHE-2", "lengths", {"new": np.ones((2, 2, 0, 4)), "lengths": 5}),
)  # fmt: skip


@chapter.group("ERR-16")
def refused_in_calls_with_little_else(_draw: Draw) -> Iterator[Yielded]:
    """Parameters of a scaling out of range, a length out of a cache to which nothing is added, and others."""
    refused = [(*call[:3], fitting(call[0]) | call[3]) for call in _REFUSED]
    known = OPERATIONS["rotary"].arguments
    table = fitting("rotary") | with_needs("rotary", known["cosines"])
    refused += [("rotary", "POS-6", "rotary_depth", table | {"rotary_depth": 6})]
    refused += [("rotary", "POS-14", "attention_factor", table | {"attention_factor": float("inf")})]
    for operation, rule, argument, given in refused:
        yield Call(in_dtype(given, "float32"), (rule,), operation=operation, misuse=Misuse(argument))
