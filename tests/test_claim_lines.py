"""The claim of conformance, the line of a report that a machine reads."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from reported import ACCEPTED, DEVIATION, FAIL, KNOWN, PASS, PERFECT, SUBJECT, perfect

import attnspec as package
from attnspec import SpecError
from attnspec.backends import load
from attnspec.backends.constraints import Constraints
from attnspec.backends.user.function import backend_of
from attnspec.backends.user.settings import Settings
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.claim import CLASSES, FIELDS, claim_of, class_of, read_claim
from attnspec.conformance.render.markdown import to_markdown
from attnspec.conformance.render.screen import screen
from attnspec.conformance.results import Header
from attnspec.conformance.run.child import subject_of

PORTABLE = load("numpy-portable")


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


@pytest.mark.parametrize("item", ["encoding:e9", "scales:row", "equal:heads:heads", "requires:finite:finite"])
def test_a_constraint_that_no_product_has_is_no_part_of_a_claim(item):
    with pytest.raises(SpecError, match="claim: constraints: expected"):
        read_claim(LINE.replace("constraints=none", f"constraints={item}"))
    assert read_claim(LINE.replace("constraints=none", "constraints=scales:head,encoding:e4m3fn"))


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
        ("claims=none", "claims=MASK-1", "claim: claims: expected some of MASK-13"),
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
        ("product=m", "product=a\\qm", "claim: product: expected the form"),
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
