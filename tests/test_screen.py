"""A run on the terminal: lines that say how it ended and why."""

from dataclasses import replace

import pytest
from reported import ACCEPTED, ERROR, FAIL, KNOWN, PASS, PERFECT, RESULTS, SUBJECT, UNSUPPORTED, perfect, rows

from attnspec import levels
from attnspec.conformance import traits
from attnspec.conformance.attribution.levels import rules_of
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.render import summary
from attnspec.conformance.render.badge import to_json, to_svg
from attnspec.conformance.render.counts import totals
from attnspec.conformance.render.junit import to_junit
from attnspec.conformance.render.markdown import to_markdown
from attnspec.conformance.render.screen import screen
from attnspec.conformance.results import Footer, Header, Run, gather
from attnspec.conformance.verdict import Difference

UNKNOWN = "backend m:f: not understood: causal (is_causal?); no case tests this. Map each"
GIVEN_UP = "backend m:f: abandoned after 3 cases that did not end"
DECLINED = replace(UNSUPPORTED, declined=True, reason="needs a GPU")
OF_GRADIENTS = tuple(
    one if one.rules == ("SPARSE-12",) else replace(one, status="unsupported") for one in PERFECT.verdicts
)
OTHER_SUBJECT = replace(SUBJECT, name="other:f")


def with_problem(problem, *verdicts):
    return replace(RESULTS, subjects=(replace(SUBJECT, problem=problem),), verdicts=verdicts)


def declining(*verdicts):
    run = Run(Header("1", "quick", cases=tuple(verdict.case for verdict in verdicts)))
    for event in (SUBJECT, *verdicts, Footer(len(verdicts))):
        run.add(event)
    return gather([run])


@pytest.mark.parametrize(
    ("results", "last"),
    [
        (with_problem(UNKNOWN, PASS), "m:f: was not judged whole: not understood: causal (is_causal?)"),
        (with_problem(GIVEN_UP, PASS), "m:f: was not judged whole: abandoned after 3 cases that did not end"),
        (with_problem("no [red]module[/]"), "m:f: was not judged: it could not be loaded"),
        (
            with_problem(GIVEN_UP, FAIL),
            f"m:f: does not conform: 1 case fails under 1 rule; was not judged whole: {GIVEN_UP[13:]}",
        ),
        (
            declining(DECLINED, replace(DECLINED, case="other")),
            "m:f: was not judged: declined 2 of 2 cases that its arguments offer: needs a GPU",
        ),
        (
            replace(RESULTS, verdicts=(UNSUPPORTED,)),
            "m:f: was not judged: nothing that was asked for is offered: it has no argument sinks",
        ),
        (replace(PERFECT, missing={"m:f": ("x",)}), "m:f: was not judged whole: 1 case has no verdict"),
    ],
)
def test_the_first_line_says_why_not_all_was_judged(results, last):
    text = screen(Report(results), width=200)
    assert text.splitlines()[1] == last
    problem = results.subjects[0].problem
    assert not problem or f"error: {problem}\n" in text
    assert problem.startswith("no ") or last.rpartition(": ")[2] in to_markdown(Report(results))


def test_of_several_backends_each_has_its_verdict_and_its_reason():
    other = replace(OTHER_SUBJECT, problem=UNKNOWN.replace("m:f", "other:f"))
    subjects = (replace(SUBJECT, problem=GIVEN_UP, note="old"), other)
    verdicts = (PASS, replace(PASS, backend="other:f"))
    text = screen(Report(replace(RESULTS, subjects=subjects, verdicts=verdicts)), width=200)
    lines = text.splitlines()
    starts = ["m:f: ", "other:f: ", "error: backend m:f: abandoned", "error: backend other:f: not"]
    shown = [*lines[1:3], *lines[-2:]]
    assert all(line.startswith(start) for line, start in zip(shown, starts, strict=True))
    assert "\nm:f: old\n" in text


LOST = replace(SUBJECT, name="lost:f", problem="no such module")
BAD = (replace(SUBJECT, name="bad:f"), replace(FAIL, backend="bad:f"))
CUT = (replace(SUBJECT, name="cut:f", problem="given up"), replace(PASS, backend="cut:f"))
GOOD = (SUBJECT, PASS)


@pytest.mark.parametrize(
    ("several", "status"),
    [
        ([GOOD], 0),
        ([GOOD, CUT], 4),
        ([GOOD, CUT, BAD], 1),
        ([(replace(CUT[0], name="bad:f"), BAD[1])], 1),  # one backend that fails and is given up
        ([GOOD, BAD, (LOST, None)], 3),
        ([CUT, (LOST, None)], 3),
    ],
)
def test_the_gravest_event_gives_the_status(several, status):
    subjects, verdicts = zip(*several, strict=True)
    results = replace(RESULTS, subjects=subjects, verdicts=tuple(verdict for verdict in verdicts if verdict))
    assert Report(results).outcome.status == status


STALE = replace(KNOWN, rule="MASK-5", cases=())


@pytest.mark.parametrize(
    "report",
    [
        Report(RESULTS),
        Report(perfect(FAIL)),
        Report(perfect(FAIL), [KNOWN, STALE]),
        Report(PERFECT, [STALE]),
        Report(perfect(missing={"m:f": ("x",)}), required="core"),
        Report(perfect(missing={"m:f": ("x",)})),
        Report(perfect(subjects=(replace(SUBJECT, problem="cut off"),))),
        Report(replace(PERFECT, verdicts=())),
        Report(replace(PERFECT, verdicts=(UNSUPPORTED,))),
        Report(perfect(subjects=())),
        Report(perfect(subjects=(SUBJECT, OTHER_SUBJECT))),
        Report(replace(PERFECT, verdicts=(FAIL,)), required="core"),
    ],
)
def test_conforms_is_said_of_no_run_that_is_not_good(report):
    assert not report.good
    for write in (screen, to_markdown, to_junit, to_json, to_svg):
        assert "conforms" not in write(report)


QUICK, CORE = (Header("1", "quick"),), (Header("1", "level", level="core"),)
LAME = tuple(verdict for verdict in PERFECT.verdicts if verdict.rules != ("MASK-7",))
DEVIATING = tuple(replace(x, status="deviation", rule="SOFT-1", variant="other") for x in PERFECT.verdicts)
ALL_BUT_CACHED = ", ".join(level.name for level in levels() if level.name != "cached")
COMPANIONS = (
    "seeded-dropout, block-sparse, listed, projected, multi-head, paged, paged-attention, packed, merged, "
    "latent, selective, stacked, sharded, decoded, quantized, low-precision, rotary, rotary-scaled, alibi"
)
TWO = replace(
    PERFECT,
    subjects=(SUBJECT, OTHER_SUBJECT),
    verdicts=(*PERFECT.verdicts, *(replace(verdict, backend="other:f") for verdict in LAME)),
)
WRONG_CORE = replace(FAIL, rule="SOFT-1", rules=("SOFT-1",))


@pytest.mark.parametrize(
    ("report", "outcome", "headline"),
    [
        (Report(PERFECT), Outcome.GOOD, "conforms to every level"),
        (
            Report(replace(PERFECT, verdicts=LAME)),
            Outcome.GOOD,
            f"conforms to levels {ALL_BUT_CACHED}; cached lacks MASK-7 (not judged)",
        ),
        (
            Report(replace(PERFECT, verdicts=DEVIATING)),
            Outcome.GOOD,
            f"conforms to levels {COMPANIONS}; core lacks SOFT-1 (deviation)",
        ),
        (
            Report(replace(PERFECT, verdicts=OF_GRADIENTS)),
            Outcome.GOOD,
            "conforms; what it offers is no whole level; only 1 of 247 values were judged",
        ),
        (
            Report(perfect(headers=QUICK)),
            Outcome.GOOD,
            "passes the part of the suite that was run; only a whole run reaches levels",
        ),
        (
            Report(perfect(FAIL), [KNOWN]),
            Outcome.GOOD,
            "conforms but for 1 known failure; reaches levels core, strict, grouped, ...",
        ),
        (Report(TWO), Outcome.GOOD, f"conforms to levels {ALL_BUT_CACHED}"),
        (
            Report(replace(TWO, verdicts=(*TWO.verdicts, FAIL))),
            Outcome.FAILS,
            "1 of 2 backends do not conform, or were not judged whole",
        ),
        (
            Report(perfect(FAIL)),
            Outcome.FAILS,
            "does not conform: 1 case fails under 1 rule; reaches levels core, strict, grouped, ...",
        ),
        (
            Report(perfect(FAIL), required="core"),
            Outcome.GOOD,
            "reaches level core, as required; 1 case fails outside of it",
        ),
        (Report(perfect(FAIL), required="masked"), Outcome.FAILS, "does not conform to level masked; ..."),
        (Report(perfect(headers=QUICK), required="core"), Outcome.FAILS, "does not conform to level core"),
        # Of MASK-6 nothing was asked.
        (Report(perfect(FAIL, headers=CORE)), Outcome.GOOD, "conforms to level core"),
        (
            Report(perfect(WRONG_CORE, headers=CORE)),
            Outcome.FAILS,
            "does not conform: 1 case fails under 1 rule; core lacks SOFT-1 (fail)",
        ),
        (
            Report(perfect(replace(ERROR, rules=("MASK-6", "SOFT-1")), headers=CORE)),
            Outcome.FAILS,
            "does not conform: ...",
        ),
    ],
)
def test_the_headline(report, outcome, headline):
    assert report.outcome is outcome
    text = summary.headline(report)
    assert text == headline or (headline.endswith("...") and text.startswith(headline[:-3]))
    assert to_markdown(report).startswith(f"## attnspec: {headline.removesuffix('...')}")


EMPTY_ROW, NO_KEYS = (replace(FAIL, case=name, traits=(name,)) for name in (traits.EMPTY, traits.NOTHING))
BOTH = replace(NO_KEYS, traits=(traits.EMPTY, traits.NOTHING))
AGAIN, WITHOUT_AGAIN = (replace(one, case=f"{one.case} again") for one in (EMPTY_ROW, BOTH))
OTHER_ROW = replace(AGAIN, difference=Difference("value", "output", (0,), 1.5, 1.0))
A_ROW, WITHOUT = "with a row that has nothing to attend to", "with no queries, keys or batch entries"


@pytest.mark.parametrize(
    ("failing", "edge"),
    [
        ([EMPTY_ROW, AGAIN], A_ROW),
        ([BOTH, WITHOUT_AGAIN], WITHOUT),
        ([EMPTY_ROW], ""),  # one call may fail for another reason
        ([EMPTY_ROW, OTHER_ROW], ""),  # a number is wrong in a row that is not empty
        ([EMPTY_ROW, BOTH], A_ROW),
        ([EMPTY_ROW, NO_KEYS], f"{A_ROW} or {WITHOUT}"),
        ([EMPTY_ROW, replace(FAIL, case="other")], ""),
    ],
)
def test_the_headline_names_the_edge_that_all_failures_share(failing, edge):
    def line(*passing):
        report = Report(replace(RESULTS, verdicts=(*failing, *passing)))
        assert report.outcome is Outcome.FAILS
        return summary.headline(report)

    passing = [replace(PASS, case=str(number), traits=()) for number in range(3)]
    start = f"conforms but for calls {edge}: " if edge else "does not conform: "
    assert line(*passing).startswith(start + f"{len(failing)} case")
    at_the_edge = [replace(one, traits=(traits.EMPTY, traits.NOTHING)) for one in passing]
    for others in ([], passing):
        assert line(*others, *at_the_edge).startswith("does not conform: ")


HUGE, FAR = (replace(FAIL, case=name, traits=("mask", name)) for name in (traits.HUGE, traits.FAR))


@pytest.mark.parametrize(
    ("failing", "ends"),
    [
        ([HUGE], "with numbers near the largest of their dtype"),
        ([FAR], "with an integer from 2**31 - 1 on"),
        ([FAR, EMPTY_ROW, AGAIN], f"with an integer from 2**31 - 1 on or {A_ROW}"),
        ([replace(HUGE, traits=("mask", "softcap", traits.HUGE))], ""),  # no other call has both options
        ([HUGE, replace(FAIL, case="other")], ""),
    ],
)
def test_the_headline_says_that_calls_far_from_the_ends_of_ranges_conform(failing, ends):
    passing = [replace(PASS, case=str(number), traits=("mask", "bias")) for number in range(3)]
    text = summary.headline(Report(replace(RESULTS, verdicts=(*failing, *passing))))
    assert text.startswith(f"conforms but for calls {ends}: " if ends else "does not conform: ")
    at_the_end = [replace(x, traits=(*x.traits, traits.HUGE)) for x in passing]
    assert summary.headline(Report(replace(RESULTS, verdicts=(*failing, *at_the_end)))).startswith("does not")


def test_one_bad_backend_leaves_the_other_its_levels_and_a_wrong_value_is_no_refusal():
    report = Report(replace(TWO, verdicts=(*TWO.verdicts, FAIL)))
    assert summary.backend_headline(report, OTHER_SUBJECT).startswith("reaches levels core")
    assert Report(perfect(replace(ACCEPTED, code="differs"))).outcome is Outcome.FAILS
    assert Report(perfect(replace(ACCEPTED, code="ended", status="error"))).outcome is Outcome.FAILS


def test_the_run_and_its_seed_are_told():
    report = Report(perfect(FAIL, headers=CORE))
    assert (
        summary.run_line(report.results)
        == "run: level core (the fixed cases; --seed N draws others, --sizes larger ones)"
    )
    text = screen(report, every=True)
    assert set(rows(text)) == {*rules_of("core")}
    seeded = replace(RESULTS, headers=(Header("1", "quick", 7), Header("1", "quick", 7)))
    text = screen(Report(seeded))
    assert "\nrun: quick (seed 7)\n" in text
    assert 'find("masking-empty-last-float32", seed=7)' in text
    assert Report(replace(seeded, headers=(*seeded.headers, Header("1")))).seed is None


#: What stands beside budgets of the class cast.
CAST = '; cast: weights may be rounded to the dtype of the arrays, accuracy = "full" judges that too'


def test_the_lines_of_budgets_counts_and_time():
    cast = replace(PASS, case="a-float16", dtype="float16", share=0.9, accuracy="cast")
    tight, none = replace(cast, share=0.1, accuracy="full"), replace(PASS, share=0.99, accuracy="")
    for verdicts, line in (
        ([PASS, cast, tight, none], f"float16 0.90 (cast), float32 0.50; most in a-float16{CAST}"),
        ([PASS, replace(PASS, accuracy="tf32")], "float32 0.50 (tf32)"),
        ([PASS], "float32 0.50"),
    ):
        assert summary.budget_line(verdicts) == f"of the budget used: {line}"
    assert summary.budget_line([]) == ""
    refused = replace(FAIL, case="r-float32", refusal=True)
    lines = ["values: 1 pass, 1 known", "refusals: 2 fail"]
    assert totals([PASS, FAIL, refused, refused], {FAIL: "known"}) == lines
    assert totals([]) == ["no verdict"]
    slow = replace(PASS, case="slow-float32", seconds=1.5)
    for verdicts, line in (
        (
            [replace(PASS, seconds=0.5), slow],
            "time: 2.0 s to judge 2 cases; the slowest, 1.50 s: slow-float32",
        ),
        ([slow] * 9, "time: 13.5 s to judge 9 cases"),  # each took as long
        ([PASS, slow, UNSUPPORTED], "time: 1.5 s to judge 2 cases; the slowest, 1.50 s: slow-float32"),
        ([PASS], ""),
    ):
        assert summary.time_line(verdicts) == line
    report = Report(replace(RESULTS, verdicts=(slow,)), seconds=8.84)
    assert "the slowest, 1.50 s: slow-float32" in screen(report, width=200)
    assert ", in 8.8 s from start to end\n" in screen(report, width=200)


@pytest.mark.parametrize(
    ("required", "outcome"),
    [
        ("values", Outcome.GOOD),
        ("core", Outcome.GOOD),
        ("refusals", Outcome.FAILS),
        ("strict", Outcome.FAILS),
    ],
)
def test_values_and_refusals_are_two_verdicts(required, outcome):
    report = Report(perfect(ACCEPTED), required=required)
    assert report.outcome is outcome
    headline = summary.headline(report)
    assert headline.startswith("values: ")
    assert headline.endswith("1 call is accepted that the standard rejects")
    fails = outcome is Outcome.FAILS
    assert ("refusals: does not conform: 1 call" in headline) == fails
    assert ("<failure" in to_junit(report)) == fails
    assert headline in to_junit(report)
    assert headline in to_markdown(report)
    assert headline in screen(report, width=1000)
    assert bool(report.failures.new) == fails == bool(report.findings)
    # A wrong value beside it fails every run but one of another level.
    wrong = Report(perfect(ACCEPTED, FAIL), required=required)
    assert wrong.outcome is (Outcome.GOOD if required == "core" else Outcome.FAILS)


@pytest.mark.parametrize("code", ["argument changed, values right", "raised"])
def test_both_verdicts_count_the_calls_that_the_last_line_counts(code):
    changed = replace(ACCEPTED, code=code, rule="NUM-4", case="changes-float32")
    for verdicts, number in (((changed,), 0), ((changed, FAIL), 1)):
        report = Report(perfect(*verdicts))
        values, _, refusals = summary.headline(report).partition("; refusals: ")
        assert ("does not conform: 1 case fails" in values) == bool(number)
        assert refusals == "does not conform: 1 case fails"
        counted = totals(report.verdicts(SUBJECT))
        assert (", 1 fail" in counted[0]) == bool(number)
        assert ", 1 fail" in counted[1] or counted[1].startswith("refusals: 1 fail")
    both = Report(perfect(changed, ACCEPTED), required="refusals")
    calls = "1 call is accepted that the standard rejects, 1 case fails otherwise"
    assert summary.headline(both).endswith(f"; refusals: does not conform: {calls}")


def test_a_rule_that_only_cases_about_other_rules_break_has_a_command_that_shows_it():
    elsewhere = replace(FAIL, rule="NUM-7")
    command = f"attnspec check {SUBJECT.name} --case {FAIL.case}"
    line = f"NUM-7 fails in cases about other rules, which -k NUM-7 leaves out: {command}"
    own = replace(FAIL, case="lse-float32", rules=("NUM-7",), rule="NUM-7")
    assert line in screen(Report(perfect(elsewhere)), width=1000)
    assert line in screen(Report(perfect(elsewhere)), width=1000, every=True)
    for verdicts in ((elsewhere, own), (own,), (FAIL,), (replace(elsewhere, status="pass", rule=""),)):
        assert "about other rules" not in screen(Report(perfect(*verdicts)), width=1000)
