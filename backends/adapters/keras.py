"""Keras: ``keras.ops.dot_product_attention`` on NumPy, PyTorch and JAX. A process has one of them."""

import os
from importlib import import_module
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.errors import BackendError
from attnspec.backends.library import load_library
from attnspec.backends.user.described import describe

_VERSIONS = ">=3.15,<3.16"


def numpy_backend() -> Backend:
    """Run it on NumPy, which has no shared heads in spite of the documentation."""
    return _backend(
        "numpy",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        heads="equal",
        dialect={
            "MASK-2": "added",
            "MASK-6": "uniform",
            "NUM-2": "float32",
            "NUM-5": {"float16": "storage"},
        },
    )


def torch_backend() -> Backend:
    """Run it on PyTorch, where it calls ``scaled_dot_product_attention``."""
    return _backend("torch", dialect={"MASK-6": {"mask": "uniform"}})


def jax_backend() -> Backend:
    """Run it on JAX, where it calls ``jax.nn.dot_product_attention``."""
    load_library("jax").prepare_eager()
    dialect = {"MASK-2": "added", "MASK-6": "uniform", "NUM-2": "float32", "GRAD-10": "uniform"}
    return _backend("jax", value_depth="key", mask_axes=4, dialect=dialect)


def _backend(array: str, **said: Any) -> Backend:
    os.environ.setdefault("KERAS_BACKEND", array)
    keras = import_module("keras")
    if (got := keras.backend.backend()) != array:
        raise BackendError(f"backend keras-{array}: expected Keras to run on {array}, got {got}")

    def attention(
        query: Any,
        key: Any,
        value: Any,
        *,
        scale: float | None = None,
        bias: Any = None,
        mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        options = {"bias": bias, "mask": mask, "scale": scale, "is_causal": is_causal}
        return keras.ops.dot_product_attention(query, key, value, **options)

    fixed = {"library": "keras", "array": array, "layout": "BSHD", "axes": 4, "versions": _VERSIONS}
    return describe(attention, name=f"keras-{array}", **fixed, **said)
