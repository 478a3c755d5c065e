"""What a kernel requires of the numbers in a call, by its documentation: declared, advised, claimed."""

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_claim_lines import LINE
from tests_support import about

from attnspec import Case, reference
from attnspec.backends import describe, load
from attnspec.backends.constraints import Constraints
from attnspec.backends.errors import BackendError
from attnspec.backends.preconditions import PRECONDITIONS, breach_of
from attnspec.backends.user.inference import infer_configuration
from attnspec.conformance import check
from attnspec.conformance.attribution.declined import preconditions_of
from attnspec.conformance.attribution.finding import Finding
from attnspec.conformance.attribution.order import importance
from attnspec.conformance.attribution.precision import PRECISE
from attnspec.conformance.claim import read_claim
from attnspec.conformance.judge.traits import traits
from attnspec.conformance.render.finding import cause_lines, finding_line
from attnspec.conformance.suite import find
from attnspec.conformance.traits import SPECIAL
from attnspec.conformance.verdict import Difference, Verdict

ARRAY = np.ones((2, 4, 3), np.float32)
STARTS = np.array([0, 1, 4])
HEAD = dict.fromkeys(("query", "key", "value"), ARRAY)
#: By word: calls that lack it, and calls beside them that do not.
CALLS = {
    "finite": (
        [
            {"query": ARRAY * np.nan},
            {"value": ARRAY * np.inf},
            {"bias": ARRAY * np.inf},
            {"key": -ARRAY * np.inf},
        ],
        [{"query": ARRAY}, {"bias": ARRAY * -np.inf}, {"lses": ARRAY * -np.inf}, {"sinks": ARRAY * -np.inf}],
    ),
    "nonnegative": (
        [{"key_positions": np.array([0, -1])}, {"query_offset": -1}, {"offset": np.array([-2])}],
        [{"key_positions": np.array([0, 5])}, {"query_offset": 0}, {"query_offset": None}],
    ),
    "rows": (
        [{"query": ARRAY, "query_starts": STARTS + 1}, {"key": ARRAY, "key_starts": STARTS[:-1]}],
        [{"query": ARRAY, "key": ARRAY, "query_starts": STARTS, "key_starts": STARTS}],
    ),
    "distinct": (
        [
            {"key_indices": np.array([[1, 2, 1]])},
            {"block_indices": np.array([[1, 1, 2]]), "block_counts": np.array([2])},
        ],
        [
            {"key_indices": np.array([[1, -1, -1]])},
            {"block_indices": np.array([[1, 2, 1]]), "block_counts": np.array([2])},
        ],
    ),
    "offset": (
        [{"query_offset": np.array([1, 2])}, {"query_offset": np.array([3])}],
        [{"query_offset": 2}, {"query_offset": None}, {"offset": np.array([1, 2])}],
    ),
    "causal": (
        [{"window": (3, 0)}, {"window": (None, 2), "is_causal": False}],
        [{"window": (3, 0), "is_causal": True}, {"is_causal": False}, {"window": None}],
    ),
    "near": (
        [
            {"query_offset": 2**30},
            {"key_positions": np.array([0, 2**31])},
            {"window": (None, 2**31 - 1), "is_causal": True},
        ],
        [{"query_offset": 5}, {"query_positions": np.array([7])}, {"window": (3, None), "is_causal": True}],
    ),
    "nonempty": ([{"query": ARRAY[:0]}, {"key": ARRAY[:, :, :0]}], [{"query": ARRAY, "query_offset": 0}]),
    "sinks": (
        [
            HEAD | {"key_lengths": 0},
            HEAD | {"mask": ARRAY[..., :1] < 1, "d_output": ARRAY},
        ],
        [
            HEAD,
            HEAD | {"key_lengths": 0, "sinks": np.zeros(1)},
            HEAD | {"key_starts": STARTS, "key_lengths": 0},
        ],
    ),
}


@pytest.mark.parametrize("word", PRECONDITIONS)
def test_a_call_without_a_precondition_does_not_fit(word):
    lacking, having = CALLS[word]
    for call in lacking:
        assert breach_of([word], call) == f"takes only {PRECONDITIONS[word][0]}"
        assert not breach_of([other for other in PRECONDITIONS if other != word], call)
    assert not any(breach_of([word], call) for call in having)


def test_a_malformed_call_is_for_the_function_to_reject():
    malformed = [
        {"key_indices": 3.5},
        {"query": ARRAY, "query_starts": np.array(3)},
        {"block_indices": STARTS},
    ]
    assert not any(breach_of(PRECONDITIONS, call) for call in malformed)


def without_nan(query, key, value, *, scale=None, mask=None):
    """A kernel whose maximum skips NaN: a row with a score of NaN gets the weights of the other keys."""
    query, key = (np.where(np.isnan(array), 0, array) for array in (query, key))
    return reference.attention(query, key, value, scale=scale, mask=mask, dtype=query.dtype)


def test_a_report_names_the_precondition_and_a_run_with_it_is_good():
    rules = ["NUM-11", "SCORE-2", "MASK-1"]
    before, after = (
        check(kernel, rules=rules, quick=True)
        for kernel in (without_nan, describe(without_nan, requires=["finite"]))
    )
    text = " ".join(before.text.split())
    assert not before.good
    assert "conforms but for calls with NaN or infinity: 24 cases" in text
    assert 'if its documentation requires finite numbers: requires = ["finite"] under [backend]' in text
    assert after.good
    left_out = [x for x in after.report.results.verdicts if "takes only finite numbers" in x.reason]
    assert {verdict.status for verdict in left_out} == {"unsupported"}
    failing = {x.case for x in before.report.results.verdicts if x.bad}
    assert failing <= {verdict.case for verdict in left_out}


def test_a_bug_of_other_calls_gets_no_such_advice():
    def doubled(query, key, value, *, scale=None, mask=None):
        return without_nan(query, key, value, scale=scale, mask=mask) * query.dtype.type(2)

    assert "requires = " not in check(doubled, rules=["NUM-11", "NUM-12", "SCORE-2"], quick=True).text


def test_what_many_right_calls_lack_is_no_precondition():
    drawn = [
        case for case in about("NUM-11", "SCORE-2") if isinstance(case, Case) and case.dtype == "float32"
    ]
    attention = [case for case in drawn if case.operation == "attention"]
    lacking = [case for case in attention if breach_of(["finite"], case.arguments)]
    others = [case for case in attention if case not in lacking]
    verdicts = {
        case.name: Verdict(
            "k", case.name, "", case.rules, "pass", "float32", "attention", traits=traits(case)
        )
        for case in attention
    }
    failing, *right = (verdicts[case.name] for case in lacking)
    ordinary = [verdicts[case.name] for case in others]
    assert len(right) > 9 < len(ordinary)
    assert preconditions_of([failing], ordinary) == ("finite",)
    assert preconditions_of([failing], right) == ()
    assert preconditions_of([failing, ordinary[0]], ordinary) == ()


def test_two_preconditions_are_named_where_one_does_not_describe_all_calls():
    names = "numerics-nan-bias-float32", "notation-nothing-to-compute-keys-1-float32"
    verdicts = [
        Verdict("k", case.name, "", case.rules, "fail", "float32", "attention", traits=traits(case))
        for case in map(find, names)
    ]
    found = preconditions_of(verdicts, ())
    assert {*found} == {"finite", "nonempty"}
    finding = Finding(verdicts[0].rules[0], tuple(verdicts), preconditions=found)
    assert f'(2 cases) (none with requires = ["{found[0]}", "{found[1]}"])' in finding_line(finding)
    words = " and ".join(PRECONDITIONS[name][0] for name in found)
    assert f"if its documentation requires {words}: requires = [" in "\n".join(cause_lines(finding))


def test_a_headline_says_that_only_negative_positions_of_keys_fail():
    def kernel(query, key, value, *, key_positions=None, query_positions=None, is_causal=False):
        options = {"is_causal": is_causal, "query_positions": query_positions}
        if key_positions is not None:
            options["key_positions"] = key_positions + 100
            options["query_positions"] = query_positions + 100
        return reference.attention(query, key, value, **options, dtype=query.dtype)

    found = check(kernel, rules=["MASK-14", "MASK-15", "SOFT-1"], quick=True, dtypes=["float32"])
    text = " ".join(found.text.split())
    assert "conforms but for calls with a negative `key_positions`" in text
    assert 'requires = ["nonnegative"]' in text


def test_calls_that_lack_a_precondition_come_after_others():
    off = Difference("value", "output", (0,), 1.0, 2.0)
    verdict = Verdict("k", "a-float32", "", ("MASK-3",), "fail", rule="MASK-3", difference=off)
    few = Finding("MASK-3", (verdict,))
    many = Finding("MASK-15", (replace(verdict, rule="MASK-15"),) * 9)
    lacking = replace(many, preconditions=("nonnegative",))
    assert importance(many, 10) < importance(few, 10) < importance(lacking, 10)
    special = Finding("NUM-11", (replace(verdict, rule="NUM-11", traits=(SPECIAL,)),) * 99)
    rounding = Finding("NUM-5", (replace(verdict, rule="NUM-5"),), kind=PRECISE)
    assert importance(lacking, 10) < importance(rounding, 10) < importance(special, 10)


OF_SINKS = """
import numpy as np


def attention(query, key, value, sinks, *, is_causal=False):
    groups = query.shape[-3] // key.shape[-3]
    key, value = (np.repeat(x, groups, axis=-3) for x in (key, value))
    scores = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    seen = np.tri(*scores.shape[-2:], k=key.shape[-2] - query.shape[-2], dtype=bool)
    scores = np.where(seen, scores, -np.inf) if is_causal else scores
    sinks = sinks[:, None, None]
    most = np.maximum(scores.max(axis=-1, keepdims=True, initial=-np.inf), sinks)
    most = np.where(np.isinf(most) & FINITE, 0, most)
    terms = np.exp(scores - most)
    total = terms.sum(axis=-1, keepdims=True) + np.exp(sinks - most)
    return (terms @ value / np.where(total > 0, total, 1)).astype(query.dtype)
"""


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize(("finite", "requires"), [("False", ["sinks"]), ("True", None)])
def test_a_function_that_needs_sinks_and_is_right_beside_finite_ones_requires_them(finite, requires):
    Path("of_sinks.py").write_text(OF_SINKS.replace("FINITE", finite))
    text = infer_configuration("./of_sinks.py:attention")
    found = tomllib.loads(text)["backend"]
    assert (found.get("requires"), found["dialect"]) == (requires, {"MASK-3": "bottom-right"})
    Path("attnspec.toml").write_text(text)
    assert check(load("."), rules=["MASK-3", "MASK-6", "SOFT-5"], quick=True, dtypes=["float32"]).good


@pytest.mark.parametrize("slopes", ["end", "signed.end"])
def test_a_claim_lists_preconditions(slopes):
    constraints = Constraints(requires=("finite", "rows"), slopes=slopes).others
    assert constraints == f"slopes.{slopes}-requires.finite.rows"
    assert Constraints.of_suffix(constraints).slopes == slopes
    line = LINE.replace(
        "constraints=none", f"constraints={constraints.replace('.', ':').replace('-', ',')},serial"
    )
    assert read_claim(line)["constraints"] == [
        f"slopes:{slopes.replace('.', ':')}",
        "requires:finite:rows",
        "serial",
    ]
    assert Constraints.of_suffix("requires.finite.rows").requires == ("finite", "rows")


def test_another_word_is_an_error():
    with pytest.raises(BackendError, match=r"requires: expected some of finite, .*, got \['finites'\]"):
        check(describe(without_nan, requires=["finites"]), rules=["SCORE-2"], quick=True)


def of_one_offset(query, key, value, *, is_causal=False, query_offset=0):
    if np.ndim(query_offset):
        raise TypeError("query_offset: expected one number")
    options = {"is_causal": is_causal, "query_offset": query_offset}
    return reference.attention(query, key, value, **options, dtype=query.dtype)


def of_causal_windows(query, key, value, *, is_causal=False, window=None):
    if window is not None and not is_causal:
        raise ValueError("window needs is_causal=True")
    return reference.attention(query, key, value, is_causal=is_causal, window=window, dtype=query.dtype)


def of_near_windows(query, key, value, *, window=None):
    """A kernel whose bounds of windows wrap in 32 bits."""
    sides = window and tuple(0 if side is not None and side > 2**31 - 8 else side for side in window)
    return reference.attention(query, key, value, window=sides, dtype=query.dtype)


@pytest.mark.parametrize(
    ("kernel", "rule", "word"),
    [
        (of_one_offset, "MASK-7", "offset"),
        (of_causal_windows, "MASK-8", "causal"),
        (of_near_windows, "MASK-8", "near"),
    ],
)
def test_a_call_with_several_offsets_a_window_alone_or_a_far_bound_names_the_precondition(kernel, rule, word):
    before, after = (
        check(each, rules=[rule], quick=True, dtypes=["float32"])
        for each in (kernel, describe(kernel, requires=[word]))
    )
    assert f'requires = ["{word}"] under [backend] in attnspec.toml' in before.text
    assert after.good
