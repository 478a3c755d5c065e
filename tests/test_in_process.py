"""Judging in the current process, and describing a function by a decorator instead of a file."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conventions import kernel

from attnspec import SpecError, reference
from attnspec.backends import BackendError, implementation, load
from attnspec.conformance import check

NAMES = {"query": "q", "key": "k", "value": "v"}
NAMES |= {"scale": "softmax_scale", "is_causal": "causal", "mask": "attn_mask"}
SAID = {"names": NAMES, "layout": "BSHD", "mask": "ignore", "axes": 4}
SAID |= {"returns": ("output", "lse"), "ignore": ("dropout_p",)}


@pytest.mark.parametrize("scale", [None, 1.0])
def test_a_closure_is_judged(scale):
    def attention(query, key, value):
        return reference.attention(query, key, value, scale=scale, dtype=query.dtype)

    found = check(attention, rules=["SCORE-2"])
    assert found.good is bool(found) is (scale is None)
    assert ("SCORE-2" in found.text) is (scale is not None), "a rule that fails has a row of its own"
    assert "attention" in str(found)


def half(query, key, value):
    return reference.attention(query, key, value, dtype=query.dtype) / 2


def test_a_reproduction_of_a_function_that_can_be_imported_runs_elsewhere():
    found = check(half, cases=["softmax-000-float64"])
    script = found.text.partition("reproduce:\n")[2].partition("\n\n")[0]
    command = [sys.executable, "-c", "\n".join(line.strip() for line in script.splitlines())]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent)
    got, expected = map(float, run.stdout.split())
    assert abs(got - expected / 2) < 1e-9


@pytest.mark.parametrize("name", ["closure", "<lambda>"])
def test_a_reproduction_of_a_function_without_a_place_says_so_and_runs_where_it_is(name, capsys):
    def closure(query, key, value):
        return half(query, key, value)

    function = closure if name == "closure" else lambda query, key, value: half(query, key, value) + 0
    found = check(function, cases=["softmax-000"], seed=3)
    lines = [line.strip() for line in found.text.partition("reproduce:\n")[2].splitlines()[:3]]
    assert lines[0].startswith(f"# No import leads to {name}, so this runs where it is defined")
    exec("\n".join(lines), {"closure": closure, "function": function})
    assert "softmax-000-float64" in capsys.readouterr().out
    assert "attnspec check" not in found.text


def test_what_is_said_of_a_function_counts():
    found = check(kernel, name="mine", rules=["MASK-6"], quick=True, **SAID)
    assert found.good, found.text
    assert {verdict.backend for verdict in found.report.results.verdicts} == {"mine"}
    assert not check(kernel, rules=["MASK-6"], quick=True, **{**SAID, "mask": "attend"}).good
    found = check(kernel, rules=["SCORE-1"], **{**SAID, "ignore": ()})
    assert not found.good
    assert "not understood: dropout_p" in found.text
    with pytest.raises(BackendError, match=r"backend kernel: expected some of .*, got 'layuot' \(layout\?\)"):
        check(kernel, layuot="BSHD")
    with pytest.raises(BackendError, match=r"@implementation of kernel: expected some of .*, got 'program'"):
        implementation(program="x")(kernel)


def test_backends_and_single_cases():
    found = check(load("numpy-portable"), cases=["masking-empty-last"])
    assert found.good
    assert len(found.report.results.verdicts) == 4
    found = check(load("numpy-portable"), cases=["softmax-000", "errors-refused-scale-of-nan-1"])
    refusals = [verdict.refusal for verdict in found.report.results.verdicts]
    assert refusals.count(True) == 2 < len(refusals)
    assert "refusals: 2 pass" in found.text
    with pytest.raises(SpecError, match="case: expected an id such as masking-empty-last, got"):
        check(load("numpy-portable"), cases=["softmax-000", "masking-nothing"])


def test_what_declines_everything_is_not_judged_and_says_why():
    def kernel(query, key, value):
        raise NotImplementedError("needs a GPU")

    found = check(kernel, rules=["SCORE-2"])
    assert found.report.outcome.status == 4
    said = " ".join(found.text.splitlines()[1:3])
    assert said.startswith("kernel: was not judged: declined")
    assert " ".join(said.split()).endswith("cases that its arguments offer: NotImplementedError: needs a GPU")


def test_a_decorator_in_place_of_a_file(tmp_path, monkeypatch):
    (tmp_path / "decorated.py").write_text(
        "from attnspec.backends import implementation\n"
        "from conventions import kernel as inner, rope\n\n"
        f"@implementation(**{SAID!r}, dtypes=['float32'], companions={{'rotary': rope}})\n"
        "def kernel(q, k, v, softmax_scale=None, causal=None, attn_mask=None, dropout_p=0.0):\n"
        "    return inner(q, k, v, softmax_scale, causal, attn_mask)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    backend = load("decorated:kernel")
    assert backend.has("attention", "is_causal")
    assert (backend.dtypes, backend.not_understood) == (("float32",), ())
    assert backend.has("rotary", "interleaved")
    assert backend.constraints.axes == 4
    x = np.ones((2, 3, 4), "float32")
    assert np.array_equal(backend.attention(x, x, x, is_causal=True), x)
    assert load("decorated:kernel?dtype=float64").dtypes == ("float64",)
    assert sys.modules["decorated"].kernel(*[np.ones((1, 3, 2, 4))] * 3)[0].shape == (1, 3, 2, 4)


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "attnspec", "explain"]
    run = subprocess.run([*command, "MASK-6"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("MASK-6 ")
    wrong = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Usage: attnspec explain" in wrong.stderr


@pytest.mark.parametrize(
    ("function", "said", "kind"),
    [
        (lambda query, key, value: reference.attention(query, key, value, dtype=query.dtype), {}, "function"),
        (
            lambda q, k, v: reference.attention(q, k, v, dtype=q.dtype),
            {"names": dict(zip(("query", "key", "value"), "qkv", strict=True))},
            "adapted",
        ),
        (load("torch-sdpa"), {}, "adapted"),
    ],
)
def test_a_function_of_no_module_has_the_class_of_its_signature(function, said, kind):
    (subject,) = check(function, cases=["scores-negative"], **said).report.results.subjects
    assert subject.kind == kind
