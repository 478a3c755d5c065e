"""Causes: failures with one cause are one finding, under the rule that describes it best; and its text."""

import re
from dataclasses import replace

import numpy as np
import pytest
from reported import ERROR, FAIL, PASS, RESULTS

from attnspec import Case, find_case
from attnspec.backends import load
from attnspec.conformance.attribution.causes import findings, message_words
from attnspec.conformance.attribution.diagnosis import diagnose
from attnspec.conformance.attribution.finding import Common, Finding
from attnspec.conformance.attribution.levels import count_by_rule
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.failure import own_place
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.judge.traits import describe, numbers, traits
from attnspec.conformance.render.finding import cause_lines, finding_text, trait_text
from attnspec.conformance.render.screen import screen
from attnspec.conformance.results import Header, Results, Subject
from attnspec.conformance.suite import find
from attnspec.conformance.verdict import Difference, Raise, Verdict

PORTABLE = load("numpy-portable")
#: A difference that says nothing of its size; a large one, one of a few budgets, one of a rounding, a trace.
OFF = Difference("value", "output", share=1e6)
WRONG = Difference("value", "output", (0,), 1.5, 1.0, share=4e5)
SLIGHT = Difference("value", "output", (0,), 1.01, 1.0, share=1.2)
ROUNDED = Difference("value", "output", got=1.0, expected=1.0 + 1e-7, share=2.0)
TRACE = Difference("value", "weights", (0,), 1.6e-28, 0.0)
NAN = Difference("pattern", "output", (0,), float("nan"), 0.0)
RAISED = Raise("ValueError", "no", "/m.py", 3, "f")
DIFFERENCES = {
    "wrong": WRONG,
    "slight": SLIGHT,
    "as-slight": replace(SLIGHT, share=1e5),
    "slighter": replace(SLIGHT, share=1e5, got=1.0001),
    "rounded": ROUNDED,
    "half": replace(OFF, share=900.0),
    "few-budgets": replace(OFF, share=15.0),
    "trace": TRACE,
    "trace-of-allowed": replace(TRACE, expected=1e-40),
    "tiny": replace(TRACE, got=6e-29, expected=1e-30, share=9.0),
    "nan": NAN,
    "bits": replace(OFF, kind="bits"),
    "shape": Difference("shape", "output", got="(2, 4)", expected="(2, 5)"),
    "dtype": Difference("dtype", "output", got="float64"),
    "lse": Difference("pattern", "lse", (), 1.0, 2.0),
    "lse-of-nothing": Difference("pattern", "lse", (), 1.0, -np.inf),
}
#: The values of fields that are no text.
VALUES = {"no": False, "yes": True, "many": 99} | {
    rules: tuple(rules.split(",")) for rules in ("MASK-1,ERR-3", "GRAD-9,MASK-1")
}


def fail(number, rule, *having, name="", dtype="float32", **fields):
    """Failures under a rule, of calls with some traits. They differ in their case alone."""
    fields = {"status": "fail", "rule": rule, "rules": (rule,), "difference": OFF, "group": "g"} | fields
    cases = [f"{name or rule}-{n}-{dtype}" for n in range(number)]
    return [Verdict("b", case, dtype=dtype, traits=having, **fields) for case in cases]


def ok(number, *having, rule="SOFT-1", **fields):
    """Passing calls with some traits."""
    return fail(number, rule, *having, name=f"ok {having}", status="pass", difference=None, **fields)


def error(number, message, *having, rule="SHAPE-5", name="", **fields):
    """Calls that raise."""
    fields = {"status": "error", "raised": replace(RAISED, message=message)} | fields
    return fail(number, rule, *having, name=name or message, difference=None, **fields)


def ended(number, reason="was killed"):
    """Calls in which the process ended."""
    return error(number, "", rule="NUM-3", name=reason, reason=reason, raised=Raise("", "", "/m.py", 9))


def refused(number, rule, **fields):
    """Calls that must be refused and are not."""
    return fail(number, rule, "refused", difference=None, reason="expected an error, got output", **fields)


def half(number, *having, dtype="float16", **fields):
    """Calls whose short result is slightly beyond its budget."""
    fields = {"name": "MASK-3", "difference": SLIGHT, "precision": dtype} | fields
    return fail(number, "NUM-5", *having, dtype=dtype, **fields)


def changed(number):
    """Calls that change an input."""
    return fail(number, "NUM-4", difference=None, reason="query: expected to be unchanged")


KINDS = {"ok": ok, "half": half, "raise": error, "ended": ended, "refused": refused, "changed": changed}
SIGNS = {"~": "difference", "@": "dtype", "#": "name"}


def verdicts(text):
    """Verdicts from text: ``9 MASK-1 (traits) ~difference @dtype #name field=value; raise 2 "message"``."""
    for group in text.split("; "):
        words = re.findall(r"\([^)]*\)|\"[^\"]*\"|\S+", group)
        kind = KINDS[words.pop(0)] if words[0].isalpha() else fail
        arguments, having, fields = [int(words.pop(0))], [], {}
        for word in words:
            if word[0] == "(":
                having = word[1:-1].split(", ")
            elif word[0] in SIGNS:
                fields[SIGNS[word[0]]] = DIFFERENCES.get(word[1:], word[1:])
            elif "=" in word:
                name, _, value = word.partition("=")
                fields[name] = VALUES.get(value, value)
            elif kind in (ok, error) and word[0] != '"':
                fields["rule"] = word
            else:
                arguments.append(word.strip('"'))
        yield from kind(*arguments, *having, **fields)


def found(*groups):
    """The findings of groups of verdicts, some of them as text."""
    lists = [verdicts(group) if isinstance(group, str) else group for group in groups]
    every = [verdict for group in lists for verdict in group]
    return findings([verdict for verdict in every if verdict.bad], every)


def table(text):
    """Rows of a table in text: a title, verdicts in lines, and lines that begin with a sign."""
    rows = []
    for row in text.strip().split("\n\n"):
        title, *lines = row.splitlines()
        judged = "; ".join(line.strip() for line in lines if line.startswith("    ") and line[4] not in "=+-")
        signs = {sign: [line[6:] for line in lines if line[4] == sign] for sign in "=+-"}
        rows.append(pytest.param(judged, signs, id=title.strip()))
    return rows


#: Verdicts, and the kind, the rule and the number of failures of each finding.
CAUSES = """
common traits give the rule, and take what follows from it
    3 SHAPE-1 (no scale); 4 SOFT-1 (mask, no scale); 1 NUM-9 (no scale, related)
    ok 9 (scale); ok 2 (no scale)
    = SCORE-2 8

without common traits, the rule whose own cases fail
    5 SOFT-2; 1 MASK-3; ok 5; ok 9 MASK-3
    = SOFT-2 6

most values of one variant name their rule
    6 HEAD-1 (mask) variant=tiled; 2 SOFT-1 (mask)
    = HEAD-1 8

large errors tell the cause beside many roundings
    9 SOFT-2 (bias, large scores) ~wrong; 20 MASK-3 (mask) ~rounded; 20 MASK-3 (window) ~rounded
    ok 90 (bias); ok 90 (mask); ok 90 (window); ok 90 (sinks); ok 3 (large scores)
    = SOFT-2 9; NUM-3 40

roundings stand behind wrong values
    9 NUM-9 (mask) ~rounded; 3 SOFT-5 (sinks) ~nan; ok 30 (mask); ok 30 (sinks)
    = SOFT-5 3; NUM-3 9

an lse that is not minus infinity is that of an empty row
    9 MASK-10 (query_lengths) ~lse-of-nothing; ok 20
    = SOFT-7 9

any other lse
    9 MASK-10 (query_lengths) ~lse; ok 20
    = SOFT-6 9

a single call has the rule of its case
    1 MASK-3 (is_causal, shared heads, tiles of 64); ok 20 (is_causal); ok 3
    = MASK-3 1

two bugs are two findings
    9 MASK-1 (mask); 3 SOFT-5 (sinks); ok 20; ok 9 (window)
    = MASK-1 9; SOFT-5 3

kinds are separate and in order
    refused 5 ERR-1; 3 MASK-1 (mask); raise 2 "no"; 2 NUM-1 ~dtype; changed 2; ended 2
    = MASK-1 3; ended NUM-3 2; changed NUM-4 2; NUM-1 2; raised SHAPE-5 2; refused ERR-1 5

an exception in a case about changed arguments is no changed argument
    raise 9 "no" NUM-4; ok 20
    = raised NUM-4 9

of half precision, what wide dtypes explain is theirs
    9 SCORE-2 (no scale); 30 NUM-9 (mask, no scale) @bfloat16 ~slight; 9 MASK-9 (bias) @bfloat16; ok 9 (scale)
    half 9 (no scale) name=x dtype=bfloat16; ok 60 (bias); ok 60 (mask); ok 9 (softcap) @bfloat16
    = SCORE-2 48; SCORE-4 9

NaN of empty rows is no part of another cause
    40 SCORE-2 (no scale); 5 MASK-6 (no scale, empty row) ~nan; ok 9 (scale)
    = SCORE-2 40; MASK-6 5

what is not repeatable
    5 SOFT-1 (mask); 1 MASK-3 repeatable=no; refused 5 ERR-1
    = repeated NUM-9 6; refused ERR-1 5

what passes as the first call of a process
    5 MASK-1 (mask); 1 SOFT-1 alone=no
    = earlier ERR-13 6

a wrong shape is no wrong value
    5 SHAPE-3 (other value depth, shared heads) ~shape; 9 HEAD-1 (shared heads)
    ok 20; ok 9 SHAPE-3 (other value depth)
    = HEAD-1 9; SHAPE-3 5

some shapes are right by chance
    5 SHAPE-3 (other value depth, shared heads) ~shape; 2 HEAD-1 (other value depth, shared heads)
    2 HEAD-1 (mask); ok 20; ok 9 SHAPE-3 (other value depth)
    = SHAPE-3 7; MASK-1 2

what cannot write to an input would change it
    changed 9; raise 2 NUM-8 (layout) "output array is read-only"; ok 9 NUM-8
    = changed NUM-4 11

the same call in another dtype
    9 NUM-3 @float64; 2 NUM-3 @float32; ok 40 NUM-3
    = NUM-3 11

a larger cause takes in one whose calls are all of its kind
    9 SHAPE-3 (mask) ~shape; raise 2 SHAPE-7 (empty axes, mask) "no"; ok 9; ok 9 (empty axes)
    = SHAPE-3 11

but no other one
    9 SHAPE-3 (mask) ~shape; raise 2 SHAPE-7 (empty axes, mask) "no"
    raise 2 SHAPE-7 (empty axes) "no"; ok 9; ok 9 (empty axes)
    = SHAPE-3 9; raised SHAPE-7 4

a wrong mask stands before a slight lack of precision
    9 MASK-3 (is_causal) ~wrong; half 30 (is_causal); half 30 #SOFT-1; ok 20 (mask)
    = MASK-3 9; precise NUM-5 60

a call as wrong in float32 is no lack of precision
    half 9; 9 MASK-3 ~as-slight
    = MASK-3 18

but one that is less wrong there is
    half 9; 9 NUM-3 #MASK-3 ~slighter
    = NUM-3 9; precise NUM-5 9

some errors of a bug in half precision are small by chance
    20 MASK-3 (is_causal) #other @float16 ~wrong; half 5 (is_causal); ok 20
    = MASK-3 25

slight errors and an overflow are a lack of precision
    half 9; 3 SOFT-1 @float16 ~slight; 3 SOFT-2 (large scores) @float16 ~nan
    = precise NUM-5 15

an overflow in float32 too is none
    half 9; 3 SOFT-2 (large scores) @float16 ~nan; 3 SOFT-2 (large scores) ~nan
    = SOFT-2 6; precise NUM-5 9

float64 computed in float32
    half 9; 9 NUM-2 #MASK-3 @float64 precision=float32 ~rounded; 5 MASK-1 (mask) ~wrong; ok 9
    = MASK-1 5; precise NUM-2 9; precise NUM-5 9

traces of weights hide no other cause
    20 MASK-1 ~trace; 20 MASK-2 ~trace; 9 MASK-6 (empty row) ~nan; ok 20
    = MASK-6 9; traces MASK-5 40

traces of allowed keys are those of the softmax
    9 MASK-1 ~trace; 9 NUM-3 ~trace-of-allowed
    = traces SOFT-1 18

few small errors beside many large ones are no traces
    90 MASK-1 (mask) ~wrong; 6 MASK-5 (mask) ~trace; ok 20
    = MASK-1 96

small weights in half precision are no traces
    9 NUM-5 @bfloat16 precision=bfloat16 ~tiny
    = precise NUM-5 9

other words are another exception
    raise 9 "scale 0 is not positive"; raise 4 "no keys"; ok 9
    = raised SHAPE-5 9; raised SHAPE-5 4

other numbers are not
    raise 9 "scale 0 is not positive"; raise 4 "scale -1.5 is not positive"; ok 9
    = raised SHAPE-5 13

several causes without clear traits, where all calls of a kind fail
    12 SCORE-3 (scale, scale of 0) ignored=scale; 29 MASK-4 (is_causal); 60 MASK-6 (empty row)
    ok 85 (is_causal); ok 300 (scale); ok 600 (mask); ok 1 (scale of 0)
    = MASK-6 60; MASK-3 29; SCORE-3 12

an option that lowers scores by a finite number
    26 MASK-6 (empty row, is_causal); 6 SOFT-2 (is_causal, large scores)
    ok 90 (is_causal); ok 90 (empty row); ok 90 (large scores)
    = MASK-6 32

two options of which each does one of this
    26 MASK-6 (empty row, is_causal); 6 SOFT-2 (large scores, mask)
    ok 90 (is_causal); ok 90 (empty row); ok 90 (large scores); ok 90 (mask)
    = MASK-6 26; SOFT-2 6
"""


@pytest.mark.parametrize(("judged", "signs"), table(CAUSES))
def test_failures_are_grouped_by_cause(judged, signs):
    words = [f"{cause.kind} {cause.rule} {len(cause.failures)}".strip() for cause in found(judged)]
    assert ["; ".join(words)] == signs["="]


def test_many_ways_to_end_are_a_few_findings():
    causes = found(ok(1), *(ended(1, f"answered {n}") for n in range(90)))
    assert [(cause.kind, len(cause.failures)) for cause in causes] == [("ended", n) for n in (87, 1, 1, 1)]


@pytest.mark.parametrize(
    ("having", "rule"),
    [
        (("mask",), "MASK-1"),
        (("is_causal", "mask"), "MASK-4"),
        (("bias", "softcap"), "SCORE-5"),
        (("shared heads",), "HEAD-1"),
        (("empty row", "mask"), "MASK-6"),
        (("large scores",), "SOFT-2"),
        (("special numbers",), "NUM-12"),
        (("negative scale",), "SCORE-3"),
        (("key_lengths of 0",), "MASK-9"),
        (("query_offset by entry",), "MASK-7"),
        (("open on the left",), "MASK-8"),
        (("negative key_segment_ids",), "MASK-11"),
    ],
)
def test_common_traits_have_a_rule(having, rule):
    right = [ok(20), *(ok(20, trait) for trait in (having if len(having) > 1 else having[1:]))]
    (cause,) = found(fail(9, "NUM-12", *having), *right)
    assert cause.rule == rule


#: Verdicts, and the lines about the first cause.
LINES = """
a few calls with an option
    8 SCORE-3 (scale); ok 46 (scale); ok 300
    = fails: 8 of 54 calls with `scale`, 0 of 300 others

what all calls have tells nothing
    8 SCORE-3 (scale); ok 46 (scale)

two kinds of calls under one rule
    9 MASK-4 (is_causal, key_lengths); 3 MASK-4 (key_lengths, window)
    ok 90 (is_causal); ok 90 (key_lengths); ok 90 (window)
    = fails: 9 of 9 calls with `is_causal` with `key_lengths`, 3 of 273 others
    = fails: 3 of 3 calls with `key_lengths` with `window`, 0 of 270 others

beside a lack of precision
    9 MASK-3 (is_causal) ~wrong; half 30 (is_causal); half 30 #SOFT-1; ok 20 (mask)
    = fails: 9 of 39 calls with `is_causal`, 0 of 50 others

the largest error of each dtype
    half 9; half 9 (mask) @bfloat16
    = all failures are due to the precision: up to 1.2 budgets in bfloat16, up to 1.2 budgets in float16

traces
    20 MASK-1 ~trace; 20 MASK-2 ~trace
    = all errors are at most 1.6e-28: weights that should be 0, or nearly 0, are larger

half precision
    9 SOFT-1 ~half
    = all failures are within the budget of float16: some step may be computed in it

a few budgets are not half precision
    9 SOFT-1 ~few-budgets

nor are any errors
    9 SOFT-1 ~half; 9 SOFT-1

all calls of one kind among several causes
    12 SCORE-3 (scale, scale of 0) ignored=scale; 29 MASK-4 (is_causal)
    ok 85 (is_causal); ok 300 (scale); ok 600 (mask); ok 1 (scale of 0)
    = fails: 29 of 114 calls with `is_causal`, 0 of 901 others
"""


@pytest.mark.parametrize(("judged", "signs"), table(LINES))
def test_what_is_common_is_said_with_numbers(judged, signs):
    assert [*cause_lines(found(judged)[0])] == signs["="]


def test_of_two_traits_that_tell_as_well_the_one_whose_cases_fail_is_named():
    (cause,) = found(fail(6, "SCORE-5", "bias", "softcap"), ok(20))
    assert (cause.rule, cause.common.traits) == ("SCORE-5", ("softcap",))


def test_words_for_traits():
    common = Finding("SCORE-2", (FAIL,), Common(("no scale",), 230, 310, 0, 54))
    assert [*cause_lines(common)] == ["fails: 230 of 310 calls without a scale, 0 of 54 others"]
    assert [*cause_lines(Finding("SOFT-1", (FAIL,), Common((), 5, 9)))] == []
    assert trait_text("negative scale") == "with a negative `scale`"
    assert trait_text("query_offset by entry") == "with `query_offset` that differ between batch entries"
    assert trait_text("tiles of 64") == "with more than 64 keys or queries"


def test_the_failure_that_is_shown():
    long, short = fail(1, "MASK-1", "mask", numbers=10280) + fail(1, "MASK-1", "mask", numbers=12)
    assert found([long, short])[0].verdict is short
    both = [
        fail(2, "MASK-3", name=name, dtype=dtype) for name, dtype in (("a", "bfloat16"), ("b", "float32"))
    ]
    assert found(*both)[0].verdict.dtype == "float32"
    other = [Verdict("c", "x", "", ("MASK-1",), "fail", rule="MASK-1")]
    assert [finding.backend for finding in found([FAIL, ERROR, PASS], other)] == ["m:f", "m:f", "c"]


#: Verdicts, and what the text of the only finding has (+), and has not (-).
TEXTS = """
repeated
    5 SOFT-1 (mask); 1 MASK-3 repeatable=no
    + NUM-9 A repeated call gives the same bits
    + not repeatable
    + also: 5 cases under another rule, which may have other causes: SOFT-1

an argument that all calls ignore
    3 MASK-1 (mask) ignored=mask
    + equals the result without `mask`

an argument that some calls ignore
    3 MASK-1 (mask) ignored=mask; 3 MASK-4 (mask)
    - equals the result without

weights that are not returned
    1 MASK-1 ~trace probed=yes
    + they were determined by calls with the identity as value

a variant of all failures
    3 SOFT-6 variant=base-2
    + equals the variant `base-2` of SOFT-6
    - failing calls under

a variant of some failures, among those that are compared
    7 MASK-3 (is_causal) variant=bottom-right; 3 MASK-3 (is_causal) #other
    2 MASK-3 (is_causal) #golden group=; 2 MASK-3 (is_causal) #same ignored=is_causal
    1 MASK-3 (is_causal) #bits ~bits
    + equals the variant `bottom-right` of MASK-3
    + the variant `bottom-right`: 7 of 10 failing calls under MASK-3 equal it

a variant that fits by chance
    1 SOFT-6 variant=base-2; 4 SOFT-6 #other
    - variant

the call that equals the variant is shown, none of gradients
    2 HEAD-1 (gradient, shared heads) #a variant=tiled; 1 HEAD-1 (shared heads) #b precision=float16
    2 HEAD-1 (shared heads) #z numbers=many variant=tiled
    + case z-0, float32
    + equals the variant `tiled` of HEAD-1

unless there are only gradients
    2 HEAD-1 (gradient, shared heads) #a variant=tiled
    + equals the variant `tiled` of HEAD-1

an argument that most calls ignore
    6 ERR-3 (is_causal) ignored=is_causal; 2 MASK-3 (is_causal) #golden group=; 1 NUM-11 (is_causal); ok 40
    + MASK-3 Causal means not after the query
    + the result is the same without `is_causal` in 6 of 7 failing calls with it

an argument that few calls ignore
    6 ERR-3 (is_causal) ignored=is_causal; 8 MASK-3 (is_causal); ok 40
    - the result is the same without

errors under each rule of their cases
    raise 3 (mask) "two axes" rule= rules=MASK-1,ERR-3 #a
    raise 2 (mask) "two axes" rule= rules=GRAD-9,MASK-1 #b; ok 9
    + (and 2 more of b under MASK-1)
"""


@pytest.mark.parametrize(("judged", "signs"), table(TEXTS))
def test_the_text_of_a_finding(judged, signs):
    (finding,) = found(judged)
    text = finding_text(finding)
    assert [part for part in signs["+"] if part not in text] == []
    assert [part for part in signs["-"] if part in text] == []


def test_failures_that_are_left_over_may_have_several_causes():
    left = [
        fail(1, "GRAD-5", "bias", "gradient", "softcap"),
        fail(1, "MASK-3", "is_causal", "more queries", group=""),
        fail(1, "MASK-5", "bias", "large scores", "mask"),
        fail(1, "MASK-12", "bias", "related"),
    ]
    having = ("bias", "softcap"), ("is_causal", "more queries"), ("bias", "mask"), ("large scores",)
    texts = [finding_text(finding) for finding in found(*left, *(ok(30, *each) for each in having))]
    several = [text for text in texts if "\nalso: " in text]
    assert several
    for text in several:
        assert "with the same cause" not in text
        rules = re.findall(r"[A-Z]+-[0-9]+", text.partition(", which may have other causes: ")[2])
        assert rules
        assert all(f"\n    {rule}: case {rule}-0" in text for rule in rules)


@pytest.mark.parametrize("number", [2, 12])
def test_calls_that_are_not_refused_have_a_line_for_each_rule(number):
    own = refused(4, "ERR-2", group="refused: bias of booleans")
    golden = [replace(one, case="errors-mask-additive-float32") for one in refused(1, "ERR-4", group="")]
    others = [refused(1, f"ERR-{9 + n}", group=f"refused: fault {n}") for n in range(number)]
    (finding,) = found(own, golden, *others)
    text = finding_text(finding)
    assert f"also: {number + 1} cases under {number + 1} other rules" in text
    assert "\n    ERR-2: bias of booleans\n" in text
    assert "\n    ERR-4: an additive mask given as the mask\n" in text
    assert text.count("\n    ERR-") == min(number + 2, 8)
    assert all(f"ERR-{9 + n}" in text for n in range(number)), "each rule is named, with a line or not"
    (finding,) = found(*(refused(1, "ERR-2", name=str(n), group=f"refused: fault {n}") for n in range(5)))
    assert finding_text(finding).endswith("\n    ERR-2: fault 0; fault 1; fault 2 and 2 more")


def test_every_rule_that_fails_is_on_the_screen():
    many = [f"MASK-{n}" for n in range(4, 13)]
    verdicts = [
        *fail(5, "ERR-3", "is_causal", ignored="is_causal"),
        *(verdict for rule in many for verdict in fail(1, rule, "is_causal")),
        *error(3, "mask must have two axes", "mask", rule="", rules=("MASK-1", "ERR-3", "HEAD-1"), name="a"),
        *error(2, "mask must have two axes", "mask", rule="", rules=("GRAD-9", "MASK-1"), name="c"),
        *refused(3, "ERR-4"),
        *ok(40),
    ]
    for judged in (verdicts, RESULTS.verdicts):
        rules = {rule for rule, counts in count_by_rule(judged).items() if counts["fail"] + counts["error"]}
        results = Results((Subject(judged[0].backend, "numpy", "2"),), tuple(judged), (Header("1"),))
        text = screen(Report(results, required="refusals"))
        assert "┏" not in text
        assert rules <= {*re.findall(r"[A-Z]+-[0-9]+", text)}


def test_other_messages_of_one_cause_are_said():
    many = [error(9 - n, f"no {name}") for n, name in enumerate(("mask", "bias", "keys", "rows", "heads"))]
    texts = [finding_text(finding) for finding in found(*many, ok(9))]
    assert len(texts) == 4
    (rest,) = [text for text in texts if "also: " in text]
    assert "raised ValueError: no rows" in rest
    assert "also: 5 cases: raised ValueError: no heads" in rest


def test_where_every_call_raises_one_finding_says_so():
    every = [*error(9, "no enable_gqa"), *error(3, "no enable_gqa", "refused", rule="ERR-2", name="r")]
    every += error(3, "no enable_gqa", rule="NUM-4", name="c")
    (finding,) = found(every)
    text = finding_text(finding)
    assert text.startswith("every call raises\ncase ")
    assert "so do 14 more cases of b, under all rules" in text
    assert "raised ValueError: no enable_gqa" in text
    assert len(found(every, [replace(ok(1)[0], status="unsupported")])) == 1
    assert len(found(every, ok(1))) == 2, "one call has a result"
    assert [one.kind for one in found(every, error(5, "no mask"))] == ["always"] * 2

    def raising(query, key, value):
        raise TypeError("no enable_gqa")

    backend = replace(PORTABLE, attention=raising, companions={})
    assert diagnose(backend, [find_case(f"softmax-00{n}") for n in range(3)]) is None


@pytest.mark.parametrize(
    ("message", "other", "same"),
    [
        ("shapes (6,1) (2,3) do not fit", "shapes (5,) () do not fit", True),
        ("no kernel for MLFloat16 [with T = Half]", "no kernel for double [with T = double]", True),
        ("scale must be greater than 0", "Q sequence length must be greater than 0", False),
    ],
)
def test_messages_are_compared_by_their_words(message, other, same):
    assert (message_words(message) == message_words(other)) == same


def test_traits_of_numbers_and_sizes():
    x, keys = np.ones((2, 1, 1, 2), np.float32), np.ones((2, 1, 65, 2), np.float32)

    def of(**options):
        arguments = {"query": x, "key": keys, "value": keys, **options}
        return {*traits(Case("c", "", "errors", "attention", ("ERR-3",), arguments))} - {*options}

    plain = {"no scale", "one query", "tiles", "tiles of 32", "tiles of 64"}
    assert of() == of(key_lengths=np.array([3, 3])) == plain
    assert of(scale=-1.0) == plain - {"no scale"} | {"negative scale"}
    assert of(key_lengths=np.array([0, 3])) >= {"key_lengths of 0", "key_lengths by entry", "empty row"}
    assert of(window=(None, 2)) == plain | {"open on the left"}
    assert of(window=(2, None)) == plain | {"open on the right"}
    assert "negative query_offset" in of(query_offset=-1, is_causal=True)
    large = {
        name: np.full(array.shape, 1e200) for name, array in (("query", x), ("key", keys), ("value", keys))
    }
    assert "large scores" in of(**large), "they overflow"
    case = find_case("masking-empty-last")
    assert traits(case) == ("empty row", "mask", "no scale")
    assert numbers(case.calls) == sum(array.size for array in case.arguments.values())
    for name, trait in (
        ("errors-depth-float32", "refused"),
        ("numerics-number-that-is-none-query-7-float32", "special numbers"),
        ("notation-lse-float32", "shared heads"),
        ("errors-earlier-calls-mask-1-float32", "related"),
    ):
        assert trait in describe(find(name))[0]


OWN = ("/me/a.py", 9, "f")


@pytest.mark.parametrize(
    ("frames", "own", "place"),
    [
        (
            [("/me/a.py", 1, "f"), ("/me/b.py", 2, "g"), ("/lib/numpy/x.py", 3, "dot")],
            None,
            ("/me/b.py", 2, "g"),
        ),
        ([("/me/a.py", 1, "f"), ("/me/.venv/lib/site-packages/x.py", 3, "dot")], None, ("/me/a.py", 1, "f")),
        ([("/me/a.py", 1, "f"), ("/mean/x.py", 3, "dot")], None, ("/me/a.py", 1, "f")),
        ([("<frozen os>", 1, "f")], None, ("<frozen os>", 1, "f")),
        ([], None, ("", 0, "")),
        (
            [("/lib/x.py", 3, "grad"), ("/me/b.py", 2, "g"), ("/lib/x.py", 4, "dot")],
            OWN,
            ("/me/b.py", 2, "g"),
        ),
        ([("/lib/torch/x.py", 3, "grad")], OWN, OWN),
        ([], OWN, OWN),
    ],
)
def test_the_line_of_the_user_is_shown(frames, own, place):
    assert (own_place(frames, own) if own else own_place(frames)) == place


def slightly_off(case, share):
    """Judge a golden vector of which each element is wrong by a share of the rounding of float32."""

    def attention(query, key, value, *, scale=None, mask=None):
        output = PORTABLE.attention(query, key, value, scale=scale, mask=mask).astype(np.float64)
        return (output * (1 + share * float(np.finfo(np.float32).eps))).astype(query.dtype)

    return judge(replace(PORTABLE, attention=attention, companions={}), case)


def test_a_golden_vector_is_a_matter_of_precision_too():
    case = replace(find_case("softmax-000"), outputs=("output",))
    assert str(case.dtype) == "float64"
    verdict = slightly_off(case, 0.5)
    assert (verdict.status, verdict.rule, verdict.precision) == ("fail", "NUM-2", "float32")
    few = 4 * float(np.max(budgets_of(PORTABLE, case)["output"])) / float(np.finfo(np.float32).eps)
    assert slightly_off(case, few).rule == case.rules[0], "a few budgets are no float32"
    assert slightly_off(case, 1e5).rule == case.rules[0]
