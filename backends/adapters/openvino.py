"""OpenVINO: the operation ``ScaledDotProductAttention`` of opset 13, in float32 on the CPU."""

from functools import lru_cache
from typing import Any

import numpy as np
import openvino
from openvino import opset13

from attnspec.backends.backend import Backend
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.described import describe

_PLUGIN = openvino.Core()
#: The default precision is bfloat16 on some processors, also for models of float32.
_SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}


def sdpa_backend() -> Backend:
    """Compile a model of one operation for each set of dtypes and numbers of axes."""
    return describe(
        attention,
        name="openvino-sdpa",
        library="openvino",
        dtypes=["float16", "float32", "float64"],
        heads="equal",
        bias_dtype="query",
        dialect={"MASK-6": "nan", "NUM-2": "float32", "SHAPE-6": "broadcast"},
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
    model = _compiled(tuple((array.dtype.name, array.ndim) for array in inputs), causal)
    return model.create_infer_request().infer(inputs)[0]


@lru_cache(maxsize=64)
def _compiled(inputs: tuple[tuple[str, int], ...], causal: bool) -> Any:
    """Compile a model for inputs of given dtypes and numbers of axes, of any sizes."""
    parameters = [
        opset13.parameter(openvino.PartialShape([-1] * axes), openvino.Type(np.dtype(dtype)))
        for dtype, axes in inputs
    ]
    node = opset13.scaled_dot_product_attention(*parameters, causal=causal)
    return _PLUGIN.compile_model(openvino.Model([node], parameters), "CPU", _SETTINGS)
