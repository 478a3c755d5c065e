"""JAX compiles few modules, keeps few in memory, and is called without 64-bit numbers if a call has none."""

import os
import sys
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
from tests_support import command

from attnspec.backends import load
from attnspec.backends.library.library import has_64_bits
from attnspec.conformance import find
from attnspec.conformance.judge.judge import judge
from attnspec.reference.call import Call, Steps, part

jax = pytest.importorskip("jax")
library = pytest.importorskip("attnspec.backends.library.jax")


@pytest.fixture
def compiled():
    """What has been compiled, a word for each, as JAX tells it."""
    seen = []

    def listen(event, _, **__):
        if event.endswith("backend_compile_duration"):
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield seen
    jax.monitoring.unregister_event_duration_listener(listen)


def test_what_is_compiled_outlives_its_source(compiled):
    from jax._src.interpreters.pxla import _cached_lowering_to_hlo

    array = load("jax-portable").to_library(np.ones((43, 1)))
    _ = array * array
    assert len(compiled) == 1
    assert _cached_lowering_to_hlo.cache_info().currsize
    assert library.release_sources() == 2
    assert not _cached_lowering_to_hlo.cache_info().currsize
    _ = array * array
    assert len(compiled) == 1


def test_programs_are_written_in_one_context(monkeypatch):
    from jax._src.interpreters import mlir

    made = []
    monkeypatch.setattr(mlir, "make_ir_context", lambda: made.append(1))
    for _ in range(2):
        assert library.write_in_one_context()
        mlir.make_ir_context()
    assert len(made) == 1
    monkeypatch.delattr(mlir, "make_ir_context")
    assert not library.write_in_one_context()
    load("jax-portable")  # a release without it is no obstacle


def test_operations_of_a_loaded_backend_share_a_context(compiled):
    from jax._src.interpreters import mlir

    load("jax-portable")
    assert mlir.make_ir_context() is mlir.make_ir_context()
    backend = load("jax-portable")
    array = backend.to_library(np.ones((3, 1, 41), np.float16))
    assert compiled == []
    _ = array + array
    assert compiled  # the instrument works


@pytest.mark.parametrize(("version", "given", "plugins", "hasty"), [
    ("0.10.2", {}, (), True),
    ("0.10.2", {"XLA_FLAGS": ""}, (), False),
    ("0.11.0", {}, (), False),
    ("0.10.2", {}, ("cuda",), False),
])  # fmt: skip
def test_haste_leaves_what_is_set_and_what_is_unknown(monkeypatch, version, given, plugins, hasty):
    monkeypatch.setattr(os, "environ", dict(given))
    monkeypatch.setattr("attnspec.backends.library.jax.version", lambda _: version)
    monkeypatch.setattr("attnspec.backends.library.jax.entry_points", lambda **_: plugins)
    library.compile_in_haste()
    assert ("optimization_level=0" in os.environ.get("XLA_FLAGS", "")) == hasty


KERNEL = """
import jax
import jax.numpy as jnp


def eager(query, key, value):
    weights = jax.nn.softmax(jnp.einsum("blhd,bshd->bhls", query, key) / query.shape[-1] ** 0.5)
    return jnp.einsum("bhls,bshd->blhd", weights, value)


compiled = jax.jit(eager)
"""


@pytest.mark.parametrize("name", ["eager", "compiled"])
def test_a_function_is_compiled_in_haste_unless_it_is_jitted(monkeypatch, here, compiled, name):
    (here / "hasty_kernel.py").write_text(KERNEL)
    settings = f'[backend]\nfunction = "./hasty_kernel.py:{name}"\narray = "jax"\nlayout = "BSHD"\naxes = 4\n'
    (here / "attnspec.toml").write_text(settings)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    backend = load(f"./hasty_kernel.py:{name}")
    assert ("XLA_FLAGS" in os.environ) == (name == "eager")
    shape = (3, 61, len(name))  # of its own, as JAX keeps what it has compiled
    query, key = (backend.to_library(np.ones(shape, np.float32)) for _ in range(2))
    assert backend.attention(query, key, key).shape == shape
    if name == "compiled":  # nothing is compiled for the layout, or for the axis that is added
        assert len(compiled) == 1


def test_a_part_is_compiled_by_jax_and_run_as_it_stands_elsewhere(compiled):
    ran = []

    @part
    def turned(call, array, factor, axis):
        ran.append(call.xp)
        return call.xp.flip(call.xp.exp(array) * factor, axis=axis)

    one, steps = np.zeros((1, 47)), Steps(compiler=jax.jit)
    numpy = Call(Steps(), load("numpy-portable").xp, None)
    other = load("jax-portable")
    for _ in range(2):
        assert (turned(numpy, one, 2.0, 1) == 2).all()
    assert len(ran) == 2
    for factor in (2.0, 3.0):  # an array and a fraction may be others, a whole number is part of the program
        assert (
            np.asarray(turned(Call(steps, other.xp, None), other.to_library(one), factor, 1)) == factor
        ).all()
    assert len(ran) == 3
    assert len(compiled) == 1
    turned(Call(steps, other.xp, None), other.to_library(one), 2.0, 0)
    assert len(ran) == 4


def test_attention_is_one_program(compiled):
    backend = load("jax-portable")
    options = {"is_causal": True, "softcap": 3.0, "window": (4, 0), "return_lse": True}
    first, then = (backend.to_library(np.ones((2, positions, 4))) for positions in (37, 39))
    backend.attention(first, first, first, query_offset=1, **options)
    compiled.clear()  # what a number is copied by, once and for all
    for scale, offset in ((1.0, 0), (0.25, 2)):
        backend.attention(then, then, then, scale=scale, query_offset=offset, **options)
    assert len(compiled) == 1


#: A kernel that is correct where arrays without a dtype and its lengths have the width of its query.
NARROW = """\
import jax.numpy as jnp

def kernel(q, k, v, lengths=None):  # (B, S, H, D)
    wide = q.dtype == jnp.float64
    assert jnp.zeros(()).dtype == (jnp.float64 if wide else jnp.float32)
    lengths = jnp.full(q.shape[0], k.shape[1]) if lengths is None else lengths
    assert lengths.dtype == (jnp.int64 if wide else jnp.int32)
    scores = jnp.einsum("blhd,bshd->bhls", q, k) / q.shape[-1] ** 0.5
    seen = jnp.arange(k.shape[1]) < lengths[:, None, None, None]
    weights = jnp.where(seen, jnp.exp(scores - jnp.max(jnp.where(seen, scores, -1e30), -1, keepdims=True)), 0)
    return jnp.einsum("bhls,bshd->blhd", weights / jnp.maximum(weights.sum(-1, keepdims=True), 1e-30), v)
"""
SERVED = ("--program", f'"{sys.executable}" -m attnspec.backends.program.serve .')


@pytest.mark.parametrize(
    "options", [(".",), (".", "--untrusted"), SERVED], ids=["plain", "untrusted", "served"]
)
def test_a_call_that_needs_no_64_bit_numbers_is_made_without_them(options, here):
    (here / "narrow.py").write_text(NARROW)
    command("init", "narrow.py:kernel", status=0)
    for dtype in ("float32", "float64"):
        for case in ("notation-one-head", "masking-key-lengths"):
            run = command("check", *options, "--case", f"{case}-{dtype}", status=0)
            assert f"budget used: {dtype}" in run.output


def test_what_needs_64_bits_is_seen():
    wide = [(2, None, 2**31), np.zeros(1), np.array([-5, 2**30]), np.array([-(2**30) - 1])]
    assert all(has_64_bits([x]) for x in wide)
    assert not has_64_bits([np.zeros(1, np.float32), True, 2**31 - 1, "both", None, (-(2**31), 0.5)])
    assert not has_64_bits([np.array([-(2**30), 2**30 - 1]), np.zeros(0, np.int64), np.ones(1, np.uint64)])


@pytest.mark.parametrize("side", ["left", "both"])
def test_a_bound_of_32_bits_overflows_in_the_declared_way_alone(side):
    backend = load("jax-nn")
    case = find(f"masking-window-wider-than-any-sequence-{side}-1-float32")
    assert judge(backend, case).declared == ("MASK-8 jax/window_overflow",)

    @wraps(backend.attention)
    def twice(query, key, value, **options):
        return 2 * backend.attention(query, key, value, **options)

    assert judge(replace(backend, attention=twice), case).status == "fail"
