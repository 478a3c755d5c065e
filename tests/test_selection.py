"""Lists of selected keys: every legal list is accepted and every other one refused; attention over them."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests_support import own_case

from attnspec.backends import load
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.dtypes import in_dtype, lse_dtype
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.judge.judge import judge, judge_outputs
from attnspec.conformance.judge.lists import require_lists
from attnspec.conformance.render.finding import finding_text
from attnspec.conformance.run.child import with_traits
from attnspec.conformance.suite import groups_of
from attnspec.reference import indexer_scores, select_keys
from attnspec.reference.exact import evaluate as exact
from attnspec.reference.rational import evaluate as rational

BACKEND = load("numpy-portable")
NUMBERS = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 1.0, 2.0, np.inf, np.nan])


def case_of(rule="SELECT-1", **arguments):
    return own_case(rule, arguments, "select_keys")


def may_be_listed(arguments, i, j):
    """SELECT-2, SELECT-5 and SELECT-6, in the words of the chapter."""
    past = arguments.get("is_causal") and j > i + arguments.get("query_offset", 0)
    return not past and j < arguments.get("key_lengths", np.inf) and arguments["scores"][i, j] > -np.inf


def is_legal(arguments, i, entries):
    """Whether a list is one that the rules allow, by trying all pairs of a listed key and another."""
    scores, keys = arguments["scores"][i], [j for j in entries if j != -1]
    known = [j for j in range(len(scores)) if may_be_listed(arguments, i, j)]
    held = len({*keys}) == len(keys) == min(arguments["top_k"], len(known)) and {*keys} <= {*known}
    return held and not any(scores[k] > scores[j] for j in keys for k in known if k not in keys)


def is_accepted(arguments, entries):
    verdict = judge_outputs(BACKEND, case_of(**arguments), {"key_indices": np.array([entries])})
    return verdict.status == "pass"


@st.composite
def calls(draw):
    keys = draw(st.integers(1, 4))
    arguments = {
        "scores": np.array([draw(st.lists(NUMBERS, min_size=keys, max_size=keys))]),
        "top_k": draw(st.integers(1, 3)),
    }
    if draw(st.booleans()):
        arguments |= {"is_causal": True, "query_offset": draw(st.integers(-1, keys))}
    return arguments | ({"key_lengths": draw(st.integers(0, keys))} if draw(st.booleans()) else {})


@settings(max_examples=60, deadline=None, derandomize=True)
@given(calls())
def test_exactly_the_legal_lists_are_accepted(arguments):
    """Of all lists of keys, of -1 and of what is no key, in all orders."""
    entries = range(-2, arguments["scores"].shape[-1] + 1)
    legal = 0
    for chosen in itertools.product(entries, repeat=arguments["top_k"]):
        legal += is_legal(arguments, 0, chosen)
        assert is_accepted(arguments, chosen) == is_legal(arguments, 0, chosen), chosen
    assert legal


def breaks_a_must(arguments, entries):
    """Whether a list breaks one of SELECT-1 to SELECT-4 and SELECT-8, whatever it holds of other keys."""
    (scores,) = arguments["scores"]
    every, keys = range(len(scores)), [j for j in entries if j != -1]
    seen = [j for j in every if may_be_listed(arguments | {"scores": np.zeros((1, len(scores)))}, 0, j)]
    known = [j for j in every if may_be_listed(arguments, 0, j)]
    if not {*keys} <= {*seen} or len({*keys}) < len(keys):
        return True
    nan = [j for j in keys if np.isnan(scores[j])]
    larger = any(scores[k] > scores[j] for j in keys for k in known if k not in keys)
    few = len({*keys} & {*known, *nan}) < min(arguments["top_k"], len(known))
    return few or (larger and not nan)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(calls(), st.sampled_from(["SELECT-5", "SELECT-6"]))
def test_a_case_of_what_should_not_be_listed_fails_where_a_must_is_broken(arguments, rule):
    for chosen in itertools.product(range(-2, arguments["scores"].shape[-1] + 1), repeat=arguments["top_k"]):
        verdict = judge_outputs(BACKEND, case_of(rule, **arguments), {"key_indices": np.array([chosen])})
        expected = "fail" if breaks_a_must(arguments, chosen) else "should not met"
        assert verdict.status == ("pass" if is_legal(arguments, 0, chosen) else expected), chosen


@settings(max_examples=100, deadline=None, derandomize=True)
@given(calls())
def test_the_oracles_the_budget_and_the_reference_agree(arguments):
    """The oracles give the same counts, the budget is open where they are one half, and the list is legal."""
    one = exact.evaluate("select_keys", arguments)["key_indices"].values
    assert np.array_equal(one, rational.evaluate("select_keys", arguments)["key_indices"])
    assert np.array_equal(budgets_of(BACKEND, case_of(**arguments))["key_indices"] > 0, one == 0.5)
    assert is_legal(arguments, 0, select_keys(**arguments)[0].tolist())


@pytest.mark.parametrize(
    ("got", "rule", "kind"),
    [
        (np.array([[0, 1, -1]]), "SELECT-1", "shape"),
        (np.array([0, 1]), "SELECT-1", "shape"),
        (np.array([[0.0, 1.0]]), "SELECT-8", "dtype"),
        (np.array([[0, 1]], np.int8), "SELECT-8", "dtype"),
    ],
)
def test_what_is_no_list_of_the_call_is_refused(got, rule, kind):
    case = case_of(scores=np.array([[3.0, 2.0, 1.0]]), top_k=2)
    with pytest.raises(Failure) as failure:
        require_lists(case, {"key_indices": got})
    assert (failure.value.rule, failure.value.difference.kind) == (rule, kind)
    for dtype in (np.int32, np.int64):
        assert require_lists(case, {"key_indices": np.array([[1, 0]], dtype)})


def test_a_wrong_list_is_described_by_its_counts():
    case = case_of(scores=np.array([[3.0, 2.0, 1.0]]), top_k=2)
    verdict = judge_outputs(BACKEND, case, {"key_indices": np.array([[0, 0]])})
    assert (verdict.status, verdict.rule) == ("fail", "SELECT-1")
    assert (verdict.difference.element, verdict.difference.got, verdict.difference.expected) == ((0, 0), 2, 1)
    scores = np.arange(15.0).reshape(3, 5)
    lists = select_keys(scores, top_k=2, is_causal=True, query_offset=2)
    verdict = judge_outputs(BACKEND, case_of(scores=scores, top_k=2, is_causal=True), {"key_indices": lists})
    assert (verdict.status, verdict.rule, verdict.variant) == ("fail", "MASK-3", "bottom-right")
    declaring = replace(BACKEND, dialect={"MASK-3": "bottom-right"})
    verdict = judge_outputs(
        declaring, case_of(scores=scores, top_k=2, is_causal=True), {"key_indices": lists}
    )
    assert verdict.status == "deviation"


def test_a_report_names_the_count_the_key_and_the_rule_of_the_option():
    def without_lengths(scores, *, top_k, is_causal=False, query_offset=0, key_lengths=None):
        return select_keys(scores, top_k=top_k, is_causal=is_causal, query_offset=query_offset)

    drawn = (item for group in groups_of("selection") for item in group.items())
    cases = [case for case in drawn if case.operation == "select_keys" and case.dtype == "float32"]
    backend = replace(BACKEND, companions={**BACKEND.companions, "select_keys": without_lengths})
    verdicts = [with_traits(judge(backend, case), case) for case in cases]
    failures = [verdict for verdict in verdicts if verdict.status == "fail"]
    finding, *_ = findings(failures, verdicts)
    assert finding.rule == "SELECT-2"
    text = finding_text(finding)
    assert re.search(r"key_indices\[\d.*\]: counts \d of key \d+, expected \d", text)
    assert re.search(r'\["key_indices"\]\[\d+(, \d+)*\], expected\(case, backend\)\["key_indices"\]\[', text)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_scores_of_an_indexer_in_a_lower_precision_exceed_their_budget(dtype):
    """Those of float64 rounded once are within it, and the products rounded to 11 bits are not."""
    random = np.random.default_rng(1)
    shapes = {"index_query": (4, 3, 32), "index_key": (9, 32), "index_weights": (4, 3)}
    arguments = in_dtype({name: random.normal(size=shape) for name, shape in shapes.items()}, dtype)
    case = own_case("SELECT-10", arguments, "indexer_scores")
    wide = {name: x.astype(np.float64) for name, x in arguments.items()}
    scores = indexer_scores(**wide).astype(lse_dtype(dtype))
    assert judge_outputs(BACKEND, case, {"index_scores": scores}).status == "pass"
    rounded = scores.astype(np.float16).astype(scores.dtype)
    assert judge_outputs(BACKEND, case, {"index_scores": rounded}).status == "fail"
