"""The judge judged: what must pass passes, what must not does not, and the message says why."""

from dataclasses import replace

import numpy as np
import pytest
from tests_support import backend_of

from attnspec import find_case
from attnspec.backends import Backend, Unsupported, load
from attnspec.conformance.call import Missing, call
from attnspec.conformance.comparison import compare
from attnspec.conformance.failure import Failure, Raised
from attnspec.conformance.judge import dtypes_of, judge, judge_case, observe
from attnspec.reference.rational import evaluate
from attnspec.reference.rounding import FORMATS, budget

EXPECTED = np.array([[1.0, -2.0], [0.0, 4.0]])
ALLOWED = np.full((2, 2), 1e-6)


def shown(got, expected=EXPECTED, allowed=ALLOWED, dtype="float64"):
    return compare("output", np.asarray(got), np.asarray(expected), allowed, dtype)


@pytest.mark.parametrize(
    ("got", "kind"),
    [
        (EXPECTED, ""),
        (EXPECTED + 0.99e-6, ""),
        (EXPECTED + 1.01e-6, "value"),
        (EXPECTED - 1.01e-6, "value"),
        (np.zeros((2, 2)), "value"),
        (EXPECTED * [[1, 1], [-1, 1]], ""),  # -0.0 is 0.0
        (np.where(EXPECTED == 4, np.nan, EXPECTED), "pattern"),
        (np.where(EXPECTED == 4, np.inf, EXPECTED), "pattern"),
        (np.full((2, 2), np.nan), "pattern"),
        (EXPECTED[0], "shape"),  # would broadcast
        (EXPECTED[None], "shape"),
        (EXPECTED.T[:1], "shape"),
        (EXPECTED.astype(np.float32), "dtype"),
        (EXPECTED.astype(complex), "dtype"),
        (EXPECTED.astype(int), "dtype"),
        (EXPECTED[0, 0], "shape"),
    ],
)
def test_comparison(got, kind):
    comparison = shown(got)
    assert comparison.kind == kind
    assert (comparison.problem == "") == (kind == "")


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-np.inf, np.inf, False),
        (np.inf, np.nan, False),
        (1.0, np.nan, False),
        (1e300, np.inf, False),
        (0.0, -np.inf, False),
    ],
)
def test_patterns(got, expected, same):
    comparison = shown([got], [expected], np.full(1, np.inf))
    assert (comparison.problem == "") == same


def test_off_by_exactly_one_budget_passes_and_by_the_next_number_does_not():
    assert shown([1.5], [1.0], np.full(1, 0.5)).share == 1
    assert shown([1.5], [1.0], np.full(1, 0.5)).problem == ""
    assert shown([np.nextafter(1.5, 2)], [1.0], np.full(1, 0.5)).kind == "value"


@pytest.mark.parametrize("got", [np.nan, np.inf, -np.inf, 7.0])
def test_nothing_is_said_of_a_place_that_is_not_looked_at(got):
    seen = np.array([True, False])
    there = compare("weights", np.array([1.0, got]), np.ones(2), np.zeros(2), "float64", where=seen)
    assert there.problem == ""
    assert compare("weights", np.array([got, 1.0]), np.ones(2), np.zeros(2), "float64", where=seen).problem


#: One query, three keys, the last of them masked; and a row with nothing to attend to.
MASKED = {
    "query": np.array([[1.0, 0.0], [0.0, 1.0]]),
    "key": np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]]),
    "value": np.array([[1.0, -1.0], [2.0, 0.5], [5.0, 5.0]]),
    "mask": np.array([[True, True, False], [False, False, False]]),
}


def put(name, index, number):
    def change(outputs):
        outputs[name][index] = number

    return change


def replaced(name, make):
    def change(outputs):
        outputs[name] = make(outputs[name])

    return change


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (put("output", (1, 0), -0.0), None),
        (put("weights", (0, 2), -0.0), None),
        (put("weights", (0, 2), np.nan), "MASK-1"),  # a masked place is looked at, and is 0
        (put("weights", (0, 2), 5e-324), "MASK-1"),
        (put("output", (1, 0), np.nan), "MASK-1"),  # the variant of MASK-6 has a row of it
        (put("output", (0, 0), np.nan), "MASK-1"),
        (put("lse", 1, np.inf), "SOFT-7"),
        (put("lse", 1, np.nan), "MASK-1"),
        (put("lse", 0, -np.inf), "MASK-1"),
        (replaced("output", np.zeros_like), "MASK-1"),
        (replaced("output", lambda x: x[:1]), "SHAPE-3"),  # would broadcast
        (replaced("output", lambda x: x[..., :1]), "SHAPE-3"),
        (replaced("weights", lambda x: x[:, None]), "SHAPE-4"),
        (replaced("lse", lambda x: x[..., None]), "SHAPE-8"),
        (replaced("output", lambda x: x.astype(np.float32)), "NUM-1"),
        (replaced("weights", lambda x: x.astype(np.float16)), "NUM-1"),
        (replaced("output", lambda x: np.zeros((0, *x.shape[1:]))), "SHAPE-3"),
    ],
)
def test_each_thing_that_can_be_wrong_has_its_verdict(change, rule):
    right = load("numpy-portable")

    def attention(query, key, value, *, mask=None, return_lse=False, return_weights=False):
        options = {"mask": mask, "return_lse": True, "return_weights": True}
        outputs = dict(
            zip(("output", "lse", "weights"), right.attention(query, key, value, **options), strict=True)
        )
        change(outputs)
        asked = {"output": True, "lse": return_lse, "weights": return_weights}
        return tuple(outputs[name] for name, wanted in asked.items() if wanted)

    backend = replace(right, attention=attention, companions={})
    if rule is None:
        assert judge(backend, "MASK-1", "attention", MASKED).status == "pass"
        return
    with pytest.raises(Failure) as caught:
        judge(backend, "MASK-1", "attention", MASKED)
    assert caught.value.rule == rule


def test_where_nothing_may_be_off_the_least_is_too_much():
    assert shown([5e-324], [0.0], np.zeros(1)).share == np.inf
    assert shown([0.0], [0.0], np.zeros(1)).share == 0


def test_empty_arrays_are_equal_if_their_shapes_are():
    empty = np.zeros((0, 3))
    assert shown(empty, empty, empty).problem == ""
    assert shown(np.zeros((0, 4)), empty, empty).kind == "shape"


def test_the_worst_element_is_named():
    comparison = shown(EXPECTED + np.array([[0, 5e-6], [0, 1e-5]]))
    assert comparison.problem.startswith(
        "output[1, 1]: got 4.00001, expected 4.0, off by 1e-05, allowed 1e-06: 10 budgets"
    )
    assert "(2 of 4 elements are off)" in comparison.problem


def test_a_golden_vector_failed_names_rule_case_element_and_reproduction():
    backend = backend_of("no_scale")
    with pytest.raises(Failure) as caught:
        judge_case(backend, find_case("softmax-000"), "float64")
    message = str(caught.value)
    assert message.startswith(
        "SOFT-1 Weights are the softmax of each row\ncase softmax-000, float64, on broken:no_scale\n"
    )
    assert "output[" in message
    assert ": got " in message
    assert ", expected " in message
    assert ", allowed " in message
    assert 'case, backend = find_case("softmax-000"), load("broken:no_scale")' in message


@pytest.mark.parametrize("name", ["bias", "boolean", "causal"])
def test_normalising_over_the_whole_matrix_is_told_by_name(name):
    with pytest.raises(Failure) as caught:
        judge_case(backend_of("whole_matrix"), find_case(f"masking-004-{name}"), "float64")
    assert caught.value.rule == "SOFT-1"
    assert "equals the variant `matrix` of SOFT-1" in str(caught.value)


def test_a_declared_variant_is_verified_and_an_undeclared_one_fails():
    case = find_case("masking-004-causal")
    declaring = backend_of("whole_matrix", dialect={"SOFT-1": "matrix"})
    assert judge_case(declaring, case, "float64").status == "deviation"
    conforming = load("numpy-portable")
    pretending = Backend("p", "numpy", "", conforming.xp, conforming.attention, dialect={"SOFT-1": "matrix"})
    with pytest.raises(Failure):
        judge_case(pretending, case, "float64")


@pytest.mark.parametrize(
    ("name", "rule", "text"),
    [
        ("transposed_output", "SHAPE-3", "output: got shape (2, 3), expected (3, 2)"),
        ("lists", "SHAPE-3", "output: expected an array of numpy, got list"),
        ("nothing", "SHAPE-3", "output: expected an array of numpy, got NoneType"),
        ("mutating", "NUM-4", "query: got changed by the call"),
        ("nan_everywhere", "SOFT-1", "got nan"),
        ("half", "SOFT-1", "budgets"),
    ],
)
def test_bad_results_are_told_apart(name, rule, text):
    with pytest.raises(Failure) as caught:
        judge_case(backend_of(name), find_case("softmax-000"), "float64")
    assert caught.value.rule == rule
    assert text in str(caught.value)


def test_a_dtype_of_its_own():
    with pytest.raises(Failure, match="output: got dtype float64, expected float32"):
        judge_case(backend_of("always_float64"), find_case("softmax-002"), "float32")


def test_an_implementation_that_raises():
    with pytest.raises(Raised, match="raised RuntimeError: the kernel did not launch"):
        judge_case(backend_of("raising"), find_case("softmax-000"), "float64")


def test_an_argument_or_operation_that_is_not_there_is_unsupported():
    backend = backend_of("no_scale")
    with pytest.raises(Missing, match="has no argument mask"):
        judge_case(backend, find_case("masking-004-boolean"), "float64")
    with pytest.raises(Missing, match="has no projection"):
        judge_case(backend, find_case("projection-000-query"), "float64")
    assert issubclass(Missing, Unsupported)


def test_what_always_raises_refuses_nothing():
    case = find_case("notation-misfit-depth")
    assert judge_case(load("numpy-portable"), case, "float32").status == "pass"
    with pytest.raises(Raised):
        judge_case(backend_of("raising"), case, "float32")


def test_an_error_where_one_is_due_passes_and_a_result_does_not():
    case = find_case("projection-000-stub")
    portable = load("numpy-portable")
    assert judge_case(portable, case, "float64").status == "pass"

    def helpful(tokens, weight, *, convention):
        return weight.T @ tokens

    lenient = Backend(
        "lenient", "numpy", "", portable.xp, portable.attention, companions={"projection": helpful}
    )
    with pytest.raises(Failure, match=r"PROJ-4(.|\n)*expected an error, got projected of shape \(2, 3\)"):
        judge_case(lenient, case, "float64")


def test_weights_are_seen_where_none_are_returned():
    """By identity values, in slices as wide as the values are."""
    portable = load("numpy-portable")

    def without(query, key, value):
        return portable.attention(query, key, value)

    mute = Backend("mute", "numpy", "", portable.xp, without)
    random = np.random.default_rng(0)
    arguments = {
        "query": random.normal(size=(2, 3, 4)),
        "key": random.normal(size=(2, 7, 4)),
        "value": random.normal(size=(2, 7, 3)),
    }
    seen, returned = observe(mute, "attention", arguments), call(portable, "attention", arguments)
    assert seen["weights"].shape == (2, 3, 7)
    assert np.allclose(seen["weights"], returned["weights"], rtol=0, atol=1e-15)


def test_a_case_is_run_in_the_dtypes_that_hold_its_inputs():
    assert dtypes_of(find_case("softmax-000")) == ("float64",)
    assert dtypes_of(find_case("softmax-002")) == ("float16", "bfloat16", "float32", "float64")
    assert dtypes_of(find_case("softmax-003")) == ("float32", "float64")


def test_formats_are_those_of_numpy():
    for name in ("float16", "float32", "float64"):
        info = np.finfo(name)
        found = FORMATS[name]
        assert (found.unit, found.normal, found.subnormal, found.largest) == (
            float(info.eps) / 2,
            float(info.smallest_normal),
            float(info.smallest_subnormal),
            float(info.max),
        )


def test_a_budget_by_hand():
    """Two keys, depth 1: every term of the bound, written out."""
    unit = 2.0**-24
    query, key, value = np.array([[1.0]]), np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])
    got = budget("attention", {"query": query, "key": key, "value": value, "scale": 1.0}, "float32")["output"]
    p = 1 / (1 + np.exp(-1.0))  # of key 1, whose value 1 is the output's only part
    off = [unit * (0 + 3 * 1 + 4), unit * (5 * 1 + 0 + 4)]  # of each exponential: score, shift, exponential
    spread = (1 - p) * np.expm1(off[0]) * p + p * np.expm1(off[1]) * (1 - p)
    sums = 2 * (2 + 4) * unit * p
    merging = 2 * unit * (1 + 5 * np.log(2)) * p
    assert np.isclose(got[0, 0], spread + sums + merging + unit * p, rtol=1e-5)


def test_a_budget_by_hand_in_the_class_cast():
    """What casting the weights adds: a unit of float16 for each, and half a subnormal."""
    query, key, value = np.array([[1.0]]), np.array([[0.0], [1.0]]), np.array([[0.0], [1.0]])
    arguments = {"query": query, "key": key, "value": value, "scale": 1.0}
    full, cast = (
        budget("attention", arguments, "float16", accuracy=name)["output"][0, 0] for name in ("full", "cast")
    )
    p = 1 / (1 + np.exp(-1.0))
    added = 2.0**-11 * max(p, 2 * p * (1 - p)) + 2.0**-25
    assert np.isclose(cast - full, added * (1 + 2.0**-11), rtol=1e-6)


def test_a_bias_is_rounded_once_more():
    query, key = np.zeros((1, 1)), np.zeros((2, 1))
    arguments = {"query": query, "key": key, "bias": np.array([[1024.0, 1024.0]])}
    allowed = budget("scores", arguments, "float64")["scores"]
    assert np.allclose(allowed, 2 * 1024 * 2.0**-53, rtol=1e-9)  # the sum, and the result


def test_one_key_leaves_nothing_to_be_off_but_the_last_rounding():
    one = np.ones((1, 1))
    for accuracy in ("full", "cast"):
        allowed = budget(
            "attention", {"query": one, "key": one, "value": 1.5 * one}, "float16", accuracy=accuracy
        )
        assert allowed["output"][0, 0] == 1.5 * 2.0**-11


def test_an_allowance_of_nan_allows_nothing():
    assert shown(EXPECTED + 1.0, allowed=np.full((2, 2), np.nan)).kind == "value"
    assert shown(EXPECTED + 1.001e-6).kind == "value"


def test_every_output_of_a_generated_call_is_judged():
    """Right output, wrong weights."""
    portable = load("numpy-portable")

    def lying(query, key, value, *, return_weights=False):
        output, weights = portable.attention(query, key, value, return_weights=True)
        return (output, weights[..., ::-1]) if return_weights else output

    liar = Backend("liar", "numpy", "", portable.xp, lying)
    random = np.random.default_rng(1)
    arguments = {name: random.normal(size=(3, 4)) for name in ("query", "key", "value")}
    with pytest.raises(Failure, match=r"^NUM-3(.|\n)*weights\["):
        judge(liar, "NUM-3", "attention", arguments, lambda: evaluate("attention", arguments))


def test_a_generated_call_of_the_wrong_dtype_breaks_the_rule_of_dtypes():
    one = {name: np.ones((2, 2), np.float32) for name in ("query", "key", "value")}
    with pytest.raises(Failure) as caught:
        judge(backend_of("always_float64"), "MASK-1", "attention", one, lambda: evaluate("attention", one))
    assert caught.value.rule == "NUM-1"


def test_low_precision_is_told_by_name():
    random = np.random.default_rng(2)
    arguments = {name: random.normal(size=(4, 8)) for name in ("query", "key", "value")}
    portable = load("numpy-portable")

    def low(query, key, value):
        short = [array.astype(np.float32) for array in (query, key, value)]
        return portable.attention(*short).astype(query.dtype)

    backend = Backend("low", "numpy", "", portable.xp, low)
    with pytest.raises(Failure, match=r"^NUM-2(.|\n)*the variant `float32` of NUM-2"):
        judge(backend, "MASK-1", "attention", arguments, lambda: evaluate("attention", arguments))


@pytest.mark.parametrize("name", ["query", "mask", "bias"])
def test_any_input_that_is_changed_is_noticed(name):
    portable = load("numpy-portable")

    def changing(query, key, value, *, mask=None, bias=None):
        output = portable.attention(query, key, value, mask=mask, bias=bias)
        {"query": query, "mask": mask, "bias": bias}[name][...] = 0
        return output

    one = {key: np.ones((2, 2)) for key in ("query", "key", "value", "bias")} | {
        "mask": np.ones((2, 2), bool)
    }
    with pytest.raises(Failure, match=rf"{name}: got changed by the call"):
        call(Backend("changing", "numpy", "", portable.xp, changing), "attention", one)


def test_a_figure_is_held_against_the_backend_too():
    """Off by a printed unit and within no budget that a wide class would give."""
    case = find_case("softmax-003")
    narrow = replace(case, figures=(replace(case.figures[0], text=("0.2099", *case.figures[0].text[1:])),))
    with pytest.raises(Failure, match=r"worked example 003, In \[12\], weights: printed 0.2099"):
        judge_case(load("numpy-portable"), narrow, "float32")


def test_how_far_off_a_result_is_may_overflow():
    """A warning here would be an error of the suite's own."""
    got, expected, allowed = np.full(2, 1e300), np.zeros(2), np.full(2, 1e-300)
    assert compare("output", got, expected, allowed, "float64").share == np.inf
