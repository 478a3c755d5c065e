"""Claims: how an implementation declares one, what follows if it does not hold, and the line of a report."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reported import ACCEPTED, DEVIATION, FAIL, KNOWN, PASS, PERFECT, SUBJECT, perfect
from tests_support import attnspec

import attnspec as package
from attnspec import SpecError, claimable, rules
from attnspec.backends import Backend, BackendError, Deviation, implementation, load
from attnspec.backends.check import check_backend
from attnspec.backends.constraints import Constraints
from attnspec.backends.outcome import Bound
from attnspec.backends.program.protocol import parse_handshake
from attnspec.backends.user.function import backend_of
from attnspec.backends.user.settings import Settings
from attnspec.conformance import check
from attnspec.conformance.attribution.levels import rule_results
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.claim import CLASSES, FIELDS, claim_of, class_of, read_claim
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.call import without
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.markdown import to_markdown
from attnspec.conformance.render.screen import screen
from attnspec.conformance.render.summary import missing_rules
from attnspec.conformance.render.text import verdict_text
from attnspec.conformance.results import Header, Results, Subject
from attnspec.conformance.run.child import subject_of
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
        ('claims = ["INV-1", "MASK-1"]', "claims: expected some of NUM-10, INV-1, .*, got MASK-1$"),
        ('claims = ["NUM-9"]', "claims: expected some of NUM-10, .*, got NUM-9$"),
        ('claims = ["INV-99"]', "claims: expected some of NUM-10, .*, got INV-99$"),
        ("claims = [3]", r"claims: expected a tuple of some of NUM-10, .*, got \(3,\)$"),
    ],
)
def test_a_claim_that_is_none_is_refused_by_its_key(folder, line, message):
    add(folder, line)
    with pytest.raises(BackendError, match=message):
        load(str(folder))


@pytest.mark.parametrize("claims", [["INV-1"], "INV-1", ("MUST",), ("GRAD-1",), (["INV-1"],)])
def test_a_backend_is_checked_too(claims):
    with pytest.raises(BackendError, match=r"backend b: claims: expected .*some of NUM-10, INV-1"):
        check_backend("b", replace(PORTABLE, claims=claims))


def test_what_can_be_claimed():
    for rule in rules():
        backend = replace(PORTABLE, claims=(rule.id,))
        if rule.level == "MAY":
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
        with pytest.raises(BackendError, match=rf"hello: claims: expected some of NUM-10, .*, got {got}$"):
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


def test_a_claim_of_conformance_is_read_back():
    """The line of a report has every field, and what is read back from it makes the same line."""
    subject = replace(SUBJECT, kind="adapted", profile="tf32", claims="NUM-10,INV-1")
    declined = replace(PASS, case="d-float32", status="unsupported", declined=True, rules=("MASK-8",))
    results = perfect(DEVIATION, ACCEPTED, declined, subjects=(subject,))
    report = Report(results)
    line = claim_of(report, subject)
    assert f"claim: {line}" in screen(report, width=80).splitlines()
    assert f"- claim: `{line}`" in to_markdown(report).splitlines()
    line = line.replace("=1;", "=2026.11.25;")
    claim = read_claim(f"claim: {line}")
    assert tuple(claim) == FIELDS
    values = [value if isinstance(value, str) else ",".join(value) or "none" for value in claim.values()]
    assert "; ".join(map("=".join, zip(claim, values, strict=True))) == line
    assert (claim["class"], claim["profile"], claim["dtypes"]) == ("adapted", "tf32", ["float32"])
    assert (claim["variants"], claim["deviations"]) == (["MASK-3:bottom-right"], ["SHAPE-6"])
    assert claim["claims"] == ["NUM-10", "INV-1"]
    assert "grouped" in claim["levels"]
    assert not {"strict", "masked"} & {*claim["levels"]}, "they lack SHAPE-6 and MASK-3"
    assert re.fullmatch(r"1/\d+ MASK-8", claim["declined"])


@pytest.mark.parametrize(
    ("name", "variant", "product", "items"),
    [
        ("a;b:f", "uniform", "a,b:f", ["MASK-6:uniform"]),
        ("./\u044f\t.py:f", "mask: uniform", "./\\u044f .py:f", ["MASK-6:mask:uniform"]),
        ("C:\\m.py:f", "uniform", "C:\\u005cm.py:f", ["MASK-6:uniform"]),
        ("m:f", "mask: uniform, bias: nan", "m:f", ["MASK-6:bias:nan", "MASK-6:mask:uniform"]),
    ],
)
def test_a_claim_of_any_name_and_any_variant_is_read_back(name, variant, product, items):
    shown = replace(DEVIATION, backend=name, rule="MASK-6", rules=("MASK-6",), variant=variant)
    subject = replace(SUBJECT, name=name, kind="function")
    results = perfect(shown, subjects=(subject,))
    results = replace(results, verdicts=tuple(replace(one, backend=name) for one in results.verdicts))
    claim = read_claim(claim_of(Report(results), subject).replace("=1;", "=2026.11.25;"))
    assert claim["product"].startswith(product)
    assert claim["variants"] == items


def test_there_is_no_claim_of_a_run_with_known_failures():
    subject = replace(SUBJECT, kind="function")
    results = perfect(FAIL, subjects=(subject,))
    report = Report(results, [KNOWN])
    assert report.outcome_of(subject) is Outcome.GOOD
    assert claim_of(report, subject) == ""


@pytest.mark.parametrize(
    "results",
    [
        perfect(FAIL),
        perfect(headers=(Header("1", "quick"),)),
        perfect(subjects=(replace(SUBJECT, problem="x"),)),
        perfect(*(replace(PASS, case=f"d-{n}", status="unsupported", declined=True) for n in range(999))),
    ],
)
def test_there_is_no_claim_of_a_run_that_fails_is_not_whole_or_declines_most_calls(results):
    (subject,) = (replace(one, kind="function") for one in results.subjects)
    report = Report(replace(results, subjects=(subject,)))
    assert claim_of(report, subject) == ""
    assert claim_of(Report(PERFECT), replace(SUBJECT, kind="function"))


LINE = claim_of(Report(PERFECT), replace(SUBJECT, kind="function")).replace("=1;", "=2026.11.25;")
CALLS = LINE.rpartition("/")[2].partition(" ")[0]


def test_a_claim_lists_the_constraints_of_the_product():
    limits = Constraints(depths=(8, 64), multiple=(1, 16), heads="equal", one_query=True)
    fitted = replace(PASS, case=f"scores-fitted-1+{limits.suffix}-float32")
    others = Constraints(bias_dtype="query", slopes="start")
    serial = subject_of("m:f", replace(PORTABLE, constraints=others, concurrent=False)).constraints
    line, plain, other = (
        claim_of(Report(perfect(*more, subjects=(subject,))), subject).replace("=1;", "=2026.11.25;")
        for more, subject in (
            ((fitted,), replace(SUBJECT, kind="function")),
            ((), replace(SUBJECT, kind="function")),
            ((fitted,), replace(SUBJECT, kind="function", constraints=serial)),
        )
    )
    assert "; constraints=d8:64,s16,equal:heads,one:query; profile" in line
    assert read_claim(line)["constraints"] == ["d8:64", "s16", "equal:heads", "one:query"]
    assert "; constraints=none; " in plain
    assert "; constraints=d8:64,s16,equal:heads,one:query,bias:query,slopes:start,serial; " in other
    assert read_claim(other)["constraints"][-3:] == ["bias:query", "slopes:start", "serial"]


@pytest.mark.parametrize("concurrent", [True, False])
def test_a_claim_says_that_calls_are_made_one_at_a_time(concurrent):
    subject = subject_of(SUBJECT.name, replace(PORTABLE, concurrent=concurrent))
    line = claim_of(Report(perfect(subjects=(subject,))), subject).replace("=1;", "=2026.11.25;")
    assert read_claim(line)["constraints"] == ([] if concurrent else ["serial"])


def test_a_function_that_requires_a_scale_is_one_and_reaches_core():
    def attention(query, key, value, *, scale, mask=None):
        return PORTABLE.attention(query, key, value, scale=scale, mask=mask)

    subject = subject_of("m:f", backend_of("m:f", attention, Settings(), "numpy"))
    assert subject.kind == "function"
    axes = backend_of("m:f", attention, Settings(fields={"constraints": Constraints(axes=4)}), "numpy")
    assert class_of("m:f", axes) == "adapted"
    no_default = [
        replace(verdict, status="unsupported") if verdict.rules == ("SCORE-2",) else verdict
        for verdict in PERFECT.verdicts
    ]
    report = Report(replace(PERFECT, subjects=(subject,), verdicts=tuple(no_default)))
    assert "core" in report.levels_reached(subject)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("; class=function", "", "claim: expected the fields attnspec, product, class"),
        ("class=function", "class=kernel", "claim: class: expected some of function, adapted.*got 'kernel'"),
        ("levels=core", "levels=gold", "claim: levels: .*got 'gold'"),
        ("constraints=none", "constraints=depth8", "claim: constraints: case: expected a suffix"),
        ("dtypes=float32", "dtypes=float8", "claim: dtypes: .*got 'float8'"),
        ("variants=none", "variants=MASK-3:left", "claim: variants: expected some of bottom-right"),
        ("deviations=none", "deviations=MASK-99", "rule: expected an id"),
        ("deviations=none; claims=none", "deviations=INV-1; claims=INV-1", "claims: .*got 'INV-1'"),
        ("declined=0/", "declined=many/", "claim: declined: expected the form"),
        ("declined=0/", "declined=1/", "claim: declined: expected at most half"),
        (" none", " FOO-9", "rule: expected an id"),
        ("attnspec=", "attnspec=v", "claim: attnspec: expected the form"),
        ("product=m:f (numpy 2.4)", "product=", "claim: product: expected the form"),
        ("profile=none", "profile=banana", "claim: profile: expected some of none, matrix"),
        ("claims=none", "claims=MASK-1", "claim: claims: expected some of NUM-10"),
        ("claims=none", "claims=NUM-10,", "claim: claims: expected the form"),
        ("levels=core,", "levels=", "claim: levels: expected some of .*got 'core'"),
        (" none", " MASK-8", "claim: declined: expected at most half"),
        ("levels=core,", "levels=core,core,", "claim: levels: expected each once"),
        ("variants=none", "variants=MASK-6:uniform", "claim: levels: .* none with MASK-6, got 'masked'"),
        ("deviations=none", "deviations=SCORE-1", "claim: levels: expected none with SCORE-1, got 'core'"),
        ("variants=none", "variants=MASK-3:mask:bottom-right", "claim: variants: .* some of , got 'mask'"),
        ("declined=0/", "declined=00/", "claim: declined: expected the form"),
        (" none", " MASK-1,MASK-1", "claim: declined: expected each once"),
        ("product=m", "product=\u044f", "claim: product: expected the form"),
        ("product=m", "product=\t", "claim: product: expected the form"),
        ("=2026.11.25;", "=2026.111.25;", "claim: attnspec: expected the form"),
        ("=2026.11.25;", "=2026.13.25;", "claim: attnspec: expected a date"),
        ("=2026.11.25;", "=2026.11.45;", "claim: attnspec: expected a date"),
        ("=2026.11.25;", "=2026.00.00;", "claim: attnspec: expected a date"),
        ("dtypes=float32", "dtypes=none", "claim: dtypes: expected some beside levels"),
        ("constraints=none", "constraints=always:causality", "claim: constraints: .*is_causal.*'causality'"),
        ("constraints=none", "constraints=d0", "claim: constraints: case: expected a suffix"),
        ("constraints=none", "constraints=l0", "claim: constraints: case: expected a suffix"),
        (
            "dtypes=float32; constraints=none; profile=none",
            "dtypes=float16; constraints=none; profile=matrix",
            "claim: levels: expected no exact in float16 with a profile",
        ),
        (f"declined=0/{CALLS}", "declined=0/0", "claim: declined: expected at most half"),
        (f"/{CALLS} none", f"/{CALLS} none\n", "claim: declined: expected the form"),
        ("=2026.11.25;", "=2026.11.\u0662\u0665;", "claim: attnspec: expected the form"),
        ("declined=0/", "declined=9999/", "claim: declined: expected at most half"),
    ],
)
def test_a_claim_that_the_text_excludes_is_refused(before, after, message):
    assert before in LINE
    with pytest.raises(SpecError, match=message):
        read_claim(LINE.replace(before, after))


def test_the_fields_and_classes_of_a_claim_are_those_of_the_page():
    page = (Path(package.__file__).parent / "conformance.md").read_text(encoding="utf-8")
    fields = re.findall(r"^    (attnspec=.*)$", page, re.MULTILINE)[0]
    classes = page.partition("## Adapters")[0]
    assert tuple(part.partition("=")[0] for part in fields.split("; ")) == FIELDS
    assert tuple(re.findall(r"^\| `(\w+)` \|", classes, re.MULTILINE)) == CLASSES
