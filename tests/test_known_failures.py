"""Known failures are separated from new ones, keep their reasons, and are reported when they are fixed."""

from dataclasses import replace

import pytest
from reported import ERROR, FAIL, KNOWN, PASS, PERFECT, RESULTS, SUBJECT

from attnspec import SpecError
from attnspec.conformance.attribution.known_failures import read_known, sort_failures, write_known
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.render.screen import screen
from attnspec.conformance.render.summary import stale_line
from attnspec.conformance.render.text import result_line
from attnspec.conformance.results import Header
from attnspec.conformance.verdict import Raise

WHOLE = replace(RESULTS, headers=(Header("1"),))
BY_RULE = replace(KNOWN, cases=())
BY_PATTERN = replace(KNOWN, cases=("masking-*",))
ENDED = replace(FAIL, status="error", difference=None, raised=Raise("", "", "/m.py", 7, "f"))
MENDED = "MASK-6 softmax-000-float32 on m:f: does not fail any more; remove it"
MOVED = f"MASK-5 {FAIL.case} on m:f: fails under MASK-6 (fail) now, not as fail; look at it again"


@pytest.mark.parametrize(
    ("results", "changes", "new", "stale"),
    [
        (RESULTS, {}, (ERROR,), ""),
        (RESULTS, {"cases": (PASS.case,)}, (FAIL, ERROR), MENDED),
        (RESULTS, {"rule": "MASK-5"}, (FAIL, ERROR), MOVED),
        # Another backend, a case that was not judged, problems of another seed.
        (RESULTS, {"backend": "other:f"}, (FAIL, ERROR), ""),
        (RESULTS, {"cases": ("gone-float32",)}, (FAIL, ERROR), ""),
        (PERFECT, {"cases": ("gone-float32",)}, (), ""),
        (replace(RESULTS, headers=(Header("1", seed=3),)), {"cases": (PASS.case,)}, (FAIL, ERROR), ""),
    ],
)
def test_failures_are_new_or_known_and_entries_hold_or_are_stale(results, changes, new, stale):
    entry = replace(KNOWN, **changes)
    found = sort_failures(results, [entry])
    assert found.new == new
    assert found.known == (() if changes else ((FAIL, entry),))
    assert [*map(stale_line, found.stale)] == [stale] * bool(stale)


@pytest.mark.parametrize("entry", [KNOWN, BY_RULE, BY_PATTERN, replace(KNOWN, backend="m:*")])
def test_entries_are_of_cases_of_patterns_and_of_a_rule(entry):
    assert sort_failures(WHOLE, [entry]).known == ((FAIL, entry),)
    assert sort_failures(WHOLE, [entry]).stale == ()


def test_a_pattern_is_stale_where_all_that_it_may_mean_was_judged():
    held = replace(WHOLE, verdicts=(PASS,))
    for entry in (BY_RULE, replace(KNOWN, cases=("softmax-*",))):
        (stale,) = sort_failures(held, [entry]).stale
        assert "does not fail any more; remove it" in stale_line(stale)
        for part in ("quick", "chosen"):
            assert sort_failures(replace(held, headers=(Header("1", part),)), [entry]).stale == ()
        assert sort_failures(replace(held, missing={"m:f": ("softmax-001",)}), [entry]).stale == ()
        assert sort_failures(replace(held, subjects=(replace(SUBJECT, problem="cut"),)), [entry]).stale == ()


def test_a_wrong_value_that_became_a_crash_is_new():
    for verdict in (ENDED, replace(FAIL, status="error", raised=ERROR.raised)):
        found = sort_failures(replace(WHOLE, verdicts=(verdict,)), [KNOWN])
        assert found.new == (verdict,)
        assert "not as fail; look at it again" in stale_line(found.stale[0])
    ended = replace(KNOWN, status="ended")
    assert sort_failures(replace(WHOLE, verdicts=(ENDED,)), [ended]).new == ()


def test_written_known_failures_keep_their_reasons_and_names(tmp_path):
    path = tmp_path / "known.toml"
    assert write_known(path, RESULTS, [KNOWN, KNOWN], result_line) == (2, ())
    kept, new = read_known(path)
    assert kept == KNOWN
    assert (new.rule, new.backend, new.status, new.cases) == ("NUM-3", "m:f", "error", (ERROR.case,))
    assert new.reason == "not looked into yet: raised ValueError: no | <b>\ufffd"
    assert Report(RESULTS, read_known(path)).failures.new == ()
    path = tmp_path / "known.toml"
    odd = replace(ERROR, backend='m"\\:f\udc80', case="a\nb\x7f")
    results = replace(RESULTS, subjects=(replace(SUBJECT, name=odd.backend),), verdicts=(odd,))
    write_known(path, results)
    assert read_known(path)[0].cases == ("a\nb\x7f",)


def test_stale_entries_are_told_in_a_line_for_each_rule_and_backend():
    cases = tuple(f"masking-{number}-float32" for number in range(5))
    mended = tuple(replace(PASS, case=case) for case in cases)
    moved = tuple(replace(FAIL, case=f"x-{number}", rule="MASK-5") for number in range(2))
    entries = [
        replace(KNOWN, cases=cases[:3]),
        replace(KNOWN, status="error", cases=cases[3:]),
        replace(KNOWN, rule="NUM-3", cases=cases[:1]),
        replace(KNOWN, cases=("x-0", "x-1")),
    ]
    stale = sort_failures(replace(WHOLE, verdicts=mended + moved), entries).stale
    assert [*map(stale_line, stale)] == [
        f"MASK-6 on m:f: 5 cases do not fail any more; remove them: {', '.join(cases[:3])} and 2 more",
        "NUM-3 masking-0-float32 on m:f: does not fail any more; remove it",
        "MASK-6 on m:f: 2 cases fail under MASK-5 (fail) now, not as fail; look at them again: x-0, x-1",
    ]


@pytest.mark.parametrize("part", ["quick", "level", "chosen"])
def test_a_file_of_a_part_says_so_where_a_whole_run_fails(part, tmp_path):
    path = tmp_path / "known.toml"
    small = replace(RESULTS, headers=(Header("1", part),))
    write_known(path, replace(small, verdicts=(FAIL,)))
    assert f'part = "{part}"' in path.read_text()
    known = read_known(path)
    hint = f"hint: the file of known failures was written from a {part} run"
    new = replace(WHOLE, verdicts=(FAIL, replace(FAIL, case="masking-other")))
    assert sort_failures(new, known).parts == (part, "whole")
    assert hint in " ".join(screen(Report(new, known)).split())
    assert sort_failures(replace(new, verdicts=(FAIL,)), known).parts is None, "nothing fails for it"
    assert sort_failures(replace(new, headers=small.headers), known).parts is None
    write_known(path, new, known)
    assert "part" not in path.read_text().replace("# ", ""), "now it is of the whole"
    write_known(path, small, read_known(path))
    assert sort_failures(new, read_known(path)).parts is None, "a part that is run later adds to it"


def test_other_entries_are_kept_as_they_are(tmp_path):
    path = tmp_path / "known.toml"
    for entry in (BY_RULE, BY_PATTERN):
        write_known(path, WHOLE, [entry])
        assert [one.rule for one in read_known(path)] == ["MASK-6", "NUM-3"]
        assert read_known(path)[0] == entry
        write_known(path, replace(WHOLE, verdicts=(PASS,)), [entry])
        assert read_known(path) == ()
    path = tmp_path / "known.toml"
    others = [
        replace(KNOWN, cases=("not-run-float32",)),
        replace(KNOWN, rule="MASK-5", cases=()),
        replace(KNOWN, rule="MASK-5", cases=("soft*",)),
        replace(KNOWN, backend="other:f"),
    ]
    write_known(path, RESULTS, others)
    assert read_known(path)[:4] == tuple(others)
    write_known(path, WHOLE, others)
    assert read_known(path)[0] == others[3], "of a backend that was not judged nothing is known"
    assert len(read_known(path)) == 3


def test_nothing_is_written_of_what_was_not_judged_to_the_end(tmp_path):
    path = tmp_path / "known.toml"
    lost = replace(RESULTS, subjects=(replace(SUBJECT, problem="backend m:f: cut off"),))
    assert write_known(path, lost, [KNOWN]) == (0, ("backend m:f: cut off",))
    assert not path.exists()
    missing = replace(RESULTS, missing={"m:f": ("softmax-001",)})
    assert write_known(path, missing, [KNOWN]) == (0, ("backend m:f: it was not judged whole",))
    other = replace(SUBJECT, name="other:f")
    two = replace(lost, subjects=(*lost.subjects, other), verdicts=(replace(ERROR, backend="other:f"),))
    assert write_known(path, two, [KNOWN]) == (2, ("backend m:f: cut off",))
    assert [one.backend for one in read_known(path)] == ["m:f", "other:f"]
    assert read_known(path)[0] == KNOWN


LINES = {"rule": "MASK-6", "backend": "m:f", "status": "fail", "reason": "r", "link": "", "cases": ["c"]}


def entry(**changes):
    """An entry as text, without what is None."""
    fields = {key: value for key, value in (LINES | changes).items() if value is not None}
    return "[[known]]\n" + "\n".join(f"{key} = {value!r}" for key, value in fields.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[known", "to be TOML, got "),
        ("\x00", "to be TOML, got "),
        ("[unknown]\n", r"expected only entries \[\[known\]\], got unknown"),
        ("known = 1", r"expected only entries \[\[known\]\], got known"),
        ("known = [1]", "entry 1: expected rule, backend, status, reason, and optionally .*, got 1"),
        *((entry(**{key: None}), "expected rule, backend, status") for key in list(LINES)[:4]),
        ("part = 'some'\n" + entry(), "part: expected one of quick, smoke, level, chosen, got 'some'"),
        (entry(tests=["t"]), "expected rule, backend, status, reason, and optionally link and cases, got "),
        (entry(rule="X-1"), "entry 1: rule: expected one of the standard, got 'X-1'"),
        (entry(status="crash"), "status: expected one of fail, error, ended, got 'crash'"),
        (entry(reason=" "), "reason: expected a text"),
        (entry(backend=1), "backend: expected a text"),
        (entry(cases=[]), "cases: expected names of cases, or no key cases"),
        (entry(cases="c"), "cases: expected names of cases"),
    ],
)
def test_what_is_no_file_of_known_failures(text, message, tmp_path):
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message) as wrong:
        read_known(path)
    assert "\n" not in str(wrong.value)
    path.write_text(entry(link=None, cases=None))
    assert read_known(path) == (replace(BY_RULE, reason="r", link=""),)
