"""The benchmark of gradients: every backward pass computes the same, and a forward run has no gradient."""

import numpy as np
import pytest

from attnspec.conformance.suite import items
from attnspec.reference import attention, attention_vjp
from tools import benchmark_gradients
from tools.benchmark_gradients import STRANGERS, checks, contenders, forward_cases, rows


@pytest.mark.parametrize("name", contenders())
def test_each_contender_computes_the_same(name):
    arrays = np.random.default_rng(0).normal(size=(4, 1, 2, 9, 4))
    options = {"is_causal": True} if "causal" in name else {}
    forward = "forward" in name and "backward" not in name
    wanted = [attention(*arrays[:3])] if forward else attention_vjp(*arrays, **options)
    found = contenders()[name](*arrays)
    for got, expected in zip([found] if forward else found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-10, atol=1e-12)


def test_a_row_of_each_contender_has_time_and_memory():
    found = list(rows((1, 2, 9, 4), repeats=1))
    assert [name for name, _, _ in found] == list(contenders())
    assert all(seconds > 0 for _, seconds, _ in found)
    assert all(np.isnan(memory) if "torch" in name else memory > 0 for name, _, memory in found)


@pytest.mark.exhaustive
def test_the_forward_cases_are_all_but_those_of_gradients():
    names = set(forward_cases(quick=True))
    left = [item for item in items(quick=True) if item.name not in names]
    assert len(left) > 100
    of_gradients = {item.name for item in items(quick=True) if item.name.startswith("gradients-")}
    assert of_gradients
    assert of_gradients <= {item.name for item in left}
    assert {"softmax-000-float64", "masking-empty-last-float32"} <= names


@pytest.mark.parametrize("library", STRANGERS)
@pytest.mark.exhaustive
def test_a_check_is_timed_with_gradients_and_without(tmp_path, monkeypatch, library):
    pytest.importorskip(library)
    monkeypatch.setattr(benchmark_gradients, "BACKENDS", {})
    monkeypatch.setattr(benchmark_gradients, "STRANGERS", {library: STRANGERS[library]})
    monkeypatch.setattr(benchmark_gradients, "forward_cases", lambda **_: ["softmax-000"])
    ((name, seconds, verdicts),) = checks(tmp_path, ("--case", "gradients-grouped-float32"))
    assert name.endswith(f"stranger_{library}.py:attention")
    assert set(seconds) == {"whole", "forward"}
    assert verdicts == 1
