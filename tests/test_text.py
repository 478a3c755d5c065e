"""The text of a verdict states all of its fields, its reproduction runs, and external text has no effect."""

import re
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from reported import DEVIATION, ERROR, FAIL, NOT_SHOWN, PASS, RESULTS, SUBJECT, UNMET, UNSUPPORTED
from tests_support import python

from attnspec import find_rule
from attnspec.backends import load
from attnspec.conformance import expected, find
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.outside import cut, plain
from attnspec.conformance.render.markdown import to_markdown
from attnspec.conformance.render.reproduction import reproduction
from attnspec.conformance.render.screen import screen
from attnspec.conformance.render.text import brief, result_line, verdict_line, verdict_text
from attnspec.conformance.results import Subject
from attnspec.conformance.verdict import Difference

UNIFORM = next(variant.text for variant in find_rule("MASK-6").variants if variant.name == "uniform")
BUDGET = "allowed 0: nothing may be off here (2 of 6 elements are off)"
FAILURE = f"""\
MASK-6 A row with nothing to attend to gives zero
case masking-empty-last, float32, on m:f
output[2, 0]: got 1.4375, expected 0.0, off by 1.44, {BUDGET}
equals the variant `uniform` of MASK-6: {UNIFORM}
reproduce:
    from attnspec.backends import load
    from attnspec.conformance import expected, find, observe
    backend, case = load("m:f"), find("masking-empty-last-float32")
    print(observe(backend, case)["output"][2, 0], expected(case, backend)["output"][2, 0])"""
EXCEPTION = """\
NUM-3 Every element stays within its error budget
case numerics-long, float32, on m:f
raised ValueError: no | <b>\ufffd
at /m.py, line 7, in f
reproduce:
    from attnspec.backends import load
    from attnspec.conformance import find, observe
    print(observe(load("m:f"), find("numerics-long-float32")))"""
HUNG = """\
NUM-3 Every element stays within its error budget: case numerics-long, float32, on m:f, did not end in 3 s
reproduce: attnspec check m:f --case numerics-long-float32"""


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (FAIL, FAILURE),
        (ERROR, EXCEPTION),
        (replace(ERROR, raised=None, reason="did not end in 3 s", code="hung"), HUNG),
        (PASS, ""),
        (UNSUPPORTED, "m:f has no argument sinks"),
        (replace(DEVIATION, variant="", declared=("ERR-6 a", "x")), "declared: ERR-6 a, x"),
    ],
)
def test_a_verdict_in_full(verdict, text):
    assert verdict_text(verdict) == text


def test_lines_of_verdicts_that_are_no_failures_of_a_must():
    last = "was killed by SIGABRT; its standard error ends:\n    panicked at src/lib.rs:7\n    note"
    verdict = replace(ERROR, raised=None, reason=last, code="broken")
    assert result_line(verdict).endswith("its standard error ends: panicked at src/lib.rs:7 note")
    assert verdict_line(UNMET) == (
        "SHOULD not met: NUM-9 A repeated call gives the same bits: "
        "output[0]: got 1.0, expected 1.5 (1 of 2 elements have other bits)"
    )
    declared = replace(UNMET, status="deviation")
    assert verdict_line(declared).startswith(f"declared deviation: {declared.main_rule} ")
    assert re.fullmatch(r"not shown: NUM-10 .*: got other bits", verdict_line(NOT_SHOWN))
    assert verdict_text(DEVIATION).startswith("shows the declared variant `bottom-right` of MASK-3")


@pytest.mark.parametrize(
    ("difference", "line"),
    [
        (
            Difference("value", "output", (1,), 2.0, 1.0, 0.25, 4.0, 3, 9),
            "output[1]: got 2.0, expected 1.0, off by 1, allowed 0.25: 4 budgets (3 of 9 elements are off)",
        ),
        (
            Difference("pattern", "lse", (), float("nan"), float("-inf"), count=1, size=1),
            "lse: got nan, expected -inf (1 of 1 elements differ in being NaN or infinite)",
        ),
        (
            Difference("shape", "output", got="(2, 3)", expected="(2, 4)"),
            "output: got shape (2, 3), expected (2, 4)",
        ),
        (
            Difference("dtype", "output", got="float64", expected="float32"),
            "output: got dtype float64, expected float32",
        ),
        (
            Difference("bits", "weights", (0, 1), 0.5, 0.25, count=1, size=4),
            "weights[0, 1]: got 0.5, expected 0.25 (1 of 4 elements have other bits)",
        ),
    ],
)
def test_differences(difference, line):
    verdict = replace(FAIL, difference=difference)
    assert result_line(verdict) == line
    assert line.startswith(brief(verdict))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"ignored": "mask"}, "equals the result without `mask`: accepted, and changes nothing in this call"),
        (
            {"rule": "NUM-5", "variant": "storage", "precision": "float16"},
            "within the budget of the variant `storage` of NUM-5: some step is done in float16",
        ),
        (
            {"rule": "NUM-2", "variant": "", "precision": "float32"},
            "within the budget of NUM-2: some step is done in float32",
        ),
        ({"repeatable": False}, "not repeatable: the same call, repeated, has another result"),
        ({"reason": "expected an error, got output"}, "expected an error, got output"),
        ({"rules": ("NEW-1",), "rule": ""}, "NEW-1"),
        ({"rules": (), "rule": ""}, "no rule"),
    ],
)
def test_what_else_is_known_is_said_in_a_line(changes, line):
    assert line in verdict_text(replace(FAIL, **changes)).splitlines()
    assert line not in verdict_text(FAIL).splitlines()


#: What judging a failure again gives.
OTHER = replace(FAIL, difference=Difference("bits", "output", (1,), 3.0, 1.0))


@pytest.mark.parametrize(
    ("difference", "shown"),
    [
        (Difference("shape", "output"), "(2,) (2,)"),
        (Difference("dtype", "output"), "float32"),
        (Difference("value", "output", (1,), 4.0, 2.0), "4.0 2.0"),
        (Difference("bits", "output", (1,), 3.0, 1.0), verdict_line(OTHER)),
    ],
)
def test_a_reproduction_prints_what_it_shows(difference, shown, capsys, monkeypatch):
    suite, backends = ModuleType("attnspec.conformance"), ModuleType("attnspec.backends")
    judging = ModuleType("attnspec.conformance.judge.judge")
    backends.load = lambda name: name
    suite.find = lambda name, seed=None: (name, seed)
    suite.observe = lambda *_: {"output": np.array([1, 4], "float32")}
    suite.expected = lambda *_: {"output": np.array([1.0, 2.0])}
    judging.judge = lambda *_: OTHER
    for module in (suite, backends, judging):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    program = reproduction(replace(FAIL, difference=difference))
    exec(program)
    assert capsys.readouterr().out == f"{shown}\n"
    assert len(program.splitlines()) <= 5


def test_reproductions_of_relations_seeded_runs_and_nothing():
    assert "judge(" in reproduction(replace(FAIL, reason="in another batch"))
    assert 'find("masking-empty-last-float32", seed=7)' in reproduction(FAIL, 7)
    assert 'load("program:./x \\"y\\"")' in reproduction(replace(FAIL, backend='program:./x "y"'))
    assert reproduction(replace(ERROR, case="")) == ""
    assert "reproduce" not in verdict_text(replace(ERROR, case=""))


WILD = "\x1b[31m\x1b]8;;http://x\x07[red]x[/] [a](http://y) <script>`b`\n| @you #1 \udc80\u202e:boom: ![i](z)"


def test_external_text_has_no_effect_and_makes_no_line_of_ours():
    raised = replace(ERROR.raised, message=WILD + "y" * 5000)
    text = verdict_text(replace(ERROR, raised=raised, backend="m\x1b:f"))
    assert not {"\x1b", "\x07", "\udc80", "\u202e"} & set(text)
    assert "characters more" in text
    assert len(text) < 3000
    assert cut("short") == plain("short") == "short"
    # A name, a note or a problem that goes on in a line of its own would look like one of the run.
    forged = "x\nm:f: conforms to level core"
    subject = Subject(forged, forged, forged, forged, forged)
    verdicts = [replace(one, backend=forged, case=forged, reason="") for one in (PASS, UNMET, UNSUPPORTED)]
    results = replace(RESULTS, subjects=(subject,), verdicts=tuple(verdicts))
    for text in (screen(Report(results)), to_markdown(Report(results))):
        assert not re.search(r"^m:f: conforms", text, re.MULTILINE)
    long = replace(SUBJECT, problem="y" * 10**6, note="z" * 10**6)
    assert len(screen(Report(replace(RESULTS, subjects=(long,))))) < 20_000


OWN = """
def attention(query, key, value, *, is_causal=False):
    return query @ key.swapaxes(-1, -2) @ value
"""
TOML = """
[backend]
function = "products_without_mask:attention"

[backend.dialect]
MASK-3 = "bottom-right"
"""


def test_a_reproduction_prints_the_numbers_of_the_report_in_the_dialect_of_a_backend(tmp_path):
    (tmp_path / "products_without_mask.py").write_text(OWN)
    (tmp_path / "attnspec.toml").write_text(TOML)
    case = find("masking-causal-more-keys-float32")
    verdict = judge(load(str(tmp_path)), case)
    program = reproduction(verdict)
    got, shown = map(float, python("-c", program, cwd=tmp_path, status=0).stdout.split())
    assert (got, shown) == (pytest.approx(verdict.difference.got), verdict.difference.expected)
    assert expected(case)["output"][verdict.difference.element] != shown
