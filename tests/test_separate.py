"""Backends of libraries with an environment of their own."""

import re
import runpy
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from attnspec import reference
from attnspec.backends import BackendError, Unsupported, expand, load
from attnspec.backends.names import SEPARATE

ROOT = Path(__file__).parents[1]
RANDOM = np.random.default_rng(3)


@cache
def noxfile():
    """What the file of sessions has; nox warns if it is run again in one process."""
    return runpy.run_path(str(ROOT / "noxfile.py"))


def test_each_library_has_its_requirements():
    pytest.importorskip("nox")
    session = noxfile()["SEPARATE"]
    assert set(session) == {library for library, _ in SEPARATE.values()}
    for library, needed in session.items():
        assert expand(library), "`attnspec check LIBRARY` judges all its backends"
        assert all("==" in one for one in needed), f"{library}: the release is pinned"


@pytest.mark.parametrize(
    ("words", "libraries"),
    [
        ([], ["numpy", "torch", "jax"]),
        (["--backend", "kernel:attention"], ["torch"]),
        (["--backend", "kernel:attention", "--array", "jax"], ["jax"]),
        (["--program", "./attention"], ["numpy"]),
        (["--backend", "kernel:attention", "--array", "abacus"], []),
    ],
)
def test_only_the_environments_that_are_needed_are_begun(words, libraries, tmp_path):
    nox = pytest.importorskip("nox")
    (tmp_path / "kernel.py").write_text("import torch\n")
    begun = []

    def error(message):
        raise nox.sessions._SessionQuit(message)

    session = SimpleNamespace(
        posargs=words,
        invoked_from=str(tmp_path),  # the module is searched here, not beside the noxfile
        notify=lambda name, posargs: begun.append((name, posargs)),
        error=error,
    )
    conformance = noxfile()["conformance"]
    assert conformance.venv_backend == "none", "nox empties the environment of a session before it runs"
    if libraries:
        conformance(session)
    else:
        with pytest.raises(nox.sessions._SessionQuit, match="got abacus"):
            conformance(session)
    assert begun == [(f"judge({library})", words) for library in libraries]


@pytest.mark.parametrize("name", SEPARATE)
def test_a_backend_loads_or_says_what_to_install(name):
    try:
        backend = load(name)
    except BackendError:
        with pytest.raises(BackendError, match=re.escape(f"nox -s 'libraries({SEPARATE[name][0]})'")):
            load(name)
        return
    assert backend.name == name
    assert backend.version
    assert backend.not_understood == ()
    arrays = [RANDOM.normal(size=(1, 2, 3, 4)).astype(np.float32) for _ in range(3)]
    got = backend.to_numpy(backend.attention(*map(backend.to_library, arrays)))
    assert np.allclose(got, reference.attention(*arrays), atol=1e-2)


@pytest.fixture
def onnx_model():
    pytest.importorskip("onnx", minversion="1.23")
    from attnspec.backends.adapters.onnx import onnx_model

    return onnx_model


CALLS = (
    (23, {"is_causal": True}),
    (23, {"is_causal": True, "query_offset": 2}),
    (23, {"query_offset": 1}),  # without effect
    (23, {"scale": 0.25, "softcap": 1.5, "mask": RANDOM.random((3, 5)) < 0.6}),
    (23, {"bias": RANDOM.normal(size=(4, 1, 5))}),
    (24, {"key_lengths": np.array([4, 2])}),
    (24, {"key_lengths": np.array([4, 3]), "is_causal": True, "query_offset": np.array([1, 0])}),
    (25, {"mask": RANDOM.random((3, 1)) < 0.6}),  # a short last axis would be extended by False
    (25, {"window": (1, None)}),
    (25, {"window": (1, 0), "is_causal": True}),
    (25, {"window": (0, 1), "query_offset": 2}),
)


@pytest.mark.parametrize(("opset", "options"), CALLS)
def test_the_model_of_a_call_is_the_call(onnx_model, opset, options):
    from onnx.reference import ReferenceEvaluator

    query, key, value = (RANDOM.normal(size=shape) for shape in ((2, 4, 3, 6), (2, 2, 5, 6), (2, 2, 5, 3)))
    arguments = {"query": query, "key": key, "value": value, **options}
    model, inputs = onnx_model({**arguments, "return_weights": True}, opset=opset)
    got = ReferenceEvaluator(model).run(None, inputs)
    expected = reference.attention(query, key, value, **options, return_weights=True)
    for one, other in zip(got, expected, strict=True):
        # The evaluator takes the root of the scale in float32.
        assert np.allclose(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("opset", "options", "message"),
    [
        (23, {"window": (1, 1)}, "the node Attention of opset 23 has no window"),
        (23, {"key_lengths": np.array([1])}, "the node Attention of opset 23 has no key_lengths"),
        (24, {"key_lengths": np.array([4]), "is_causal": True}, "the last query at the last valid key"),
        (25, {"is_causal": True, "query_offset": 6}, "has no offset, except for past keys"),
        (25, {"mask": np.ones((3, 5), bool), "bias": np.ones((3, 5))}, "has one attn_mask"),
        (25, {"bias": np.ones((3, 5), np.float32)}, "attn_mask has the dtype of Q, float64"),
        (25, {"sinks": np.ones(2)}, "the node Attention of opset 25 has no sinks"),
    ],
)
def test_a_call_that_the_node_cannot_express(onnx_model, opset, options, message):
    query, key = np.ones((1, 2, 3, 4)), np.ones((1, 2, 5, 4))
    with pytest.raises(Unsupported, match=message):
        onnx_model({"query": query, "key": key, "value": key, **options}, opset=opset)
