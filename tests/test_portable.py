"""The portable source refuses malformed calls by name on every library, and accepts unusual valid calls."""

import numpy as np
import pytest
from tests_support import run_operation

from attnspec.backends import load

OTHERS = ("torch-portable", "jax-portable", "strict-portable", "dask-portable")


def test_arrays_of_two_libraries_are_refused():
    torch = load("torch-portable")
    ours, one = torch.to_library(np.ones((2, 2))), np.ones((2, 2))
    with pytest.raises(ValueError, match=r"^key: expected an array of .*torch, got one of .*numpy \[ERR-2]$"):
        torch.attention(ours, one, ours)
    with pytest.raises(ValueError, match=r"^mask: expected an array of .*torch, got .*numpy \[ERR-4]$"):
        torch.attention(ours, ours, ours, mask=one > 0)


def test_integers_of_numpy_are_integers():
    attention = load("numpy-portable").attention
    arrays = [np.sin(np.arange(12.0)).reshape(4, 3)] * 3
    options = {"is_causal": True, "query_offset": 1, "window": (1, 0), "key_lengths": 3, "scale": 2}
    of_numpy = options | {
        "query_offset": np.int32(1),
        "window": (np.uint8(1), np.int64(0)),
        "scale": np.int64(2),
    }
    assert (attention(*arrays, **options) == attention(*arrays, **options | of_numpy)).all()


def test_a_number_that_the_positions_do_not_have_is_refused_or_has_its_meaning():
    attention = load("numpy-portable").attention
    one = np.ones((3, 2))
    everything = attention(one, one, one)
    assert (attention(one, one, one, window=(10**30, 10**30)) == everything).all()
    assert (attention(one, one, one, query_offset=-(2**62), is_causal=True) == 0).all()
    with pytest.raises(ValueError, match=r"^query_offset: expected .*, got 10{21} \[ERR-8]$"):
        attention(one, one, one, query_offset=10**21, is_causal=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_softcap_beyond_the_dtype(dtype):
    scores = load("numpy-portable").companions["scores"]
    query, key = np.array([[1.0, 2.0]], dtype), np.array([[3.0, -1.0], [0.0, 0.0]], dtype)
    assert scores(query, key, scale=1.0, softcap=1e300).tolist() == [[1.0, 0.0]]
    assert float(np.abs(scores(query, key, scale=1.0, softcap=1e-300)).max()) < 1e-37


@pytest.mark.parametrize("name", ["numpy-portable", "torch-portable", "strict-portable"])
def test_a_bias_and_sinks_in_float64_are_taken_at_their_value(name):
    """2 ** 24 + 1 is no number of float32, and 1e300 none that it could hold."""
    backend = load(name)
    zero, value = np.zeros((1, 1), np.float32), np.array([[1.0], [3.0]], np.float32)
    key = np.zeros((2, 1), np.float32)
    options = {"bias": np.array([2.0**24 + 1, 2.0**24]), "sinks": np.array([-1e300])}
    arguments = {"query": zero, "key": key, "value": value, **options, "return_weights": True}
    output, weights = map(backend.to_numpy, run_operation(backend, "attention", arguments))
    share = 1 / (1 + np.exp(-1))
    assert np.allclose(weights, [[share, 1 - share]], rtol=1e-6)
    assert np.allclose(output, [[share + 3 * (1 - share)]], rtol=1e-6)
    assert output.dtype == np.float32


@pytest.mark.parametrize("name", ["numpy-portable", *OTHERS])
def test_a_row_that_is_spoilt_spoils_no_other(name):
    """Four queries: one with a NaN score, one that does not see it, one with nothing to see, one dropped."""
    backend = load(name)
    query, key = np.ones((4, 1)), np.array([[np.nan], [1.0], [2.0]])
    value = np.array([[np.inf, 1.0], [5.0, np.nan], [7.0, 2.0]])
    mask = np.array([[True, False, True], [False, False, True], [False] * 3, [True] * 3])
    kept = np.array([True, True, True, False])[:, None]
    arguments = {
        "query": query,
        "key": key,
        "value": value,
        "mask": mask,
        "dropout_mask": kept,
        "return_lse": True,
    }
    output, lse = map(backend.to_numpy, run_operation(backend, "attention", arguments))
    assert np.array_equal(output, [[np.nan] * 2, [7.0, 2.0], [0.0] * 2, [np.nan] * 2], equal_nan=True)
    assert np.array_equal(lse, [np.nan, 2.0, -np.inf, np.nan], equal_nan=True)
