"""The table of several backends in short: levels by backend, and the deviations from `core`."""

from dataclasses import replace

from click.testing import CliRunner
from reported import DEVIATION, FAIL, PASS, PERFECT, SUBJECT, row, rows

from attnspec.conformance.attribution.report import Report
from attnspec.conformance.cli.main import main
from attnspec.conformance.render.overview import overview
from attnspec.conformance.results import Footer, line

NAMES = ("torch-sdpa", "torch-portable", "m:f")
#: Each departs from a rule of `core` or of another level.
DEVIATIONS = (
    replace(DEVIATION, rule="SCORE-3", rules=("SCORE-3",), variant="", reason="a scale of 0 gives NaN"),
    replace(DEVIATION, rule="MASK-3", rules=("MASK-3",)),
)


def results():
    """Three backends: one deviates, one is portable code, one fails."""
    own = {"torch-sdpa": DEVIATIONS, "torch-portable": DEVIATIONS[1:], "m:f": (replace(FAIL, rule="NUM-2"),)}
    verdicts = [
        replace(verdict, backend=name) for name in NAMES for verdict in (*PERFECT.verdicts, *own[name])
    ]
    return replace(
        PERFECT, subjects=tuple(replace(SUBJECT, name=name) for name in NAMES), verdicts=tuple(verdicts)
    )


def test_levels_by_backend_then_the_rules_of_core_side_by_side():
    text = overview(Report(results()), width=240)
    assert text.startswith("levels reached")
    assert "core lacks SCORE-3 (deviation)" in text
    assert row(text, "torch-portable")[0].startswith("all but masked, cached")
    assert row(text, "m:f")[0].startswith("does not conform: 1 case fails under 1 rule")
    assert "Portable code on a library is the reference implementation of this project" in text
    assert rows(text) == ["SCORE-3", "NUM-2"], "rules of other levels are in the file"
    assert row(text, "SCORE-3") == ["deviation 1 of 2", "pass 1"]
    assert row(text, "NUM-2") == ["pass 1", "FAIL 1 of 2"]
    assert "SCORE-3: a scale of 0 gives NaN (torch-sdpa)" in text
    assert text.count("torch-portable") == 1, "it does not depart from core, so that it has no column"


def test_backends_that_do_not_depart_from_core_are_said_to_do_so():
    text = overview(Report(PERFECT), width=100)
    assert row(text, "m:f")[0] == "all"
    assert "no judged backend departs from a rule of core" in text
    assert "Portable code" not in text


def test_the_rest_is_in_a_file_whose_path_is_last(tmp_path):
    given, rest = tmp_path / "a.jsonl", tmp_path / "table.txt"
    lines = [line("header", replace(PERFECT.headers[0], cases=(PASS.case,))), line("subject", SUBJECT)]
    given.write_text("".join([*lines, line("verdict", PASS), line("footer", Footer(1))]))
    run = CliRunner().invoke(main, ["table", "--rest", str(rest), str(given)])
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("levels reached")
    assert "results by rule" not in run.stdout
    assert run.stdout.endswith(f": {rest}\n")
    assert "results by rule, in cases" in rest.read_text()
