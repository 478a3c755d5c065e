"""Codes of queries, keys and values, and weights of 8 bits: the rules QUANT-10 and QUANT-11."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.conformance.suite.alone import draw_option_alone
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.problem import Problem, Shape
from attnspec.conformance.suite.quantization import (
    ENCODINGS,
    GROUPED,
    PLAIN,
    TILED,
    draw_codes,
    draw_scales,
    shape_of_scales,
    with_signs,
)
from attnspec.dtypes import SHORT

chapter = Chapter("quantization")

_LOW_PRECISION = "low_precision_attention"
#: The options; first those that may be applied in the wrong order to a scale, or that change weights.
_FIRST = ("scale", "softcap", "bias", "is_causal", "key_lengths", "sinks", "dropout", "positions")
_OPTIONS = (*_FIRST, *(name for name in OPTIONS if name not in _FIRST))
_NAMES = ("query", "key", "value")


def _low_precision_call(problem: Problem, encoding: str, granularity: str = "head") -> dict[str, Any]:
    arguments: dict[str, Any] = {"encoding": encoding}
    for name in _NAMES:
        shape = problem.arguments[name].shape
        own = shape_of_scales(shape, granularity)
        arguments[f"{name}_codes"] = draw_codes(problem.random, encoding, shape)
        arguments[f"{name}_scales"] = draw_scales(problem.random, encoding, own, str(problem.query.dtype))
    return arguments


@chapter.group("QUANT-10", operation=_LOW_PRECISION, each=ENCODINGS)
def codes_throughout(draw: Draw, encoding: str) -> Iterator[Yielded]:
    """Queries, keys and values are codes, with a scale for each head or each token, in each dtype."""
    for index, shape in enumerate((PLAIN, GROUPED)):
        for problem in draw.in_each_dtype(shape, index=index):
            yield _low_precision_call(problem, encoding, ("head", "token")[index])


@chapter.group("QUANT-10", "QUANT-5", operation=_LOW_PRECISION, each=("channel", "block of features"))
def scales_of_features_throughout(draw: Draw, granularity: str) -> Iterator[Yielded]:
    """Scales depend on the feature, so that they are no factor of the scores."""
    for problem in draw.problems((GROUPED,)):
        yield _low_precision_call(problem, "e4m3fn", granularity)


@chapter.group("QUANT-10", operation=_LOW_PRECISION, each=ENCODINGS[1:-1])
def codes_of_signed_bytes_throughout(draw: Draw, encoding: str) -> Iterator[Yielded]:
    """The arrays of codes have a signed dtype, so half of the codes are negative numbers."""
    for problem in draw.problems((PLAIN,)):
        call = _low_precision_call(problem, encoding)
        yield call | {name: x.view(np.int8) for name, x in call.items() if name.endswith("_codes")}


@chapter.group("QUANT-10", operation=_LOW_PRECISION, each=_NAMES)
def scales_of_any_sign_throughout(draw: Draw, name: str) -> Iterator[Yielded]:
    """Some scales of tokens are negative, and one is 0."""
    for problem in draw.problems((PLAIN,)):
        call = _low_precision_call(problem, "e4m3fn", "token")
        yield call | {f"{name}_scales": with_signs(call[f"{name}_scales"])}


@chapter.group("QUANT-10", operation=_LOW_PRECISION, each=_OPTIONS)
def options_beside_codes_throughout(draw: Draw, option: str) -> Iterator[Yielded]:
    """Options of attention have their effect on decoded arrays."""
    encoding = ENCODINGS[_OPTIONS.index(option) % len(ENCODINGS)]
    for problem in draw.problems((PLAIN,)):
        needs, own = draw_option(problem, option)
        yield Call(
            _low_precision_call(problem, encoding, "token") | needs | own, ("QUANT-10", OPTIONS[option].rule)
        )


@chapter.group(
    "QUANT-10", operation=_LOW_PRECISION, each=("dropout_rate", "query_positions", "key_positions")
)
def alone_beside_codes_throughout(draw: Draw, name: str) -> Iterator[Yielded]:
    """An argument acts beside what it needs and nothing else."""
    problem = draw.problem(PLAIN, "float32")
    codes = _low_precision_call(problem, "int8", "token")
    call = draw_option_alone(problem, _LOW_PRECISION, name, codes)
    yield replace(call, rules=("QUANT-10", *call.rules))


@chapter.group("SOFT-8", "QUANT-10", operation=_LOW_PRECISION)
def maximum_beside_codes_throughout(draw: Draw) -> Iterator[Yielded]:
    """The maximum is that of the scores of decoded queries and keys."""
    for problem in draw.problems((PLAIN, GROUPED)):
        call = _low_precision_call(problem, "e4m3fn", "token")
        yield Call(call | {"return_max": True}, outputs=("output", "max"))


@chapter.group("QUANT-10", operation=_LOW_PRECISION)
def codes_throughout_of_many_keys(draw: Draw) -> Iterator[Yielded]:
    """There are more keys than a tile of 16 or 64 holds, or as many, and one query or many."""
    for index, problem in enumerate(draw.problems(TILED)):
        yield _low_precision_call(problem, ENCODINGS[1 + index % 2], "token")


@chapter.group("QUANT-11", "QUANT-10", operation=_LOW_PRECISION)
def flat_rows_of_many_keys(draw: Draw) -> Iterator[Yielded]:
    """All weights of a row are near 1/300, below most numbers of 8 bits, and values have one sign."""
    for problem in draw.in_each_dtype(Shape((), 3, 300, 4, 4), dtypes=SHORT):
        arguments = _low_precision_call(problem, "e4m3fn")
        arguments["value_codes"] = arguments["value_codes"] & 0x7F
        arguments["query_scales"] = arguments["query_scales"] / 64
        yield arguments


@chapter.group("QUANT-11", "QUANT-10", operation=_LOW_PRECISION)
def rows_with_a_late_maximum(draw: Draw) -> Iterator[Yielded]:
    """Scores rise with the key, so that weights are computed against maxima that later keys exceed."""
    for problem in draw.in_each_dtype(Shape((), 3, 48, 4, 4), dtypes=SHORT):
        arguments = _low_precision_call(problem, "e4m3fn")
        rising = (np.arange(48) / 8).astype(np.float64)[:, None] * np.ones(4)
        codes = rising.astype("float8_e4m3fn").view(np.uint8)
        arguments |= {"key_codes": codes, "key_scales": np.ones((1, 1), problem.query.dtype)}
        arguments["query_codes"] = np.full((3, 4), 0x30, np.uint8)  # 0.5
        arguments["query_scales"] = np.array([[0.5], [1], [2]], problem.query.dtype)
        yield arguments


@chapter.group("QUANT-11", "QUANT-10", operation=_LOW_PRECISION)
def rows_of_a_large_key_and_many_small_ones(draw: Draw) -> Iterator[Yielded]:
    """One key has a weight of about a half, and the others share the rest, with values of one sign."""
    for problem in draw.in_each_dtype(Shape((), 2, 400, 1, 4), dtypes=SHORT):
        arguments = _low_precision_call(problem, "e4m3fn") | {"scale": 1.0}
        keys = np.full((400, 1), 0x00, np.uint8)
        keys[133] = 0x4C  # 6, and exp(6) is about 403
        values = np.full((400, 4), 0x40, np.uint8)  # 2
        values[133] = 0xB8  # -1
        one = np.ones((1, 1), problem.query.dtype)
        arguments |= {"query_codes": np.full((2, 1), 0x38, np.uint8), "query_scales": one}
        yield arguments | {"key_codes": keys, "value_codes": values, "key_scales": one, "value_scales": one}


@chapter.group("QUANT-11", "QUANT-10", operation=_LOW_PRECISION)
def equal_weights_between_two_numbers(draw: Draw) -> Iterator[Yielded]:
    """All 228 weights are equal and 256 times as large just below 1.125, and values have one sign."""
    for problem in draw.in_each_dtype(Shape((), 2, 228, 4, 4), dtypes=SHORT):
        arguments = _low_precision_call(problem, "e4m3fn")
        arguments["key_codes"] = np.zeros((228, 4), np.uint8)
        arguments["value_codes"] = arguments["value_codes"] & 0x7F
        yield arguments


#: How much larger the scales of keys or values are that come after a query, or after the length.
_AHEAD = {"key": 2.0**7, "value": 2.0**14}


@chapter.group(
    "QUANT-16", "QUANT-10", operation=_LOW_PRECISION, each=("key, causal", "value, causal", "key", "value")
)
def scales_that_look_ahead(draw: Draw, which: str) -> Iterator[Yielded]:
    """Keys or values that no early query may attend to are far larger than the others of their block."""
    name = which.partition(",")[0]
    for problem in draw.in_each_dtype(Shape((2,), 40, 48, 4, 4), dtypes=(*SHORT, "float32")):
        arguments = _low_precision_call(problem, "e4m3fn", "token")
        # Of one sign, and not NaN: scores of large keys are large, and few weights are near each other.
        arguments |= {f"{own}_codes": arguments[f"{own}_codes"] & 0x37 for own in _NAMES}
        small = arguments[f"{name}_scales"] / 8
        late = np.arange(small.shape[-2])[:, None] >= 24
        arguments[f"{name}_scales"] = np.where(late, small * _AHEAD[name], small).astype(small.dtype)
        masked = {"is_causal": True} if which.endswith("causal") else {"key_lengths": 24}
        rules = ("QUANT-16", "QUANT-10", "MASK-3" if "is_causal" in masked else "MASK-9")
        yield Call(arguments | masked, rules, outputs=("output", "lse"))
