"""Keras: ``keras.ops.dot_product_attention`` on NumPy, PyTorch and JAX. A process has one of them."""

import os
from importlib import import_module
from typing import Any

from attnspec.backends.adapters.conditions import (
    bias_overflow,
    empty_row_gradient,
    has_bias_beyond_differences,
    has_empty_row_of_mask,
    has_no_keys,
    has_other_heads_of_value,
    has_overflowing_score,
    has_several_dtypes,
    repeated_batch,
)
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.user.function import describe
from attnspec.dtypes import SHORT

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
            "NUM-5": {"float16": "storage"},
        },
        deviations=(*_OF_BOTH, *_OF_NUMPY),
    )


def torch_backend() -> Backend:
    """Run it on PyTorch, where it calls ``scaled_dot_product_attention``."""
    from attnspec.backends.adapters.torch.sdpa import OF_ALL, OF_FLASH

    dialect = {"MASK-6": {"mask": "uniform"}, "NUM-2": "float32"}
    deviations = (*_OF_BOTH, *_OF_TORCH, *OF_ALL, *OF_FLASH)
    return _backend("torch", one_mask=True, mask_axes=4, dialect=dialect, deviations=deviations)


def jax_backend() -> Backend:
    """Run it on JAX, where it calls ``jax.nn.dot_product_attention``."""
    load_library("jax").prepare_eager()
    dialect = {"MASK-2": "added", "MASK-6": "uniform", "NUM-2": "float32", "GRAD-10": "uniform"}
    deviations = (*_OF_BOTH, *_OF_JAX)
    return _backend("jax", value_depth="key", mask_axes=4, dialect=dialect, deviations=deviations)


def _backend(array: str, *, one_mask: bool = False, **said: Any) -> Backend:
    """Run Keras on an array library; `one_mask` if it takes no bias beside a mask there."""
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
        if one_mask and bias is not None and mask is not None:
            raise Unsupported(f"Keras on {array} takes a bias or a mask, not both")
        options = {"bias": bias, "mask": mask, "scale": scale, "is_causal": is_causal}
        return keras.ops.dot_product_attention(query, key, value, **options)

    fixed = {"library": "keras", "array": array, "layout": "BSHD", "axes": 4, "versions": _VERSIONS}
    return describe(attention, name=f"keras-{array}", **fixed, **said)


_OF_BOTH = (
    Deviation(("NUM-1", "SOFT-3"), "float64 is computed in float32", "keras/float64", dtypes=("float64",)),
    Deviation(
        ("NUM-1",),
        "the output has the widest dtype of queries, keys and values",
        "keras/mixed_dtypes",
        dtypes=SHORT,
        when=has_several_dtypes,
    ),
    Deviation(
        ("ERR-14",),
        "a bias is rounded to the dtype of the queries",
        "keras/bias_rounded",
        dtypes=SHORT,
        when=lambda arguments: "bias" in arguments,
    ),
    Deviation(("ERR-2",), "integers, booleans and complex numbers are accepted", "keras/not_checked"),
    Deviation(("ERR-4",), "a mask of numbers is accepted", "keras/not_checked"),
    repeated_batch("keras/batch_repeated"),
)
_LOWEST = Deviation(
    ("MASK-5", "NUM-5"),
    "disallowed scores are replaced by a number, and a bias of allowed keys may be lower",
    "keras/masked_lowest",
    when=lambda arguments: "mask" in arguments and has_bias_beyond_differences(arguments, 2e38),
)
_OF_NUMPY = (
    _LOWEST,
    bias_overflow("keras/bias_overflow", "float16"),
    Deviation(
        ("MASK-6", "SHAPE-7"),
        "a call without keys fails",
        "keras/numpy_no_keys",
        when=has_no_keys,
    ),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "keras/not_checked"),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "keras/not_checked"),
    Deviation(("HEAD-2",), "values may have one head", "keras/not_checked"),
)
_OF_TORCH = (
    Deviation(
        ("MASK-4", "GRAD-4", "GRAD-11"),
        "PyTorch takes a bias or is_causal, not both: one path raises, the other gives wrong results",
        "torch/mask_and_causal",
        when=lambda arguments: "bias" in arguments and bool(arguments.get("is_causal")),
    ),
    Deviation(
        ("MASK-6", "MASK-1", "MASK-4", "NUM-5"),
        "in float16 a mask adds -45850, so that a query with nothing to attend to has weights of its scores",
        "keras/torch_empty_row_half",
        dtypes=("float16",),
        when=has_empty_row_of_mask,
    ),
    Deviation(
        ("MASK-12",),
        "in float16 a mask adds -45850, and the score of a disallowed key may be larger",
        "keras/torch_half_leaks",
        dtypes=("float16",),
        when=lambda arguments: "mask" in arguments and has_overflowing_score(arguments, "float16"),
    ),
    Deviation(
        ("HEAD-2",),
        "values with another number of heads than the keys are accepted",
        "keras/not_checked",
        when=has_other_heads_of_value,
    ),
    Deviation(
        ("GRAD-10",),
        "a mask is added, so that a query with nothing to attend to has gradients",
        "keras/torch_empty_row_gradient",
        when=lambda arguments: "mask" in arguments,
    ),
)
_OF_JAX = (
    _LOWEST,
    bias_overflow("jax/bias_overflow"),
    empty_row_gradient("jax/empty_row_gradient_bias"),
    Deviation(
        ("HEAD-2",),
        "a call that JAX refuses is computed by Keras: values may have one head",
        "keras/jax_fallback",
        when=has_other_heads_of_value,
    ),
    Deviation(("ERR-5",), "a depth of 0 throughout is accepted", "jax/depth_zero"),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "keras/not_checked"),
)
