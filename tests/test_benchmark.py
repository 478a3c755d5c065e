"""The benchmark: all functions that are timed compute the same, and a forward run has no gradient."""

import numpy as np
import pytest

from attnspec.reference import attention, attention_vjp
from tools import benchmark
from tools.benchmark import backward_passes, forward_passes


@pytest.mark.parametrize("name", forward_passes())
def test_each_forward_pass_computes_the_same(name):
    arrays = np.random.default_rng(0).normal(size=(3, 1, 2, 9, 4))
    output = forward_passes()[name](*arrays)
    if "floor" not in name and "two products" not in name:
        expected = attention(*arrays, is_causal="causal" in name)
        np.testing.assert_allclose(np.asarray(output).reshape(expected.shape), expected, rtol=1e-10)


@pytest.mark.parametrize("name", backward_passes())
def test_each_backward_pass_computes_the_same(name):
    arrays = np.random.default_rng(0).normal(size=(4, 1, 2, 9, 4))
    options = {"is_causal": True} if "causal" in name else {}
    forward = "forward" in name and "backward" not in name
    wanted = [attention(*arrays[:3])] if forward else attention_vjp(*arrays, **options)
    found = backward_passes()[name](*arrays)
    for got, expected in zip([found] if forward else found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-10, atol=1e-12)


def test_functions_and_the_judge_of_sizes_are_timed_and_windows_attend_to_their_keys():
    found = list(benchmark.time_functions(backward_passes(), 4, (1, 2, 9, 4), repeats=1))
    assert [name for name, _, _ in found] == list(backward_passes())
    assert all(seconds > 0 for _, seconds, _ in found)
    assert all(np.isnan(memory) if "torch" in name else memory > 0 for name, _, memory in found)
    ((rows, *numbers),) = benchmark.size_rows((6,))
    assert rows == "64"
    assert len(numbers) == 7
    arrays = np.random.default_rng(0).normal(size=(3, 2, 600, 4))
    options = {"is_causal": True, "window": (255, None), "return_lse": True}
    for got, expected in zip(
        benchmark.attend_in_windows(*arrays, **options), attention(*arrays, **options), strict=True
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-10)
