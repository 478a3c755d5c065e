"""The judge judged: what must pass passes, what must not does not, and the message says why."""

from dataclasses import replace

import numpy as np
import pytest
from tests_support import backend_of

from attnspec import find_case
from attnspec.backends import Backend, Unsupported, load
from attnspec.conformance.judge.call import Missing, call
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.judge import dtypes_of, judge, judge_case, observe
from attnspec.reference.rational.evaluate import evaluate

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
    pretending = Backend("p", conforming.array_library, conforming.attention, dialect={"SOFT-1": "matrix"})
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
        "lenient", portable.array_library, portable.attention, companions={"projection": helpful}
    )
    with pytest.raises(Failure, match=r"PROJ-4(.|\n)*expected an error, got projected of shape \(2, 3\)"):
        judge_case(lenient, case, "float64")


def test_weights_are_seen_where_none_are_returned():
    """By identity values, in slices as wide as the values are."""
    portable = load("numpy-portable")

    def without(query, key, value):
        return portable.attention(query, key, value)

    mute = Backend("mute", portable.array_library, without)
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


def test_every_output_of_a_generated_call_is_judged():
    """Right output, wrong weights."""
    portable = load("numpy-portable")

    def lying(query, key, value, *, return_weights=False):
        output, weights = portable.attention(query, key, value, return_weights=True)
        return (output, weights[..., ::-1]) if return_weights else output

    liar = Backend("liar", portable.array_library, lying)
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

    backend = Backend("low", portable.array_library, low)
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
        call(Backend("changing", portable.array_library, changing), "attention", one)


def test_a_figure_is_held_against_the_backend_too():
    """Off by a printed unit and within no budget that a wide class would give."""
    case = find_case("softmax-003")
    narrow = replace(case, figures=(replace(case.figures[0], text=("0.2099", *case.figures[0].text[1:])),))
    with pytest.raises(Failure, match=r"worked example 003, In \[12\], weights: printed 0.2099"):
        judge_case(load("numpy-portable"), narrow, "float32")


@pytest.mark.parametrize(
    ("lse", "status"),
    [
        (-2.4e38, "deviation"),
        (-1.1e30, "deviation"),
        (-1e30, None),
        (0.0, None),
        (np.inf, None),
        (np.nan, None),
    ],
)
def test_the_variant_finite_takes_an_lse_that_is_low_and_no_other(lse, status):
    """For the empty row, the last, alone: the first keeps its exact value."""
    right = load("numpy-portable")

    def attention(query, key, value, *, mask=None, return_lse=False):
        output, found = right.attention(query, key, value, mask=mask, return_lse=True)
        found = np.where(found == -np.inf, lse, found).astype(found.dtype)
        return (output, found) if return_lse else output

    backend = replace(
        right, attention=attention, companions={}, dialect={"MASK-8": "exclusive-left", "SOFT-7": "finite"}
    )
    if status:
        judgement = judge(backend, "SOFT-7", "attention", MASKED)
        assert (judgement.status, judgement.deviates) == (status, "SOFT-7")
        undeclared = replace(backend, dialect={})
        with pytest.raises(Failure):
            judge(undeclared, "SOFT-7", "attention", MASKED)
    else:
        with pytest.raises(Failure):
            judge(backend, "SOFT-7", "attention", MASKED)
