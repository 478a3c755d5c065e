"""Numbers beyond the range of a dtype: where NUM-3 applies, and where any result conforms."""

from dataclasses import replace

import numpy as np
import pytest

from attnspec import Case
from attnspec.backends import load
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.judge.judge import judge_outputs
from attnspec.reference.budget.budget import budget

PORTABLE = load("numpy-portable")


def plain(query, key, value, *, scale=None, softcap=None, sinks=None, dropout_mask=None, dropout_rate=0.0):
    """A kernel in float32."""
    single = np.float32
    s = (
        query.astype(single)
        @ key.astype(single).T
        * single(query.shape[-1] ** -0.5 if scale is None else scale)
    )
    s = s if softcap is None else single(softcap) * np.tanh(s / single(softcap))
    sink = -np.inf if sinks is None else sinks.astype(single)[0]
    top = np.maximum(s.max(axis=-1, keepdims=True), sink)
    exponentials = np.exp(s - top)
    p = exponentials / (exponentials.sum(axis=-1, keepdims=True) + np.exp(sink - top))
    p = p if dropout_mask is None else p * dropout_mask / single(1 - dropout_rate)
    return (p @ value.astype(single)).astype(query.dtype)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
@pytest.mark.parametrize(
    ("dtype", "value", "options", "status"),
    [
        ("float16", 6e4, {"dropout_mask": np.ones((1, 2), bool), "dropout_rate": 0.5}, "pass"),  # the result
        ("float16", 6e4, {}, "fail"),
        ("float32", 1, {"sinks": np.array([1e39])}, "pass"),
        ("float32", 1, {"scale": 1e39, "softcap": 30.0}, "pass"),
        ("float32", 1, {"scale": 1e37}, "fail"),
        ("float32", 1, {"bias": np.full((1, 2), np.finfo(np.float32).min)}, "fail"),
    ],
)
def test_numbers_beyond_the_range_of_a_dtype(dtype, value, options, status):
    """The largest number of a dtype stands for those beyond it. Where scores overflow, nothing is judged."""
    ones = np.ones((2, 1), dtype)
    call = {"query": 0 * ones[:1], "key": ones, "value": (value * ones).astype(dtype), **options}
    backend = replace(PORTABLE, dtypes=(dtype,))
    wrong = status == "fail"
    case = Case("x", "x", "numerics", "attention", ("NUM-3",), call, {}, group="x")
    results = {"output": np.full((1, 1), np.inf, dtype) if wrong else plain(**call)}
    assert judge_outputs(backend, case, results).status == status


_LARGE, _UNITS = np.float32([[1e20, -1e20]]), np.ones((2, 2), np.float32)
#: Query and keys by a factor of the query: at 1e20, a sum of absolute values of products is out of range.
_RANGE = {"query": _LARGE, "key": np.float32([[1e20, 1e20], [1, 1]]), "value": _UNITS, "scale": 1.0}
_HEADS = {name: x if name == "scale" else x[None] for name, x in _RANGE.items()}
_SIZES = {"query": 1e19, "key": 1e-19, "value": 1e-19}
_OUT_OF_RANGE = [
    ("attention", "query", _RANGE),
    ("attention", "value", {"query": _LARGE, "key": 0 * _UNITS, "value": np.full((2, 1), 3e38, np.float32)}),
    ("attention", "key", {"query": 0 * _LARGE, "key": np.full((2, 2), 1e40), "value": _UNITS}),
    ("scores", "query", {"query": _LARGE, "key": 1e19 * _UNITS, "scale": 1e-3}),
    ("attention_vjp", "query", _RANGE | {"d_output": _UNITS[:1]}),
    (
        "attention_vjp",
        "d_output",
        _RANGE | {"query": _UNITS[:1], "key": _UNITS, "d_output": 3e38 * _UNITS[:1]},
    ),
    (
        "attention_vjp",
        "key",
        _RANGE
        | {
            "query": 0 * _LARGE,
            "key": 3e38 * _UNITS,
            "value": np.float32([[4], [0]]),
            "d_output": _UNITS[:1, :1],
        },
    ),
    ("listed_attention", "query", _RANGE | {"key_indices": np.array([[0, 1]])}),
    (
        "packed_attention",
        "query",
        _HEADS | {"query_starts": np.array([0, 1]), "key_starts": np.array([0, 2])},
    ),
    (
        "sharded_attention",
        "query",
        _HEADS | {"query_shards": np.array([0, 1]), "key_shards": np.array([0, 2])},
    ),
    ("projection", "tokens", {"tokens": _LARGE, "weight": 1e19 * _UNITS}),
    (
        "self_attention",
        "tokens",
        {"tokens": _LARGE, **{f"{name}_weight": size * _UNITS for name, size in _SIZES.items()}},
    ),
    (
        "merge_partials",
        "outputs",
        {"outputs": np.full((2, 1, 1), 3e38, np.float32), "lses": np.zeros((2, 1), np.float32)},
    ),
    (
        "indexer_scores",
        "index_query",
        {"index_query": _LARGE[None], "index_key": 1e19 * _UNITS, "index_weights": _UNITS[:1, :1]},
    ),
    ("rotary", "features", {"features": 2e38 * _UNITS, "attention_factor": 1.5, "offset": 1}),
]


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid", "ignore:divide")
@pytest.mark.parametrize(("operation", "name", "call"), _OUT_OF_RANGE)
def test_any_result_conforms_where_a_number_or_a_sum_of_any_operation_is_out_of_range(operation, name, call):
    for factor, status in ((1, "pass"), (np.float32(1e-10), "fail")):
        less = call | {name: (factor * call[name]).astype(call[name].dtype)}
        case = Case("x", "x", "numerics", operation, ("NUM-3",), less, {}, group="x")
        of, exact = next(iter(expected(case).items()))
        results = {of: np.full(np.shape(exact), np.nan, np.float32)}
        assert judge_outputs(PORTABLE, case, results).status == status


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid", "ignore:divide")
def test_disallowed_numbers_and_other_rows_are_in_range():
    """Neither a large key that the mask excludes nor a row whose scores overflow exempts another row."""
    call = _RANGE | {"query": np.concatenate([_LARGE, _UNITS[:1]]), "d_output": _UNITS}
    masked = call | {"mask": np.array([[False, True], [True, True]])}
    for operation, arguments, outside in (
        ("attention", call, [0]),
        ("attention", masked, []),
        ("attention_vjp", call, [0]),
        ("attention_vjp", masked, []),
    ):
        given = {of: x for of, x in arguments.items() if of != "d_output" or operation != "attention"}
        allowed = next(iter(budget(operation, given, "float32").values()))
        assert [*np.flatnonzero(np.isinf(allowed).all(axis=-1))] == outside
        assert np.isinf(allowed).sum() == len(outside) * allowed.shape[-1]


@pytest.mark.parametrize(
    ("got", "status"), [(np.inf, "pass"), (65504, "fail"), (-np.inf, "fail"), (np.nan, "fail")]
)
def test_a_decoded_number_beyond_the_range_is_infinite(got, status):
    call = {"scales": np.full((1, 1), 600, np.float16), "codes": np.full((1, 1), 127, np.int8)}
    case = Case("x", "x", "quantization", "dequantize", ("QUANT-1",), call, {}, group="x")
    backend = replace(PORTABLE, dtypes=("float16",))
    assert judge_outputs(backend, case, {"dequantized": np.full((1, 1), got, np.float16)}).status == status
