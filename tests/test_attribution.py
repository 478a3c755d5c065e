"""Attribution: what is said of a wrong result, and what is not looked at."""

from dataclasses import replace

import numpy as np
import pytest
from tests_support import backend_of

from attnspec import Case, Misuse, Provenance, find_case
from attnspec.backends import load
from attnspec.conformance.judge.call import observe
from attnspec.conformance.judge.dtypes import accepted, arguments_of, dtypes_of, in_dtype
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.judge import judge, judge_case
from attnspec.conformance.judge.refusal import FITTING, judge_message, judge_misuse
from attnspec.conformance.misuses import MISUSES
from attnspec.conformance.report.reproduction import of_arguments
from attnspec.conformance.suite.problem import MASKED, problem_of

PORTABLE = load("numpy-portable")
PROBLEM = problem_of(MASKED[0], "float32", 1)


def giving(change, **options):
    """The portable backend with its outputs changed: change(output, lse, weights) -> the three."""

    def attention(query, key, value, *, is_causal=False, mask=None, return_lse=False, return_weights=False):
        whole = PORTABLE.attention(
            query, key, value, is_causal=is_causal, mask=mask, return_lse=True, return_weights=True
        )
        output, lse, weights = change(*whole)
        parts = [output, *([lse] if return_lse else []), *([weights] if return_weights else [])]
        return tuple(parts) if len(parts) > 1 else output

    return replace(PORTABLE, name="own", attention=attention, **options)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda o, e, w: (o[..., None], e, w), "SHAPE-3"),
        (lambda o, e, w: (o, e[..., None], w), "SHAPE-8"),
        (lambda o, e, w: (o, e, np.swapaxes(w, -1, -2)), "SHAPE-4"),
        (lambda o, e, w: (o.astype(np.float64), e, w), "NUM-1"),
        (lambda o, e, w: (o, e, w.astype(np.float64)), "NUM-1"),
        (lambda o, e, w: (o, e + np.float32(1e-3), w), "SOFT-6"),
        (lambda o, e, w: (o, e / np.float32(np.log(2)), w), "SOFT-6"),
        (lambda o, e, w: (o + np.float32(1e-3), e, w), "SOFT-6"),
    ],
)
def test_a_difference_breaks_the_plainest_rule(change, rule):
    with pytest.raises(Failure) as caught:
        judge(giving(change), "SOFT-6", "attention", PROBLEM.arguments)
    assert caught.value.rule == rule


def test_an_lse_of_another_dtype_is_a_matter_of_its_own():
    """Two of float64 may stand beside float32; one of float16 breaks NUM-7, and nothing else."""
    wide = giving(lambda o, e, w: (o, e.astype(np.float64), w))
    assert judge(wide, "NUM-7", "attention", PROBLEM.arguments).status == "pass"
    short = giving(lambda o, e, w: (o, e.astype(np.float16), w))
    assert judge(short, "MASK-1", "attention", PROBLEM.arguments).status == "pass"
    for rule in ("NUM-7", "SOFT-6"):
        with pytest.raises(Failure, match="lse: got dtype float16, expected float32 or float64") as caught:
            judge(short, rule, "attention", PROBLEM.arguments)
        assert caught.value.rule == "NUM-7"
    assert accepted("lse", "float64") == ("float64",)


def test_the_weights_of_a_row_that_is_nan_are_not_looked_at():
    query = PROBLEM.query.copy()
    query[0, 0, 1, 0] = np.nan
    arguments = PROBLEM.arguments | {"query": query}

    def ones_there(output, lse, weights):
        return output, lse, np.where(np.isnan(lse)[..., None], np.float32(1), weights)

    assert judge(giving(ones_there), "NUM-11", "attention", arguments).status == "pass"
    with pytest.raises(Failure, match=r"weights\["):
        judge(giving(lambda o, e, w: (o, e, w + np.float32(1e-3))), "NUM-11", "attention", arguments)


def test_identity_values_are_not_asked_where_numbers_are_not_finite():
    calls = []

    def mute(query, key, value, *, bias=None):
        calls.append(value)
        return PORTABLE.attention(query, key, value, bias=bias)

    backend = replace(PORTABLE, attention=mute)
    bias = np.zeros(PROBLEM.shape, np.float32)
    bias[..., 0] = -np.inf
    assert "weights" in observe(backend, "attention", PROBLEM.arguments | {"bias": bias})
    calls.clear()
    value = PROBLEM.value.copy()
    value[0, 0, 0, 0] = np.nan
    assert "weights" not in observe(backend, "attention", PROBLEM.arguments | {"value": value})
    assert len(calls) == 1


def test_an_undeclared_variant_is_told_by_name_in_a_generated_call():
    def bottom_right(query, key, value, *, is_causal=False):
        offset = key.shape[-2] - query.shape[-2]
        return PORTABLE.attention(query, key, value, is_causal=is_causal, query_offset=offset)

    backend = replace(PORTABLE, attention=bottom_right)
    arguments = PROBLEM.arguments | {"is_causal": True}
    with pytest.raises(Failure, match=r"equals the variant `bottom-right` of MASK-3") as caught:
        judge(backend, "MASK-4", "attention", arguments)
    assert caught.value.rule == "MASK-3"
    declaring = replace(backend, dialect={"MASK-3": "bottom-right"})
    judgement = judge(declaring, "MASK-4", "attention", arguments)
    assert (judgement.status, judgement.deviates) == ("deviation", "MASK-3")
    assert judge(declaring, "MASK-4", "attention", PROBLEM.arguments).status == "pass", "shows nothing"
    with pytest.raises(Failure):
        judge(replace(PORTABLE, dialect={"MASK-3": "bottom-right"}), "MASK-4", "attention", arguments)


@pytest.mark.parametrize("variant", ["nan", "uniform"])
def test_a_declared_variant_is_verified_in_generated_calls(variant):
    empty = PROBLEM.mask()
    empty[..., 1, :] = False
    filled = {"nan": np.nan, "uniform": PROBLEM.value.mean(axis=-2, keepdims=True)}[variant]

    def attention(query, key, value, *, mask=None):
        output = PORTABLE.attention(query, key, value, mask=mask)
        mean = np.nan if variant == "nan" else value.mean(axis=-2, keepdims=True)
        return np.where(mask.any(axis=-1, keepdims=True), output, mean).astype(query.dtype)

    assert np.shape(filled) in ((), (2, 3, 1, 4))
    arguments = PROBLEM.arguments | {"mask": empty}
    backend = replace(PORTABLE, attention=attention, dialect={"MASK-6": variant})
    assert judge(backend, "MASK-6", "attention", arguments).deviates == "MASK-6"
    with pytest.raises(Failure, match=f"equals the variant `{variant}` of MASK-6"):
        judge(replace(backend, dialect={}), "MASK-6", "attention", arguments)


def test_an_argument_that_changes_nothing_is_named():
    def attention(query, key, value, *, is_causal=False, window=None):
        return PORTABLE.attention(query, key, value, is_causal=is_causal)

    arguments = PROBLEM.arguments | {"is_causal": True, "window": (1, None)}
    with pytest.raises(Failure, match="equals the result without `window`: accepted, and changes nothing"):
        judge(replace(PORTABLE, attention=attention), "MASK-8", "attention", arguments)


def test_what_a_should_leaves_open_is_no_breach_of_a_must():
    """NaN in a masked key, and minus infinity added: looks like MASK-2 `added`, and is MASK-13."""

    def attention(query, key, value, *, bias=None):
        scores = query @ np.swapaxes(key, -1, -2) * np.float32(0.5) + bias
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ value

    bias = np.where(np.arange(7) < 6, 0, -np.inf).astype(np.float32)
    key = PROBLEM.key.copy()
    key[..., 6, :] = np.nan
    clean = exact("attention", PROBLEM.arguments | {"bias": bias})
    arguments = PROBLEM.arguments | {"key": key, "bias": bias}
    with pytest.raises(Failure) as caught:
        judge(replace(PORTABLE, attention=attention), "MASK-13", "attention", arguments, lambda: clean)
    assert caught.value.rule == "MASK-13"


def test_integers_and_lses_keep_their_dtypes():
    given = {"pages": np.ones(1), "block_table": np.array([1]), "lses": np.ones(1), "flags": np.array([True])}
    cast = {name: str(array.dtype) for name, array in in_dtype(given, "bfloat16").items()}
    assert cast == {"pages": "bfloat16", "block_table": "int64", "lses": "float32", "flags": "bool"}


def case_of(operation, misuse=None, **arguments):
    return Case("x-y", "", "errors", operation, ("ERR-1",), arguments, Provenance("", ""), misuse=misuse)


def test_the_dtypes_of_a_case_hold_nan_and_leave_integers_alone():
    every = ("float16", "bfloat16", "float32", "float64")
    assert dtypes_of(case_of("gather_pages", pages=np.array([np.nan, 1]), block_table=np.array([1]))) == every
    assert dtypes_of(case_of("split_heads", features=np.array([np.inf, 0.1]))) == ("float64",)
    assert dtypes_of(case_of("split_heads", features=np.array([70000.0]))) == ("float32", "float64")


def test_a_misuse_by_dtypes_is_run_as_it_stands():
    arrays = {"query": np.ones((1, 1), np.float32), "key": np.ones((1, 1)), "value": np.ones((1, 1))}
    case = case_of("attention", Misuse("key"), **arrays)
    assert dtypes_of(case) == ("float32",)
    assert {str(x.dtype) for x in arguments_of(case, "float32").values()} == {"float32", "float64"}
    assert judge_case(PORTABLE, case, "float32").status == "pass"


@pytest.mark.parametrize("operation", FITTING)
def test_the_calls_that_fit_do(operation):
    assert observe(PORTABLE, operation, in_dtype(FITTING[operation], "float32"))


def test_what_raises_whatever_it_is_given_refuses_nothing():
    wrong = MISUSES["depth of 0"]
    with pytest.raises(Raised):
        judge_misuse(backend_of("raising"), "attention", wrong.arguments("float32"), wrong.rule, "", "")


@pytest.mark.parametrize(
    ("message", "names", "named"),
    [
        ("mask: expected bool", ("mask",), True),
        ("Mask must be bool", ("mask",), True),
        ("attn_mask must be bool", ("mask",), False),
        ("", ("mask",), False),
        ("value: expected 5 positions", ("key", "value"), True),
    ],
)
def test_an_error_names_the_argument(message, names, named):
    if named:
        judge_message(message, names, "here", "")
    else:
        with pytest.raises(Failure) as raised:
            judge_message(message, names, "here", "")
        assert raised.value.rule == "ERR-12"


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_can_be_reproduced(name):
    wrong = MISUSES[name]
    text = of_arguments(PORTABLE, wrong.operation, wrong.arguments("float32"))
    program = "\n".join(line.removeprefix("    ") for line in text.splitlines()[1:])
    with pytest.raises(Raised, match=rf"\[{wrong.rule}\]"):
        exec(compile(program, name, "exec"), {})


def test_a_golden_vector_asks_for_what_its_rules_are_about():
    """One about the lse alone is not asked of who returns none."""
    from attnspec.conformance.outcome import asked

    def plain(query, key, value):
        return PORTABLE.attention(query, key, value)

    mute = replace(PORTABLE, attention=plain)
    case = find_case("softmax-000")
    assert asked("SOFT-6", PORTABLE, case, "float32")
    assert not asked("SOFT-6", mute, case, "float32")
    assert asked("SOFT-1", mute, case, "float32")
    assert not asked("NUM-5", mute, case, "float32")


def test_what_is_too_long_to_be_written_out_is_packed(capsys):
    random = np.random.default_rng(0)
    query, key = (random.normal(size=(n, 2)).astype("float32") for n in (4, 300))
    text = of_arguments(PORTABLE, "attention", {"query": query, "key": key, "value": key}, "output", query)
    program = "\n".join(line.removeprefix("    ") for line in text.splitlines()[1:])
    namespace = {}
    exec(compile(program, "packed", "exec"), namespace)
    assert namespace["got"]["output"].shape == (4, 2)
    (packed,) = {line.split(": ", 1)[1].rstrip(",") for line in text.splitlines() if '"key": ' in line}
    assert eval(packed, namespace).tolist() == key.tolist()


def test_what_is_far_too_long_is_left_to_a_run_of_its_test():
    long = np.zeros((1, 5000), "float32")
    text = of_arguments(PORTABLE, "attention", {"query": long, "key": long, "value": long})
    assert f"attnspec check {PORTABLE.name} -k" in text
    assert len(text) < 200
