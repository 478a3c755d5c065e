"""The text of a verdict states all of its fields, and its reproduction runs."""

import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from reported import DEVIATION, ERROR, FAIL, NOT_SHOWN, PASS, UNMET, UNSUPPORTED

from attnspec import find_rule
from attnspec.conformance.outside import cut, plain
from attnspec.conformance.render.reproduction import reproduction
from attnspec.conformance.render.text import result_line, verdict_line, verdict_text
from attnspec.conformance.verdict import Difference

BUDGETS = "nothing may be off here (2 of 6 elements are off)"


def test_a_failure_in_full():
    uniform = next(variant.text for variant in find_rule("MASK-6").variants if variant.name == "uniform")
    assert verdict_text(FAIL).splitlines() == [
        "MASK-6 A row with nothing to attend to gives zero",
        "case masking-empty-last, float32, on m:f",
        f"output[2, 0]: got 1.4375, expected 0.0, off by 1.44, allowed 0: {BUDGETS}",
        f"equals the variant `uniform` of MASK-6: {uniform}",
        "reproduce:",
        "    from attnspec.backends import load",
        "    from attnspec.conformance import expected, find, observe",
        '    case = find("masking-empty-last-float32")',
        '    print(observe(load("m:f"), case)["output"][2, 0], expected(case)["output"][2, 0])',
    ]


def test_an_exception_in_full():
    assert verdict_text(ERROR).splitlines() == [
        "NUM-3 Every element stays within its error budget",
        "case numerics-long, float32, on m:f",
        "raised ValueError: no | <b>\ufffd",
        "at /m.py, line 7, in f",
        "reproduce:",
        "    from attnspec.backends import load",
        "    from attnspec.conformance import find, observe",
        '    print(observe(load("m:f"), find("numerics-long-float32")))',
    ]


@pytest.mark.parametrize(
    ("difference", "text"),
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
def test_differences(difference, text):
    assert result_line(replace(FAIL, difference=difference)) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ignored": "mask"}, "equals the result without `mask`: accepted, and changes nothing in float32"),
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
    ],
)
def test_what_else_is_known_is_said_in_a_line(changes, text):
    assert text in verdict_text(replace(FAIL, **changes)).splitlines()
    assert text not in verdict_text(FAIL).splitlines()


def test_what_is_no_failure_takes_a_line_or_none():
    assert verdict_text(PASS) == ""
    assert verdict_text(UNSUPPORTED) == "m:f has no argument sinks"
    assert verdict_text(DEVIATION).startswith("shows the declared variant `bottom-right` of MASK-3")
    assert verdict_text(replace(DEVIATION, variant="", declared=("ERR-6 a", "x"))) == "declared: ERR-6 a, x"


def test_what_is_no_must_is_said_to_be_none():
    assert verdict_line(UNMET) == (
        "SHOULD not met: NUM-9 A repeated call gives the same bits: "
        "output[0]: got 1.0, expected 1.5 (1 of 2 elements have other bits)"
    )
    assert verdict_line(NOT_SHOWN).startswith("not shown: NUM-10 ")
    assert verdict_line(NOT_SHOWN).endswith(": got other bits")


def test_rules_that_are_not_known_and_rules_that_are_missing():
    assert verdict_text(replace(ERROR, rules=("NEW-1",))).startswith("NEW-1\n")
    assert verdict_text(replace(ERROR, rules=())).startswith("no rule\n")


def test_text_from_outside_is_text():
    wild = replace(ERROR.raised, message="\x1b]8;;http://x\x07\udc80" + "\u202e" + "y" * 5000)
    text = verdict_text(replace(ERROR, raised=wild, backend="m\x1b:f"))
    assert not {"\x1b", "\x07", "\udc80", "\u202e"} & set(text)
    assert "characters more" in text
    assert len(text) < 3000
    assert cut("short") == plain("short") == "short"


@pytest.mark.parametrize(
    ("difference", "shown"),
    [
        (Difference("shape", "output"), "(2,) (2,)"),
        (Difference("dtype", "output"), "float32"),
        (Difference("value", "output", (1,), 4.0, 2.0), "4.0 2.0"),
        (Difference("bits", "output", (1,)), "judged"),
    ],
)
def test_a_reproduction_prints_what_it_shows(difference, shown, capsys, monkeypatch):
    suite, backends = ModuleType("attnspec.conformance"), ModuleType("attnspec.backends")
    backends.load = lambda name: name
    suite.find = lambda name, seed=None: (name, seed)
    suite.observe = lambda *_: {"output": np.array([1, 4], "float32")}
    suite.expected = lambda *_: {"output": np.array([1.0, 2.0])}
    suite.judge = lambda *_: SimpleNamespace(difference="judged")
    judging = ModuleType("attnspec.conformance.judge.judge")
    judging.judge = suite.judge
    for module in (suite, backends, judging):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    program = reproduction(replace(FAIL, difference=difference))
    exec(program)
    assert capsys.readouterr().out == f"{shown}\n"
    assert len(program.splitlines()) <= 4


def test_reproductions_of_relations_seeded_runs_and_nothing():
    assert "judge(" in reproduction(replace(FAIL, reason="in another batch"))
    assert 'find("masking-empty-last-float32", seed=7)' in reproduction(FAIL, 7)
    assert 'load("program:./x \\"y\\"")' in reproduction(replace(FAIL, backend='program:./x "y"'))
    assert reproduction(replace(ERROR, case="")) == ""
    assert "reproduce" not in verdict_text(replace(ERROR, case=""))
