"""Keras: ``keras.ops.dot_product_attention`` on NumPy, PyTorch, JAX and TensorFlow, one in a process."""

import os
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_OTHER_TYPES,
    Arguments,
    as_booleans,
    has_bias_beyond_differences,
    has_empty_row_of_mask,
    has_no_keys,
    has_overflowing_score,
    has_several_dtypes,
    rows_not_finite,
    with_dtype,
    with_number,
    with_repeated_heads,
)
from attnspec.backends.adapters.deviations import (
    bias_overflow,
    empty_row_gradient,
    other_heads_of_value,
    repeated_batch,
)
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.outcome import OtherCall, Raises, Special, Variant
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
    from attnspec.backends.adapters.torch.sdpa import OF_ALL, OF_FLASH, OF_SCALE

    dialect = {"MASK-6": {"mask": "uniform"}, "NUM-2": "float32"}
    deviations = (*_OF_BOTH, *_OF_TORCH, OF_SCALE, *OF_ALL, *OF_FLASH)
    return _backend("torch", one_mask=True, mask_axes=4, dialect=dialect, deviations=deviations)


def jax_backend() -> Backend:
    """Run it on JAX, where it calls ``jax.nn.dot_product_attention``."""
    load_library("jax").prepare_eager()
    dialect = {"MASK-2": "added", "MASK-6": "uniform", "NUM-2": "float32", "GRAD-10": "uniform"}
    deviations = (*_OF_BOTH, *_OF_JAX)
    return _backend("jax", value_depth="key", mask_axes=4, dialect=dialect, deviations=deviations)


def tensorflow_backend() -> Backend:
    """Run it on TensorFlow. Its tensors are made of NumPy arrays and are converted back."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return _backend(
        "tensorflow",
        array="numpy",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        to_library=_to_tensor,
        to_numpy=lambda tensor: tensor.numpy(),
        dialect={"MASK-2": "added", "MASK-6": "uniform", "NUM-2": "float32", "NUM-5": "storage"},
        deviations=_OF_TENSORFLOW,
    )


def _to_tensor(array: Any) -> Any:
    return import_module("keras").ops.convert_to_tensor(array)


def _backend(array: str, /, *, one_mask: bool = False, **said: Any) -> Backend:
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
    return describe(attention, name=f"keras-{array}", **{**fixed, **said})


def _has_float64(arguments: Arguments) -> bool:
    return any(arguments[name].dtype == np.float64 for name in ("query", "key", "value"))


def _elements_reached(arguments: Arguments) -> dict[str, NDArray[np.bool_]]:
    """Find the elements that a NaN or an infinity reaches if disallowed keys are not left out."""
    columns = ~np.isfinite(arguments["value"]).all(axis=-2)
    return {"output": rows_not_finite(arguments)[..., None] | columns[..., None, :]}


def _with_rounded_bias(arguments: Arguments) -> Arguments:
    with np.errstate(over="ignore"):
        return {**arguments, "bias": arguments["bias"].astype(arguments["query"].dtype)}


def _mixed_dtypes(widest: str) -> Deviation:
    return Deviation(
        ("NUM-1",),
        "the output has the widest dtype of queries, keys and values",
        "keras/mixed_dtypes",
        with_dtype(widest=widest),
        when=has_several_dtypes,
    )


def one_key_head(error: str, message: str) -> Deviation:
    """Declare that one key head for several query heads fails on TensorFlow."""
    return Deviation(
        ("HEAD-1",),
        "one key head for several query heads fails",
        "keras/tensorflow_one_key_head",
        Raises(error, message),
        when=lambda arguments: arguments["query"].shape[-3] > arguments["key"].shape[-3] == 1,
    )


_OF_ALL = (
    Deviation(("ERR-14",), "a bias is rounded to the dtype of the queries", "keras/bias_rounded",
        OtherCall(_with_rounded_bias), dtypes=SHORT, when=lambda arguments: "bias" in arguments),
    Deviation(("ERR-2",), "integers, booleans and complex numbers are accepted", "keras/not_checked",
        OF_OTHER_TYPES),
)  # fmt: skip
_OF_BOTH = (
    Deviation(("NUM-1", "SOFT-3"), "float64 is computed in float32", "keras/float64",
        with_dtype(widest="float32"), when=_has_float64),
    Deviation(
        ("NUM-1",),
        "NaN and infinity of disallowed keys reach results in float32, too",
        "keras/masked_nan_value",
        (with_dtype(widest="float32"), Special(_elements_reached)),
        when=lambda arguments: _has_float64(arguments) and bool(_elements_reached(arguments)["output"].any()),
    ),
    _mixed_dtypes("float32"),
    *_OF_ALL,
    Deviation(("ERR-4",), "a mask of numbers is accepted", "keras/not_checked", as_booleans("mask")),
    repeated_batch("keras/batch_repeated"),
)  # fmt: skip
DEPTH = Deviation(("ERR-5",), "a depth of 0 is accepted", "keras/not_checked", OF_NAN)
INFINITE_SCALE = Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "keras/not_checked", OF_NAN)
LOWEST = Deviation(
    ("MASK-5", "NUM-5"),
    "disallowed scores are replaced by a number, and a bias of allowed keys may be lower",
    "keras/masked_lowest",
    with_number(added=-2.38e38),
    when=lambda arguments: "mask" in arguments and has_bias_beyond_differences(arguments, 2e38),
)
_OF_NUMPY = (
    LOWEST,
    bias_overflow("keras/bias_overflow", "float16"),
    Deviation(("MASK-6", "SHAPE-7"), "a call without keys fails", "keras/numpy_no_keys",
        Raises("ValueError", "zero-size array"), when=has_no_keys),
    DEPTH,
    INFINITE_SCALE,
    Deviation(("HEAD-2",), "values may have one head", "keras/not_checked", OtherCall(with_repeated_heads)),
)  # fmt: skip
_OF_TENSORFLOW = (
    *_OF_ALL,
    _mixed_dtypes("float64"),
    LOWEST,
    INFINITE_SCALE,
    bias_overflow("keras/bias_overflow", "float16"),
    one_key_head("InvalidArgumentError", "Expected dimension"),
    DEPTH,
)
#: A mask adds -45850 in float16.
_HALF = with_number(of_float16=-45850.0)


def _with_lost_sum(arguments: Arguments) -> Arguments:
    """Multiply what flows into rows without keys by the number of keys, by which the weights are not divided.

    The logarithm of that number is lost beside the score. The fused kernel takes values of the depth of keys.
    """
    depths = {arguments[name].shape[-1] for name in ("key", "value")}
    if arguments["query"].dtype == np.float16 or len(depths) > 1:
        return arguments
    bias, keys = arguments["bias"], arguments["key"].shape[-2]
    rows = (bias != 0).all(axis=-1, keepdims=True)
    return {**arguments, "d_output": arguments["d_output"] * np.where(rows, keys, 1)}


_OF_TORCH = (
    Deviation(("MASK-4", "GRAD-4", "GRAD-11"),
        "PyTorch takes a bias or is_causal, not both: one path raises, the other gives wrong results",
        "torch/mask_and_causal", (Raises("RuntimeError", ""), Variant("MASK-6", "")),
        when=lambda arguments: "bias" in arguments and bool(arguments.get("is_causal"))),
    Deviation(("MASK-6", "MASK-1", "MASK-4", "NUM-5"),
        "in float16 a mask adds -45850, so that a query with nothing to attend to has weights of its scores",
        "keras/torch_empty_row_half", _HALF, dtypes=("float16",), when=has_empty_row_of_mask),
    Deviation(("MASK-12",), "in float16 a mask adds -45850, and the score of a disallowed key may be larger",
        "keras/torch_half_leaks", _HALF, dtypes=("float16",),
        when=lambda arguments: "mask" in arguments and has_overflowing_score(arguments, "float16")),
    other_heads_of_value("keras/not_checked"),
    Deviation(("GRAD-10",), "a mask is added, so that a query with nothing to attend to has gradients",
        "keras/torch_empty_row_gradient", (_HALF, OtherCall(_with_lost_sum)), when=has_empty_row_of_mask),
)  # fmt: skip
_OF_JAX = (
    LOWEST,
    bias_overflow("jax/bias_overflow"),
    empty_row_gradient("jax/empty_row_gradient_bias"),
    other_heads_of_value(
        "keras/jax_fallback", "a call that JAX refuses is computed by Keras: values may have one head"
    ),
    Deviation(("ERR-5",), "a depth of 0 throughout is accepted", "jax/depth_zero", OF_NAN),
    INFINITE_SCALE,
)
