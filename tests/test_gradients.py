"""Gradients of a user's function: which are judged, and what the report says about the others."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path

import differentiated
import numpy as np
import pytest
from backward import attention as of_numpy
from backward import attention_vjp
from tests_support import attnspec, own_case

from attnspec.backends import describe, implementation, load, load_library
from attnspec.backends.backend import Backend
from attnspec.backends.user.signature import unknown_parameters
from attnspec.conformance import check
from attnspec.conformance.judge.expected import exact, forward_results
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.run.offline import export_calls
from attnspec.conformance.suite import find

pytestmark = pytest.mark.usefixtures("in_tests")
TESTS = Path(__file__).parent
PLAIN = "gradients-random-cotangents-1-float32"
GROUPED = "gradients-shared-heads-1-float32"
REFUSED = "errors-refused-cotangent-of-the-output-with-an-axis-more-in-attention-vjp-1-float32"
REASONS = {
    "without_gradient": "its result does not depend on its inputs for autograd of PyTorch",
    "by_numpy": "RuntimeError: Can't call numpy() on Tensor that requires grad. "
    "Use tensor.detach().numpy() instead.",
    "unwritten": "RuntimeError: no backward pass",
}


def judged(name, case):
    return judge(load(name), find(case))


@pytest.mark.parametrize("case", [PLAIN, GROUPED, REFUSED])
def test_a_function_of_pytorch_is_differentiated(case):
    assert judged("differentiated:attention", case).status == "pass"


@pytest.mark.parametrize("case", [PLAIN, GROUPED, REFUSED])
@pytest.mark.parametrize("name", REASONS)
def test_a_function_that_is_not_differentiable_is_not_failed_for_it(name, case):
    verdict = judged(f"differentiated:{name}", case)
    assert (verdict.status, verdict.declined) == ("unsupported", False)
    assert verdict.reason == f"differentiated:{name} computes no gradient: {REASONS[name]}"


def test_a_gradient_of_none_is_wrong():
    verdict = judged("differentiated:with_a_constant_key", PLAIN)
    assert (verdict.status, verdict.rule) == ("fail", "GRAD-17")
    assert verdict.reason == "d_key: expected a gradient or an error, got none: no output depends on it"
    verdict = judged("differentiated:doubled", GROUPED)
    assert (verdict.status, verdict.difference.output) == ("fail", "d_key")
    assert judged("differentiated:of_equal_heads", PLAIN).status == "pass"
    verdict = judged("differentiated:of_equal_heads", GROUPED)
    assert (verdict.status, verdict.raised.message) == ("error", "shared heads")
    verdict = judged("differentiated:packed_attention", "packing-gradients-means-float32")
    assert (verdict.status, verdict.code) == ("unsupported", "no gradient")


@pytest.mark.parametrize(
    ("function", "status"),
    [(differentiated.sloped, "pass"), (differentiated.sloped_from_the_first_key, "fail")],
)
def test_the_gradients_beside_slopes_are_judged_without_that_of_the_bias(function, status):
    backend = describe(function, library="torch", slopes="slopes", dialect={"MASK-3": "bottom-right"})
    case = find("gradients-linear-bias-of-more-keys-no-mask-2-float32")
    assert judge(backend, case).status == status
    verdict = judge(backend, replace(case, outputs=()))
    assert (verdict.status, verdict.lacks) == ("unsupported", ("output d_bias",))


@pytest.mark.parametrize(("batch", "status"), [(0, "pass"), (1, "fail")])
def test_no_gradient_of_an_array_without_elements_is_its_gradient(batch, status):
    arrays = {name: np.ones((batch, 1, 3, 2), np.float32) for name in ("query", "key", "value", "d_output")}
    case = own_case("GRAD-1", arrays, "attention_vjp")
    assert judge(load("differentiated:with_a_constant_key"), case).status == status


def lines_from(place):
    return Path(place.file).read_text().splitlines()[place.line - 1 :]


def test_the_line_of_the_backward_pass_that_raised_is_shown():
    raised = judged("differentiated:of_equal_heads", GROUPED).raised
    assert (Path(raised.file).name, raised.function) == ("differentiated.py", "backward")
    assert lines_from(raised)[0].strip() == 'raise RuntimeError("shared heads")'


@pytest.mark.parametrize("wrap", [lambda function: function, partial])
def test_the_function_is_shown_if_the_library_raised_in_its_own_code(wrap, monkeypatch):
    monkeypatch.setattr(differentiated, "wrapped", wrap(differentiated.overwritten), raising=False)
    assert judged("differentiated:wrapped", PLAIN).status == "pass"
    raised = judged("differentiated:wrapped", GROUPED).raised
    assert "modified by an inplace operation" in raised.message
    assert (Path(raised.file).name, raised.function) == ("differentiated.py", "overwritten")
    assert lines_from(raised)[0] == "def overwritten(query, key, value):"


def test_a_run_says_why_no_gradient_was_judged():
    part = ["-k", "SCORE-1", "-k", "GRAD-1", "--dtype", "float32"]
    run = attnspec("check", "differentiated:unwritten", *part, status=0)
    said = " ".join(run.stdout.split())
    assert "gradients: not judged; it computes no gradient: RuntimeError: no backward pass" in said


@pytest.mark.parametrize("case", [PLAIN, GROUPED])
def test_a_function_of_numpy_without_gradients_is_not_failed_for_it(case):
    backend = Backend("mine", load_library("numpy"), of_numpy)
    verdict = judge(backend, find(case))
    assert (verdict.status, verdict.reason) == ("unsupported", "mine has no attention_vjp")


@pytest.mark.parametrize(
    ("error", "status", "declined"),
    [(NotImplementedError("not offered"), "unsupported", True), (RuntimeError("broken"), "error", False)],
)
def test_a_function_for_gradients_declines_calls_that_are_counted(error, status, declined):
    """ERR-3: it does so by `NotImplementedError`. Another error in every call is one."""

    def backward(query, key, value, d_output, *, scale=None, mask=None):
        raise error

    backend = Backend("mine", load_library("numpy"), of_numpy, companions={"attention_vjp": backward})
    verdict = judge(backend, find(GROUPED))
    assert (verdict.status, verdict.declined) == (status, declined)


def test_a_companion_is_judged_however_it_is_named(tmp_path):
    """By a `Backend`, by the decorator, and by a configuration."""
    case = find(GROUPED)
    of_object = Backend("mine", load_library("numpy"), of_numpy, companions={"attention_vjp": attention_vjp})
    assert judge(of_object, case).status == "pass"

    @implementation(companions={"attention_vjp": attention_vjp})
    def decorated(query, key, value, *, scale=None, mask=None):
        return of_numpy(query, key, value, scale=scale, mask=mask)

    found = check(decorated, cases=[GROUPED])
    assert found.good, found.text
    (tmp_path / "attnspec.toml").write_text(
        '[backend]\nfunction = "./mine.py:attention"\n'
        '[backend.companions]\nattention_vjp = "./mine.py:attention_vjp"\n'
    )
    (tmp_path / "mine.py").write_text((TESTS / "backward.py").read_text())
    run = attnspec("check", "--case", GROUPED.removesuffix("-float32"), cwd=tmp_path, status=0)
    assert "GRAD-3" in run.stdout


def test_results_of_the_forward_pass_are_passed_to_a_function_that_takes_them():
    case = find(GROUPED)
    backend = Backend("mine", load_library("numpy"), of_numpy, companions={"attention_vjp": attention_vjp})
    half = {name: x.astype(np.float16) for name, x in case.arguments.items()}
    given = forward_results(backend, "attention_vjp", half)
    values = exact("attention", {name: x for name, x in half.items() if name != "d_output"})
    assert given["output"].tolist() == values["output"].astype(np.float16).tolist()
    assert given["lse"].tolist() == values["lse"].astype(np.float32).tolist()
    assert unknown_parameters(attention_vjp, "attention_vjp") == ()
    without = replace(backend, companions={"attention_vjp": lambda *arrays: arrays})
    assert forward_results(without, "attention_vjp", half) == {}
    backend = Backend("mine", load_library("numpy"), of_numpy, companions={"attention_vjp": attention_vjp})
    arguments = {name: np.ones((2, 3)) for name in ("query", "value", "d_output")} | {"key": np.ones((2, 4))}
    given = forward_results(backend, "attention_vjp", arguments)
    assert not given["output"].any()
    assert given["lse"].shape == (2,)
    own = {"key": case.arguments["key"].astype(np.float64)}  # an array of another dtype
    values = exact("attention", {name: x for name, x in case.arguments.items() if name != "d_output"})
    given = forward_results(backend, "attention_vjp", case.arguments | own)
    assert given["output"].tolist() == values["output"].astype(np.float32).tolist()


@pytest.mark.exhaustive
def test_exported_calls_contain_the_results_of_the_forward_pass(tmp_path):
    """A program that takes them and one that does not give the same verdict over files."""
    export_calls([find(GROUPED)], tmp_path)
    lines = (tmp_path / "calls.jsonl").read_text().splitlines()
    (message,) = [one for one in map(json.loads, lines) if one["do"] == "run"]
    assert {"output", "lse"} <= set(message["tensors"])
    (tmp_path / "taking.py").write_text(
        "from attnspec.backends import Backend, load_library\n"
        "from backward import attention, attention_vjp\n"
        "VJP = {'attention_vjp': attention_vjp}\n"
        "BACKEND = Backend('b', load_library('numpy'), attention, companions=VJP)\n"
    )
    for name in ("numpy-portable", "taking:BACKEND"):
        command = [sys.executable, "-m", "attnspec.backends.program.serve", name]
        with (tmp_path / "calls.jsonl").open() as calls, (tmp_path / "answers.jsonl").open("w") as answers:
            environment = {"PYTHONPATH": str(TESTS)}
            subprocess.run(command, stdin=calls, stdout=answers, check=True, cwd=tmp_path, env=environment)
        assert judge(load(f"offline:{tmp_path}"), find(GROUPED)).status == "pass"


def test_a_program_may_offer_its_backward_pass():
    backend = load(f"program:{sys.executable} -S {TESTS.parent / 'examples' / 'attention.py'}")
    for case in (PLAIN, GROUPED, REFUSED):
        assert judge(backend, find(case)).status == "pass"


def swallow(function, *arrays, **options):
    """Take NaN as 0."""
    return function(*(np.nan_to_num(x, nan=0) for x in arrays), **options)


def poison(function, *arrays, **options):
    """Spread NaN over all results."""
    results = function(*arrays, **options)
    several = results if isinstance(results, tuple) else (results,)
    spread = any(np.isnan(x.astype("f4")).any() for x in several)
    several = tuple(np.full_like(x, np.nan) for x in several) if spread else several
    return several if isinstance(results, tuple) else several[0]


@pytest.mark.parametrize("wrong", [swallow, poison])
@pytest.mark.parametrize("case", [
    "gradients-nan-in-one-head-query-1-float32",
    *(f"gradients-nan-in-a-query-of-a-form-{number}-float32" for number in range(1, 10, 2)),  # not infinity
    *(f"numerics-number-that-is-none-in-a-latent-form-{part}-1-float32" for part in ("query", "latent")),
])  # fmt: skip
def test_nan_reaches_what_depends_on_it_and_nothing_else(case, wrong):
    """GRAD-18 and NUM-11, of forms too."""
    portable, item = load("numpy-portable"), find(case)
    assert judge(portable, item).status == "pass"
    operation = item.calls[0].operation
    function = wraps(portable.function(operation))(partial(wrong, portable.function(operation)))
    companions = {**portable.companions, operation: function}
    assert judge(replace(portable, companions=companions), item).status == "fail"
