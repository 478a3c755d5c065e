"""Backends: found by name, or refused in one line; and all of them conform, or deviate as declared."""

import os
import time
from dataclasses import replace

import numpy as np
import pytest

from attnspec.backends import NAMES, Backend, BackendError, expand, load
from attnspec.backends.backend import check_signature

TESTS = os.path.dirname(__file__)


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    """Modules of a user's own are looked for in the current folder."""
    monkeypatch.chdir(TESTS)


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_makes_a_round_trip(name):
    backend = load(name)
    assert backend.name == name
    assert backend.version
    for dtype in backend.dtypes:
        array = np.array([[1.5, -0.0], [np.inf, np.nan]], dtype)
        back = backend.to_numpy(backend.to_library(array))
        assert back.tobytes() == array.tobytes()
        assert back.dtype == array.dtype


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_leaves_the_array_it_was_made_from_alone(name):
    backend = load(name)
    array = np.ones((2, 2))
    backend.to_library(array)
    backend.to_numpy(backend.to_library(array))[:] = 3
    assert array.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_names_and_libraries():
    assert expand("numpy") == ("numpy-portable", "numpy-reference")
    assert expand("jax-nn") == ("jax-nn",)
    assert expand("a.b:c") == ("a.b:c",)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "torhc",
            "backend: got 'torhc', expected a library (numpy, strict, torch, jax), one of numpy-portable, ",
        ),
        (":", "backend: got ':', expected module:function"),
        ("broken:", "backend: got 'broken:', expected module:function"),
        ("bro ken:half", "backend: got 'bro ken:half', expected module:function"),
        (
            "nowhere:attention",
            "backend nowhere:attention: expected a module nowhere, got none in this folder or installed",
        ),
        ("broken:absent", "backend broken:absent: expected absent in broken, got no such name"),
        ("failing:attention", "backend failing:attention: importing failing raised RuntimeError: no device"),
        ("broken:not_a_function", "backend broken:not_a_function: expected a function or a Backend, got int"),
        ("broken:misnamed", "backend broken:misnamed: expected query, key, value, got query, keys, values"),
        (
            "broken:demanding",
            "backend broken:demanding: expected query, key, value, got query, key, value, dropout",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(name, message):
    with pytest.raises(BackendError) as caught:
        load(name)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_import_that_does_not_end_is_left_behind():
    start = time.monotonic()
    with pytest.raises(BackendError, match=r"expected hanging to be imported in 0.2 s, got no end"):
        load("hanging:attention", seconds=0.2)
    assert time.monotonic() - start < 30


def test_a_missing_library_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "attnspec.backends.torch_backend", raising=False)
    with pytest.raises(
        BackendError, match=r"backend torch-sdpa: expected torch to be installed, got none; pip install"
    ):
        load("torch-sdpa")


def test_a_function_runs_on_the_library_that_its_module_imports():
    backend = load("broken:half")
    assert backend.library == "numpy"
    assert backend.has("attention", "query")
    assert not backend.has("attention", "mask")
    assert not backend.has("projection", "tokens")


def test_a_builtin_without_a_signature():
    with pytest.raises(BackendError, match="expected a function with a signature"):
        check_signature("m:f", type)


def test_a_backend_object_of_ones_own(monkeypatch):
    import broken

    portable = load("numpy-portable")
    own = Backend("mine", "numpy", "1", portable.xp, portable.attention, dtypes=("float32",))
    monkeypatch.setattr(broken, "own", own, raising=False)
    assert load("broken:own") == replace(own, name="broken:own")


@pytest.mark.parametrize(
    "change",
    [
        {"dtypes": ()},
        {"dtypes": "float32"},
        {"xp": None},
        {"companions": {"f": len}},
        {"dialect": {"MASK-6": "x"}},
    ],
)
def test_a_backend_whose_fields_say_nothing(monkeypatch, change):
    import broken

    monkeypatch.setattr(broken, "own", replace(load("numpy-portable"), **change), raising=False)
    (field,) = change
    with pytest.raises(BackendError, match=f"^backend broken:own: {field}: expected .*, got "):
        load("broken:own")


def test_native_adapters_say_what_their_library_does_not_take():
    from attnspec.backends import Unsupported

    torch, jax = load("torch-sdpa"), load("jax-nn")
    one = np.ones((2, 3, 4), np.float32)
    arrays = [torch.to_library(one)] * 3
    with pytest.raises(Unsupported, match="attn_mask or is_causal, not both"):
        torch.attention(*arrays, mask=torch.to_library(np.ones((3, 3), bool)), is_causal=True)
    with pytest.raises(Unsupported, match="values of the keys' depth alone"):
        jax.attention(jax.to_library(one), jax.to_library(one), jax.to_library(one[..., :2]))
