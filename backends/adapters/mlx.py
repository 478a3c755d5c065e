"""MLX: ``mlx.core.fast.scaled_dot_product_attention`` on the CPU."""

from typing import Any

import ml_dtypes
import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_NO_DEPTH,
    OF_OTHER_TYPES,
    has_several_dtypes,
    with_dtype,
)
from attnspec.backends.adapters.deviations import bias_overflow
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.function import describe


def fast_backend() -> Backend:
    """Run the function on the CPU, where it is composed of other operations."""
    return describe(
        attention,
        name="mlx-fast",
        library="mlx",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        axes=4,
        given=["scale"],
        to_library=to_mlx,
        to_numpy=to_numpy,
        bias_dtype="query",
        dialect={
            "MASK-3": "bottom-right",
            "MASK-6": {"mask": "uniform", "bias": "nan"},
            "NUM-2": "float32",
            "NUM-5": {"float16": "storage", "bfloat16": "storage"},
        },
        deviations=_DEVIATIONS,
        versions=">=0.32,<0.33",
    )


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: Any,
    mask: Any = None,
    bias: Any = None,
    is_causal: bool = False,
    sinks: Any = None,
) -> Any:
    """Pass mask, bias and causality as the one argument ``mask``."""
    masks = [given for given in (mask, bias, "causal" if is_causal else None) if given is not None]
    if len(masks) > 1:
        raise Unsupported("scaled_dot_product_attention takes one mask: an array, or 'causal'")
    if mask is not None and mask.dtype != mx.bool_:
        raise Unsupported(f"mask: expected booleans, got {mask.dtype}, which the function adds")
    if key.ndim > 2 and key.shape[-3] == 0:
        raise Unsupported("zero key heads end the process; see the finding mlx/no_key_heads")
    return mx.fast.scaled_dot_product_attention(
        query, key, value, scale=scale, mask=masks[0] if masks else None, sinks=sinks, stream=mx.cpu
    )


def to_mlx(array: NDArray[Any]) -> mx.array:
    """Convert an array in its dtype; MLX makes float32 of float64, and refuses negative strides."""
    return mx.array(np.array(array, order="C"), mx.float64 if array.dtype == np.float64 else None)


def to_numpy(array: mx.array) -> NDArray[Any]:
    """Convert an array; NumPy does not take the bfloat16 of MLX."""
    if array.dtype == mx.bfloat16:
        return np.array(array.astype(mx.float32)).astype(ml_dtypes.bfloat16)
    return np.array(array)


_DEVIATIONS = (
    Deviation(("ERR-2",), "integers and booleans are converted", "mlx/integers", OF_OTHER_TYPES),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "mlx/depth_zero", OF_NO_DEPTH),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted, and gives NaN", "mlx/scale_not_finite",
        OF_NAN),
    bias_overflow("mlx/bias_overflow", "float16"),
    Deviation(("NUM-1",), "the output has the widest dtype of query, key and value", "mlx/mixed_dtypes",
        with_dtype(), when=has_several_dtypes),
)  # fmt: skip
