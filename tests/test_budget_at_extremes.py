"""Budgets of large errors and underflow, and numbers beyond the range of a dtype (NUM-3)."""

from dataclasses import replace

import numpy as np
import pytest
from tests_support import own_case

from attnspec.backends import load
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.judge.judge import judge_outputs
from attnspec.reference import attention_vjp
from attnspec.reference.budget.budget import budget
from attnspec.reference.rational.evaluate import evaluate

single = np.float32


def forward(query, key, value, scale=None, softcap=None, *, folds=False):
    """A plain kernel, without an option that changes its arithmetic, and its weights."""
    scale = query.dtype.type(query.shape[-1] ** -0.5 if scale is None else scale)
    s = (query * scale) @ key.T if folds else (query @ key.T) * scale
    s = s if softcap is None else query.dtype.type(softcap) * np.tanh(s / query.dtype.type(softcap))
    top = s.max(axis=-1, keepdims=True)
    exponentials = np.exp(s - top)
    total = exponentials.sum(axis=-1, keepdims=True)
    p = exponentials / total
    return {"output": p @ value, "lse": (top + np.log(total))[:, 0], "weights": p, "max": top[:, 0]}


def backward(query, key, value, d_output):
    p, scale = forward(query, key, value)["weights"], single(query.shape[-1] ** -0.5)
    r = d_output @ value.T
    of_scores = p * (r - (p * r).sum(axis=-1, keepdims=True)) * scale
    return {"d_query": of_scores @ key, "d_key": of_scores.T @ query, "d_value": p.T @ d_output}


def within(operation, call, results, **options):
    """Whether each result is within its budget."""
    asks = {f"return_{name}": True for name in results if name in ("lse", "weights", "max")}
    dtype, call = call["query"].dtype.name, call | asks
    expected, allowed = evaluate(operation, call), budget(operation, call, dtype, **options)
    return all(
        isinstance(compare(name, x, expected[name], allowed[name], dtype, x.dtype.name), float)
        for name, x in results.items()
    )


def cancelling(seed, depth, size, dtype=single):
    """A query and two keys with nearly orthogonal vectors: the error of a score is above its distance."""
    rng = np.random.default_rng(seed)
    query, key = (size * rng.uniform(-1, 1, (rows, depth)) for rows in (1, 2))
    key -= (key @ query.T) / (query @ query.T) * query
    return {"query": query.astype(dtype), "key": key.astype(dtype), "value": np.array([[1], [2]], dtype)}


@pytest.mark.parametrize(("depth", "size"), [(2, 1e6), (64, 1e6), (128, 3e5)])
def test_the_order_of_two_scores_may_be_lost_to_rounding(depth, size):
    flips = 0
    for seed in range(30):
        call = cancelling(seed, depth, size)
        assert within("attention", call, forward(**call))
        one = {"d_output": np.ones((1, 1), single)}
        assert within("attention_vjp", call | one, backward(**call, **one))
        flips += forward(**call)["output"] != evaluate("attention", call)["output"]
    assert flips


def test_a_distance_beyond_the_errors_decides_the_order():
    call = cancelling(0, 2, 1e6)
    call["key"] += call["query"] * np.array([[0], [4e-6]], single)
    results = forward(**call)
    assert within("attention", call, results)
    assert budget("attention", call | {"return_lse": True}, "float32")["lse"] > 1e5
    assert not within("attention", call, results | {"output": np.ones((1, 1), single)})


def test_a_short_format_of_factors_may_move_scores_by_thousands():
    rng = np.random.default_rng(0)
    for _ in range(20):
        query, key = (3000 * rng.normal(size=(rows, 64)).astype(single) for rows in (1, 2))
        short = [((x.view(np.uint32) + 0x8000) & 0xFFFF0000).view(single) for x in (query, key)]
        value = np.array([[1], [2]], single)
        results = {"lse": forward(*short, value)["lse"]}
        assert within("attention", {"query": query, "key": key, "value": value}, results, profile="bf16")


def one(x, key=1.0):
    return {"query": np.array([[x]], single), "key": np.array([[key]], single), "value": single([[1]])}


@pytest.mark.parametrize(("softcap", "x"), [(1e30, 1e-12), (1e20, 1e-20), (1e10, 1e-30), (50, 1e-36)])
def test_a_quotient_by_the_softcap_may_underflow(softcap, x):
    call = one(x) | {"scale": 1.0, "softcap": softcap}
    assert within("attention", call, forward(**call))


@pytest.mark.parametrize("scale", [1e-20, 1e-38])
def test_a_factor_that_the_scale_is_folded_into_may_underflow(scale):
    call = one(1e-20, 2e5) | {"scale": scale}
    results = forward(**call, folds=True)
    assert within("attention", call, results)
    assert not within("attention", call, results | {"lse": np.full(1, 1e-30, single)})


@pytest.mark.parametrize("by_query", [False, True])
def test_a_product_of_the_gradient_of_the_scale_may_underflow(by_query):
    """The dot product that the gradient of a score multiplies, or the gradient that the query does."""
    query, key, size = (1e30, 1e-20, 4e-25) if by_query else (1e-20, 1e-20, 1e20)
    call = {"query": np.array([[query]], single), "key": np.array([[key], [0]], single)}
    call |= {"value": np.array([[size], [0]], single), "d_output": np.ones((1, 1), single), "scale": 1e-12}
    lost = {"d_scale": np.zeros((), single)}
    assert within("attention_vjp", call | {"return_d_scale": True}, lost)
    assert not within("attention_vjp", call | {"return_d_scale": True}, {"d_scale": np.array(1e-3, single)})


def test_a_score_after_a_softcap_is_within_the_cap():
    query, key = np.array([[1e6, 1e6]], single), np.array([[1e6, -1e6], [1e6, -1e6]], single)
    call = {"query": query, "key": key, "value": np.array([[1], [2]], single), "scale": 1.0, "softcap": 3.0}
    allowed = budget("attention", call | {"return_max": True}, "float32")
    assert allowed["max"] < 6.001
    assert allowed["lse"] < 6.001
    gradients = budget("attention_vjp", call | {"d_output": np.ones((1, 1), single)}, "float32")
    assert gradients["d_query"].max() < 1e20


@pytest.mark.parametrize("softcap", [1e-160, 1e-300])
def test_a_gradient_through_a_short_softcap_is_judged(softcap):
    call = {"query": np.array([[1e3, -1e3]]), "key": np.array([[1e3, 1e3]]), "value": np.ones((1, 1))}
    call |= {"scale": 1e5, "softcap": softcap, "d_output": np.ones((1, 1))}
    results = dict(zip(("d_query", "d_key", "d_value"), attention_vjp(**call), strict=True))
    assert within("attention_vjp", call, results)
    assert not within("attention_vjp", call, results | {"d_query": results["d_query"] + 1e30})


def backward_of(order, query, key, value, d_output, scale):
    """The gradients of query and key, with the scale in each place that the classes allow."""
    p = forward(query, key, value, scale)["weights"]
    r, scale = d_output @ value.T, single(scale)
    rho = p * (r - (p * r).sum(axis=-1, keepdims=True))
    first, second, last = {
        "after": (1, 1, scale),
        "into rho": (scale, 1, 1),
        "into the other": (1, scale, 1),
        "roots": (1, np.sqrt(scale), np.sqrt(scale)),
    }[order]
    products = (("d_query", rho, key), ("d_key", rho.T, query))
    return {name: (factor * first) @ (other * second) * last for name, factor, other in products}


@pytest.mark.parametrize("order", ["after", "into rho", "into the other", "roots"])
@pytest.mark.parametrize(
    ("scale", "query", "key", "g"),
    [(40, -40, -60, -100), (100, 5, -115, -20), (-40, -40, 60, -105), (-60, -20, 60, -90)],
)
def test_the_scale_may_multiply_before_or_after_an_underflow(order, scale, query, key, g):
    rng = np.random.default_rng(0)
    call = {
        name: np.ldexp(rng.normal(size=(rows, 4)), power).astype(single)
        for name, rows, power in (("query", 2, query), ("key", 8, key), ("value", 8, 0), ("d_output", 2, g))
    } | {"scale": 2.0**scale}
    results, exact = backward_of(order, **call), evaluate("attention_vjp", call)
    assert within("attention_vjp", call, results)
    for name, gradient in results.items():
        wrong = gradient + 100 * np.abs(exact[name]).max() + 1e-30
        assert not within("attention_vjp", call, {name: wrong.astype(single)})


@pytest.mark.parametrize("folds", [False, True])
def test_products_of_a_folded_scale_may_underflow(folds):
    rng = np.random.default_rng(0)
    call = {name: np.ldexp(rng.uniform(1, 2, (1, 64)), -49).astype(single) for name in ("query", "key")}
    call |= {"value": np.ones((1, 1), single), "scale": 2.0**-40}
    results = forward(**call, folds=folds)
    assert within("attention", call, results)
    assert not within("attention", call, {"lse": results["lse"] + single(1e-36)})


def test_a_gradient_is_rounded_to_the_dtype_of_its_array():
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(3, 4)).astype(single) for name in ("query", "key", "value", "d_output")}
    for name in ("key", "value"):
        call = arrays | {name: arrays[name].astype(np.float16)}
        exact = evaluate("attention_vjp", call)[f"d_{name}"]
        assert within("attention_vjp", call, {f"d_{name}": exact.astype(np.float16)})
        assert not within("attention_vjp", call, {f"d_{name}": (exact * 1.01).astype(np.float16)})


def test_a_weight_of_an_indexer_and_an_attention_factor_multiply_what_underflows():
    array = np.full((1, 1), 2.0**-60, single)
    call = {"index_query": array[None], "index_key": array, "index_weights": single([[2.0**-20]])}
    assert budget("indexer_scores", call, "float32")["index_scores"] > 2.0**-126
    call = {"features": np.full((1, 2), 2.0**-126, single), "attention_factor": 2.0**30, "offset": 1}
    assert budget("rotary", call, "float32")["rotated"].min() > 2.0**-96


def test_a_scale_below_the_range_may_be_rounded_to_zero():
    large, zero = np.full((1, 2), 1e18, single), np.zeros((1, 2), single)
    call = {"query": large, "key": large, "value": np.ones((1, 1), single), "scale": 1e-46}
    assert within("attention", call, {"lse": np.zeros(1, single)})
    assert not within("attention", call, {"lse": np.full(1, 1e-9, single)})
    keys = {"key": np.concatenate([large, zero]), "value": np.array([[1e18], [0]], single)}
    call |= keys | {"d_output": np.ones((1, 1), single)}
    assert within("attention_vjp", call, {"d_query": zero})
    assert not within("attention_vjp", call, {"d_query": zero + single(1e-9)})
    call = {"features": large, "attention_factor": 1e-46, "offset": 1}
    allowed = budget("rotary", call, "float32")["rotated"]
    assert np.all((allowed > 1e-28) & (allowed < 1e-27))


def test_a_softcap_whose_reciprocal_overflows_is_out_of_range():
    call = {name: np.zeros((1, 1), single) for name in ("query", "key", "value")} | {"softcap": 1e-40}
    assert np.isinf(budget("attention", call, "float32")["output"])
    assert budget("attention", call | {"softcap": 1e-37}, "float32")["output"] == 0


def test_the_factor_of_dropout_may_multiply_what_has_underflowed():
    ones, kept, factor = np.ones((2, 2), single), np.eye(2, dtype=bool), single(2.0**30)
    small = np.full((2, 2), 2.0**-149, single)
    call = {"query": 0 * ones, "key": 0 * ones, "value": small}
    call |= {"dropout_mask": kept, "dropout_rate": 1 - 2.0**-30}
    p = ones / 2
    assert within("attention", call, {"output": (p * kept) @ small * factor})
    assert not within("attention", call, {"output": np.full((2, 2), 1e-20, single)})
    call |= {"d_output": small, "value": ones}
    assert within("attention_vjp", call, {"d_value": (p * kept).T @ small * factor})
    assert not within("attention_vjp", call, {"d_value": np.full((2, 2), 1e-20, single)})


PORTABLE = load("numpy-portable")


def plain(query, key, value, *, scale=None, softcap=None, sinks=None, dropout_mask=None, dropout_rate=0.0):
    """A kernel in float32."""
    single = np.float32
    s = single(query) @ single(key).T * single(query.shape[-1] ** -0.5 if scale is None else scale)
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
    case = own_case("NUM-3", call)
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
    ("packed_attention", "query", _HEADS | {"query_starts": np.arange(2), "key_starts": np.array([0, 2])}),
    ("sharded_attention", "query", _HEADS | {"query_shards": np.arange(2), "key_shards": np.array([0, 2])}),
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
        case = own_case("NUM-3", less, operation)
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
    case = own_case("QUANT-1", call, "dequantize")
    backend = replace(PORTABLE, dtypes=("float16",))
    assert judge_outputs(backend, case, {"dequantized": np.full((1, 1), got, np.float16)}).status == status


@pytest.mark.parametrize("scale", [0.0, 1e-30])
def test_a_gradient_whose_products_overflow_before_the_scale_is_out_of_range(scale):
    """A scale of 0 too: an infinity times 0 is NaN."""
    arrays = {"query": [[1e-3, 1e-3]], "key": [[1e30, -1e30], [2e30, 1e30]], "value": [[1], [2]]}
    call = {name: np.array(x, np.float32) for name, x in arrays.items()} | {"scale": scale}
    off = budget("attention_vjp", call | {"d_output": np.array([[1e25]], np.float32)}, "float32")
    assert np.isinf(off["d_query"]).all()
    off = budget("attention_vjp", call | {"d_output": np.array([[1e-3]], np.float32)}, "float32")
    assert np.isfinite(off["d_query"]).all()
