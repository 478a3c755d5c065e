"""Backends are found by name or refused in one line; some have an environment of their own."""

import re
import runpy
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests_support import can_compile, converted

from attnspec import OPERATIONS, find_case, reference
from attnspec.backends import NAMES, BackendError, Unsupported, expand, load, load_library, registry
from attnspec.backends.adapters.conditions import with_masked_rows_open
from attnspec.backends.check import check_backend
from attnspec.backends.names import ADAPTERS, SEPARATE
from attnspec.backends.user.signature import check_signature
from attnspec.conformance.claim import class_of
from attnspec.conformance.judge.dtypes import arguments_of
from attnspec.conformance.judge.judge import judge

pytestmark = pytest.mark.usefixtures("in_tests")


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_makes_a_round_trip_and_leaves_the_array_alone(name):
    backend = load(name)
    assert (backend.name, bool(backend.version)) == (name, True)
    floats = [np.array([[1.5, -0.0], [np.inf, np.nan]], dtype) for dtype in backend.dtypes]
    kinds = ("int32", "int64", "bool")
    others = [np.array(x).astype(dtype) for dtype in kinds for x in ([[0, 1], [5, 7]], 1)]
    for array in (*floats, *others):
        before = array.tobytes()
        back = backend.to_numpy(backend.to_library(array))
        assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, before)
        back[...] = 3
        assert array.tobytes() == before


def test_names_and_libraries():
    assert expand("numpy") == ("numpy-portable",)
    assert expand("numpy-reference") == ("numpy-portable",)  # on NumPy the portable source is the reference
    assert expand("jax-nn") == ("jax-nn",)
    assert expand("torch-flex-compiled") == ("torch-flex-compiled",)
    assert "torch-flex-compiled" not in expand("torch")
    assert expand("a.b:c") == ("a.b:c",)
    assert load("numpy").name == "numpy"
    with pytest.raises(BackendError, match="the name of one backend, got torch-portable, torch-sdpa"):
        load("torch")


def test_a_backend_without_its_library_or_signature(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "attnspec.backends.library.torch", raising=False)
    with pytest.raises(BackendError, match=r"torch-portable: expected torch to be installed, got none; pip"):
        load("torch-portable")
    with pytest.raises(BackendError, match="expected a function with a signature"):
        check_signature("m:f", type)
    with pytest.raises(BackendError, match="got one of compiled code without it; wrap it: def attention"):
        load("math:hypot")


@pytest.mark.parametrize(
    "change",
    [
        {"dtypes": ()},
        {"dtypes": "float32"},
        {"array_library": "numpy"},
        {"companions": {"f": len}},
        {"dialect": {"MASK-6": "x"}},
        {"versions": "2.13"},
    ],
)
def test_a_backend_whose_fields_say_nothing(monkeypatch, change):
    import broken

    monkeypatch.setattr(broken, "own", replace(load("numpy-portable"), **change), raising=False)
    (field,) = change
    with pytest.raises(BackendError, match=f"^backend broken:own: {field}: (MASK-6: )?expected .*, got "):
        load("broken:own")


def test_native_adapters_say_what_their_library_does_not_take():
    torch, jax = load("torch-sdpa"), load("jax-nn")
    one = np.ones((2, 3, 4), np.float32)
    arrays = [torch.to_library(one)] * 3
    with pytest.raises(Unsupported, match="attn_mask or is_causal, not both"):
        torch.attention(*arrays, mask=torch.to_library(np.ones((3, 3), bool)), is_causal=True)
    with pytest.raises(Unsupported, match="values and keys of the same depth"):
        jax.attention(jax.to_library(one), jax.to_library(one), jax.to_library(one[..., :2]))


@pytest.mark.parametrize("name", ["numpy-portable", "torch-portable", "strict-portable"])
def test_all_of_the_standard_is_there(name):
    backend = load(name)
    for operation, names in OPERATIONS.items():
        assert all(backend.has(operation, argument) for argument in (*names.arrays, *names.options))


def test_the_reference_keeps_the_lse_in_its_working_precision():
    backend = load("numpy-reference")
    for dtype, wide in {"float16": "float32", "bfloat16": "float32", "float64": "float64"}.items():
        one = np.ones((2, 2), dtype)
        output, lse, weights = backend.attention(one, one, one, return_lse=True, return_weights=True)
        assert [part.dtype.name for part in (output, lse, weights)] == [dtype, wide, dtype]
        merged, lse = backend.companions["merge_partials"](one[None], lse[None], return_lse=True)
        assert [part.dtype.name for part in (merged, lse)] == [dtype, wide]


def test_dask_is_lazy_and_computed_on_the_way_out():
    backend = load("dask-portable")
    query, value = (backend.to_library(np.full((2, 3), number)) for number in (0.0, 5.0))
    output = backend.attention(query, query, value)
    assert hasattr(output, "dask")
    assert backend.to_numpy(output).tolist() == [[5.0] * 3] * 2
    infinite = backend.to_library(np.array([[np.inf, 0.0]]))
    # Infinity times 0, which NumPy warns of: only now, and to nobody.
    assert np.isnan(backend.to_numpy(infinite @ infinite.T * 0)).all()


def uneven(heads, positions):
    """Features of which no two are alike."""
    return np.sin(np.arange(2 * heads * positions * 4)).reshape(2, heads, positions, 4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("torch-sdpa", {}),
        ("torch-sdpa", {"is_causal": True}),
        ("jax-nn", {}),
        ("jax-nn", {"window": (1, 0)}),
        ("jax-nn", {"window": (None, 2)}),
        ("jax-nn", {"window": (0, None)}),
        ("jax-nn", {"key_lengths": 3}),
        ("jax-nn", {"key_lengths": np.array([5, 2])}),
        ("jax-nn", {"query_lengths": np.array([1, 3]), "key_lengths": 4, "is_causal": True}),
    ],
)
def test_native_adapters_translate(name, options):
    """Grouped heads, windows and lengths, as the reference has them."""
    backend, reference = load(name), load("numpy-reference")
    arrays = [uneven(4, 3), uneven(2, 5), uneven(2, 5)[..., ::-1]]
    given = converted(backend, options)
    lse = {"return_lse": True} if backend.has("attention", "return_lse") else {}
    expected = reference.attention(*arrays, **options, return_lse=True)
    returned = backend.attention(*map(backend.to_library, arrays), **given, **lse)
    for got, wanted in zip(returned if lse else (returned,), expected, strict=False):
        finite = np.isfinite(wanted)  # what JAX gives for the lse of an empty row is SOFT-7's affair
        assert finite.any()
        assert np.allclose(backend.to_numpy(got)[finite], wanted[finite], atol=1e-6)


@pytest.mark.parametrize("lengths", [True, 2.0, np.array([1.0, 2.0]), np.array([1, 2, 3])])
def test_jax_is_left_to_refuse_lengths(lengths):
    backend = load("jax-nn")
    given = converted(backend, {"key_lengths": lengths})
    with pytest.raises(Exception, match="key_value_seq_lengths"):
        backend.attention(*map(backend.to_library, [uneven(1, 2)] * 3), **given)


def test_an_object_that_cannot_be_hashed_has_the_parameters_of_its_call():
    class Kernel(list):  # a list has no hash
        def __call__(self, query, key, value, *, scale=None):
            raise NotImplementedError

    backend = replace(load("numpy-portable"), attention=Kernel())
    assert backend.has("attention", "scale")
    assert not backend.has("attention", "mask")


def test_compiled_flex_attention_needs_a_compiler(monkeypatch):
    # Not by CXX: PyTorch reads it once, for all tests.
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(BackendError, match=r"expected a C\+\+ compiler, .+ or that of CXX, got none"):
        load("torch-flex-compiled")


@pytest.mark.skipif(not can_compile(), reason="needs a C++ compiler and the headers of Python")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's, of PyTorch
@pytest.mark.exhaustive
def test_compiled_flex_attention_is_compiled_and_right():
    backend = load("torch-flex-compiled")
    random = np.random.default_rng(5)
    query, key, value = (random.normal(size=(2, 3, n, 4)).astype(np.float32) for n in (5, 7, 7))
    arrays = [backend.to_library(array) for array in (query, key, value)]
    from torch._dynamo.utils import counters

    counters.clear()
    got = backend.to_numpy(backend.attention(*arrays, is_causal=True))
    assert counters["stats"]["unique_graphs"] == 1
    expected = load("numpy-portable").attention(query, key, value, is_causal=True)
    assert np.allclose(got, expected, rtol=1e-5, atol=1e-6)
    for arguments, said in (
        ([array[0] for array in arrays], "four axes"),
        ([array[:, :, :1] for array in arrays], "one query or one key"),
        ([array[:, :, :0] for array in arrays], "without keys"),
        ([*arrays[:2], arrays[2][:, :, :0]], "without values"),
    ):
        with pytest.raises(Unsupported, match=said):
            backend.attention(*arguments)


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


def test_a_backend_keeps_its_device_unless_another_is_named(monkeypatch):
    own = replace(load("strict-portable"), device="device1")
    monkeypatch.setattr(registry, "_load_ours", lambda _: own)
    assert load("strict-portable").device == "device1"
    assert load("strict-portable?device=device2").device == "device2"


def test_kernels_for_gpus_are_described_without_one(monkeypatch):
    """Their calls are translated like those of the CPU, on which the path of separate operations runs."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    names = [name for name, (_, place) in ADAPTERS.items() if place.startswith("torch.cuda:")]
    backends = {name: registry._load_ours(name) for name in names}
    for name, backend in backends.items():
        check_backend(name, backend)
        assert backend.device == "cuda"
    math = replace(backends["torch-cuda-math"], device="")
    case = find_case("masking-below-sentinels")
    assert judge(math, replace(case, arguments=arguments_of(case, "float32"))).status == "pass"


def test_a_row_that_a_mask_leaves_empty_attends_to_the_keys_of_other_arguments():
    mask = np.array([[True, False, True], [False, False, False]])
    call = {"query": np.ones((2, 4)), "key": np.ones((3, 4)), "value": np.ones((3, 4)), "mask": mask}
    opened = with_masked_rows_open(call | {"window": (9, 1)})
    assert opened["mask"].tolist() == [[True, False, True], [True, True, True]]
    assert "bias" not in opened
    assert opened["window"] == (9, 1)
    assert (with_masked_rows_open(call, equal=True)["bias"][1] == -2).all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("numpy-portable", "function"),
        ("program:./kernel?dtype=float32", "program"),
        ("untrusted:program:./kernel", "program"),
        ("offline:answers", "files"),
        ("my_kernels:flash", "function"),
        ("torch-sdpa", "adapted"),
    ],
)
def test_the_class_of_a_product(name, kind):
    assert class_of(name, load("numpy-portable")) == kind


def test_pytorch_gets_integers_that_it_compares():
    pytest.importorskip("torch")
    fit = load_library("torch").fit_integers
    given = {"lengths": np.array([3], np.uint32), "codes": np.array([3], np.uint8), "scale": 0.5}
    assert [getattr(x, "dtype", None) for x in fit(given).values()] == ["int64", "uint8", None]
    with pytest.raises(Unsupported, match="ids: PyTorch compares no integers past int64"):
        fit({"ids": np.array([2**63], np.uint64)})
