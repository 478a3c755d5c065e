"""Claims: how an implementation declares one, and what follows if it does not hold."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests_support import attnspec

from attnspec import claimable, rules
from attnspec.backends import Backend, BackendError, Deviation, implementation, load
from attnspec.backends.check import check_backend
from attnspec.backends.outcome import Bound
from attnspec.backends.program.protocol import parse_handshake
from attnspec.conformance import check
from attnspec.conformance.attribution.levels import rule_results
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.call import without
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.summary import missing_rules
from attnspec.conformance.render.text import verdict_text
from attnspec.conformance.results import Header, Results, Subject
from attnspec.conformance.suite import find
from attnspec.conformance.verdict import Verdict, shown_declarations

PORTABLE = load("numpy-portable")
#: A relation between small calls, and one that this implementation breaks.
ALONE = "numerics-batch-entry-alone-1-float32"
WRONG = entry("sums_in_another_order_in_a_batch").backend()

MODULE = """\
import numpy as np

def plain(query, key, value, *, scale=None):
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query[..., :, None, :] * key[..., None, :, :]).sum(axis=-1) * scale
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e30))
    weights = weights / weights.sum(axis=-1, keepdims=True)
    return (weights[..., None] * value[..., None, :, :]).sum(axis=-2).astype(query.dtype)
"""
DEVIATING = """[[backend.deviations]]
rules = ["INV-1"]
reason = "r"
source = "s"
outcome = { kind = "Bound" }"""


@pytest.fixture
def folder(tmp_path):
    """A function with a configuration whose last line is to be added."""
    (tmp_path / "claiming.py").write_text(MODULE)
    (tmp_path / "attnspec.toml").write_text('[backend]\nfunction = "claiming:plain"\nheads = "equal"\n')
    return tmp_path


def add(folder, line):
    path = folder / "attnspec.toml"
    path.write_text(path.read_text() + line + "\n")


def test_a_configuration_claims(folder):
    add(folder, 'claims = ["NUM-10", "INV-1"]')
    backend = load(str(folder))
    assert backend.claims == ("NUM-10", "INV-1")
    assert "claims NUM-10, INV-1" in backend.notes


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f'claims = ["INV-1"]\n{DEVIATING}', "rules without a declared deviation, got INV-1$"),
        ('claims = "INV-1"', "attnspec.toml: claims: expected a list of rules, got 'INV-1'"),
        ('claims = ["INV-1", "MASK-1"]', "claims: expected some of MASK-13, .*, got MASK-1$"),
        ('claims = ["NUM-12"]', "claims: expected some of MASK-13, .*, got NUM-12$"),
        ('claims = ["INV-99"]', "claims: expected some of MASK-13, .*, got INV-99$"),
        ("claims = [3]", r"claims: expected a tuple of some of MASK-13, .*, got \(3,\)$"),
    ],
)
def test_a_claim_that_is_none_is_refused_by_its_key(folder, line, message):
    add(folder, line)
    with pytest.raises(BackendError, match=message):
        load(str(folder))


@pytest.mark.parametrize("claims", [["INV-1"], "INV-1", ("MUST",), ("GRAD-1",), (["INV-1"],)])
def test_a_backend_is_checked_too(claims):
    with pytest.raises(BackendError, match=r"backend b: claims: expected .*some of MASK-13, CACHE-5"):
        check_backend("b", replace(PORTABLE, claims=claims))


def test_what_can_be_claimed():
    for rule in rules():
        backend = replace(PORTABLE, claims=(rule.id,))
        if rule.level in ("SHOULD", "MAY"):
            check_backend("b", backend)
        else:
            with pytest.raises(BackendError, match=f"got {rule.id}$"):
                check_backend("b", backend)
    deviation = Deviation(("INV-2",), "splits", "s", Bound())
    check_backend("b", replace(PORTABLE, claims=("INV-1",), deviations=(deviation,)))
    backend = entry("tiles_of_a_fixed_size").backend()
    assert backend.claims == claimable()
    check_backend("b", backend)
    one = np.ones((1, 1), np.float32)
    assert backend.attention(one, one, one) == 1


def test_a_decorator_and_a_check_claim():
    @implementation(claims=["NUM-10"])
    def attention(query, key, value):
        return WRONG.attention(query, key, value)

    found = check(attention, cases=[ALONE])
    assert not found.good
    assert "the implementation claims this rule" in found.text

    def plain(query, key, value):
        return WRONG.attention(query, key, value)

    assert not check(plain, cases=[ALONE], claims=("NUM-10",)).good
    unclaimed = check(plain, cases=[ALONE, "softmax-002-float32"])
    assert unclaimed.good
    with pytest.raises(BackendError, match="backend plain: claims: expected a list of rules, got 'NUM-10'"):
        check(plain, claims="NUM-10")
    with pytest.raises(BackendError, match=r"backend plain: claims: expected some of .*, got SOFT-1"):
        check(plain, claims=["SOFT-1"])


def test_a_program_claims_in_its_hello():
    hello = {"protocol": 1, "dtypes": ["float32"], "operations": {"attention": []}}
    assert parse_handshake("p", json.dumps(hello)).claims == ()
    assert parse_handshake("p", json.dumps(hello | {"claims": ["INV-1"]})).claims == ("INV-1",)
    for claims, got in (("INV-1", "'INV-1'"), (["MASK-1"], r"\['MASK-1'\]"), (None, "None"), ([3], r"\[3\]")):
        with pytest.raises(BackendError, match=rf"hello: claims: expected some of MASK-13, .*, got {got}$"):
            parse_handshake("p", json.dumps(hello | {"claims": claims}))


def test_what_a_program_claims_is_what_its_backend_claims():
    program = Path(__file__).parent / "misbehaving.py"
    backend = load(f"program:{sys.executable} -S {program} claims_two_rules")
    assert (backend.claims, backend.concurrent) == (("NUM-10", "INV-8"), False)
    threads = judge(backend, find("invariance-threads-1-float32"))
    assert (threads.status, threads.rule) == ("unsupported", "")
    assert threads.reason.endswith("cannot be called from several threads")
    assert judge(backend, find(ALONE)).status == "pass", "of zeros"


def test_answers_from_files_claim_in_their_hello(tmp_path):
    from attnspec.backends.program.answers import ANSWERS, recorded_backend
    from attnspec.conformance.run.offline import export_calls

    export_calls([find(ALONE)], tmp_path)
    hello = {"protocol": 1, "dtypes": ["float32"], "operations": {"attention": []}, "claims": ["NUM-10"]}
    (tmp_path / ANSWERS).write_text(json.dumps(hello) + "\n")
    backend = recorded_backend("offline", tmp_path)
    assert (backend.claims, backend.concurrent) == (("NUM-10",), False)
    assert judge(backend, find("invariance-threads-1-float32")).status == "unsupported"


@pytest.mark.parametrize(("claims", "status"), [((), "unsupported"), (("NUM-10",), "fail")])
def test_a_claim_makes_a_failure_of_what_is_not_shown(claims, status):
    verdict = judge(replace(WRONG, claims=claims), find(ALONE))
    assert (verdict.status, verdict.rule, verdict.difference.kind) == (status, "NUM-10", "bits")
    assert rule_results(verdict) == {"NUM-10": "fail" if claims else "not shown"}
    assert ("the implementation claims this rule" in verdict_text(verdict)) is bool(claims)


def test_claims_of_other_rules_claims_that_hold_and_errors_under_claims():
    assert judge(replace(WRONG, claims=("INV-1",)), find(ALONE)).status == "unsupported"
    assert judge(replace(PORTABLE, claims=("NUM-10",)), find(ALONE)).status == "pass"

    def attention(query, key, value):
        if len(query) == 1:
            raise RuntimeError("no batch of one")
        return PORTABLE.attention(query, key, value)

    backend = Backend("b", PORTABLE.array_library, attention, claims=("NUM-10",))
    verdict = judge(backend, find(ALONE))
    assert (verdict.status, verdict.rule, verdict.raised.message) == ("error", "NUM-10", "no batch of one")
    assert judge(replace(backend, claims=()), find(ALONE)).status == "unsupported"


def test_a_claim_that_nothing_could_judge_is_an_error_of_a_whole_run():
    backend = replace(without(PORTABLE, "key_lengths", "query_lengths"), claims=("NUM-10", "INV-3"))
    padding = [f"invariance-padding-{of}-lengths-1-float32" for of in ("key", "query")]
    found = [judge(backend, find(name)) for name in (ALONE, *padding)]
    assert [verdict.status for verdict in found] == ["pass", "unsupported", "unsupported"]
    (missing,) = not_shown(backend, shown_declarations(found))
    assert (missing.status, missing.rule) == ("error", "INV-3")
    assert missing.reason == "numpy-portable claims INV-3, and no case could judge it"
    subject = Subject(backend.name, "numpy", "2")
    report = Report(Results((subject,), (*found, missing), (Header("1", "whole"),)))
    assert report.outcome is Outcome.FAILS


@pytest.mark.parametrize(
    ("status", "rule", "counts"),
    [
        ("pass", "", True),
        ("fail", "INV-3", True),
        ("error", "INV-3", True),
        ("unsupported", "", False),
        ("unsupported", "INV-3", False),
    ],
)
def test_what_shows_a_claim(status, rule, counts):
    """What was not claimed when it was judged is no verdict on a claim."""
    backend = replace(PORTABLE, claims=("INV-3",))
    verdict = Verdict("b", "c", "", ("INV-3",), status, rule=rule)
    assert bool(not_shown(backend, shown_declarations([verdict]))) is not counts


def test_a_level_of_mays_that_are_not_shown_is_lacked_silently():
    """It counts neither way, so that no other level is nearer or farther."""
    subject = Subject("b", "numpy", "2")
    passing = [Verdict("b", "c-float32", "", (rule.id,), "pass", "float32") for rule in rules()]
    hidden = Verdict("b", "d-float32", "", ("INV-4",), "unsupported", "float32", rule="INV-4")
    report = Report(Results((subject,), (*passing, hidden), (Header("1", "whole"),)))
    assert [one.level for one in report.standings(subject) if not one.reached] == ["invariant"]
    assert missing_rules(report, subject) == ""
    assert report.outcome is Outcome.GOOD
    claimed = replace(hidden, status="fail")
    report = Report(Results((subject,), (*passing, claimed), (Header("1", "whole"),)))
    assert missing_rules(report, subject) == "; invariant lacks INV-4 (fail)"
    assert report.outcome is Outcome.FAILS


@pytest.mark.exhaustive
def test_a_run_of_the_level_judges_claims_and_says_what_it_could_not(folder):
    add(folder, 'claims = ["INV-1", "INV-3"]')
    ended = attnspec("check", "--level", "invariant", cwd=folder, status=1)
    assert "claiming:plain claims INV-3, and no case could judge it" in ended.stdout
    assert "claiming:plain: claims INV-1, INV-3" in ended.stdout
    (row,) = [line for line in ended.stdout.splitlines() if line.startswith("│ INV-3")]
    assert "ERROR 1 of 1" in row
    assert "│ INV-1 " not in ended.stdout, "it passes"
