"""OpenVINO: the operation ``ScaledDotProductAttention`` of opset 13, in float32 on the CPU."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import openvino
from openvino import opset13

from attnspec.backends.adapters.conditions import (
    OF_NAN,
    Arguments,
    Rows,
    has_nan_query,
    has_no_keys,
    is_masked,
    rows_of_nan,
    scores_of,
    with_more_axes,
    with_number,
)
from attnspec.backends.adapters.deviations import mask_overflow, other_heads_of_value
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import OtherCall, Raises, Special, Unwritten, every_element, row_elements
from attnspec.backends.user.function import describe

_PLUGIN = openvino.Core()
#: The default precision is bfloat16 on some processors, also for models of float32.
_SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}


def sdpa_backend() -> Backend:
    """Compile a model of one operation for each set of dtypes and shapes.

    In a model of any sizes, the operation does not check them. See the finding ``openvino/misfit``.
    """
    return describe(
        attention,
        name="openvino-sdpa",
        library="openvino",
        dtypes=["float16", "float32", "float64"],
        heads="equal",
        bias_dtype="query",
        dialect={
            "MASK-6": {"float16": "nan", "float32": "nan", "float64": "uniform"},
            "NUM-2": "float32",
            "NUM-5": {"float16": "storage"},
            "SHAPE-6": "broadcast",
        },
        deviations=_DEVIATIONS,
        versions=">=2026.4,<2026.5",
        names={"bias": "attention_mask", "mask": "attention_mask", "is_causal": "causal"},
    )


def attention(
    query: Any, key: Any, value: Any, *, attention_mask: Any = None, scale: Any = None, causal: bool = False
) -> Any:
    """Run the operation on NumPy arrays."""
    if query.ndim < 3:
        raise Unsupported("the operation takes inputs of three axes or more")
    if causal and attention_mask is not None:
        raise Unsupported("the operation is documented to ignore attention_mask with causal")
    if scale is not None and attention_mask is None:  # inputs are given by position
        attention_mask = np.zeros((), query.dtype)
    elif attention_mask is not None and attention_mask.ndim < 2:
        attention_mask = attention_mask.reshape(1, -1)
    inputs = [query, key, value]
    inputs += [] if attention_mask is None else [attention_mask]
    inputs += [] if scale is None else [np.asarray(scale, query.dtype)]
    model = _compile(tuple((array.dtype.name, array.shape) for array in inputs), causal)
    return model.create_infer_request().infer(inputs)[0]


@lru_cache(maxsize=64)
def _compile(inputs: tuple[tuple[str, tuple[int, ...]], ...], causal: Any) -> Any:
    """Compile a model for inputs of given dtypes and shapes."""
    parameters = [opset13.parameter(list(shape), openvino.Type(np.dtype(dtype))) for dtype, shape in inputs]
    node = opset13.scaled_dot_product_attention(*parameters, causal=causal)
    return _PLUGIN.compile_model(openvino.Model([node], parameters), "CPU", _SETTINGS)


def _has_infinity(arguments: Mapping[str, Any]) -> bool:
    """Whether a number, or the difference of the bias to it, is infinite in float32."""
    arrays = (array for array in arguments.values() if getattr(array, "dtype", None) == np.float64)
    return any(bool((np.abs(array) > np.finfo(np.float32).max).any()) for array in arrays)


def _with_clamped(arguments: Arguments) -> Arguments:
    """Replace numbers beyond float32 by its largest ones."""
    most = float(np.finfo(np.float32).max)
    return {
        name: np.clip(x, -most, most) if getattr(x, "dtype", None) == np.float64 else x
        for name, x in arguments.items()
    }


def _rows_beyond(arguments: Arguments) -> Rows:
    """Find the rows with a score that may be beyond float32."""
    sizes = scores_of({name: np.abs(arguments[name]) for name in ("query", "key")})
    return np.asarray((sizes >= np.finfo(np.float32).max).any(axis=-1))


_DEVIATIONS = (
    Deviation(("SHAPE-7", "MASK-6", "SHAPE-3"), "without keys, the output is memory that was never written",
        "openvino/no_keys", Unwritten(every_element), when=has_no_keys),
    Deviation(("SHAPE-7",), "a model of float64 with an axis of size 0 is not compiled",
        "openvino/float64_empty", Raises("RuntimeError", ""), dtypes=("float64",)),
    other_heads_of_value("openvino/heads_of_value",
        "one head of values is repeated for several heads of keys"),
    Deviation(("MASK-6",), "a query of NaN without an allowed key gives NaN", "openvino/float64_nan_query",
        Special(row_elements(rows_of_nan)), dtypes=("float64",), when=has_nan_query),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "openvino/depth_zero", Unwritten(every_element)),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted, and gives NaN",
        "openvino/scale_not_finite", OF_NAN),
    Deviation(("ERR-15",), "a mask with more batch entries or heads repeats the output",
        "openvino/larger_mask", OtherCall(with_more_axes)),
    mask_overflow("openvino/masked_overflow", is_masked),
    Deviation(
        ("NUM-13", "NUM-11", "MASK-5"),
        "float64 is clamped to the range of float32, in which a score may be infinite: its row is NaN",
        "openvino/float64_infinity",
        (
            OtherCall(_with_clamped),
            Special(row_elements(_rows_beyond)),
            with_number(added=float(np.finfo(np.float32).min)),
        ),
        dtypes=("float64",),
        when=_has_infinity,
    ),
)  # fmt: skip
