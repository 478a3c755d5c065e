"""LiteRT: ``keras.ops.dot_product_attention`` on TensorFlow, converted to a model of LiteRT and run by it."""

import os
from functools import lru_cache
from typing import Any

from ai_edge_litert.interpreter import Interpreter

from attnspec.backends.adapters.conditions import OF_OTHER_TYPES, has_empty_axis
from attnspec.backends.adapters.deviations import bias_overflow
from attnspec.backends.adapters.keras import DEPTH, INFINITE_SCALE, LOWEST, one_key_head
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.outcome import Raises
from attnspec.backends.user.function import describe

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import tensorflow as tf

#: How many converted calls are kept.
_MOST_KNOWN = 64


def keras_backend() -> Backend:
    """Run a model for each shape. The interpreter has kernels of float32 only."""
    return describe(
        attention,
        name="litert-keras",
        library="ai-edge-litert",
        dtypes=["float32"],
        layout="BSHD",
        axes=4,
        concurrent=False,
        dialect={"MASK-2": "added", "MASK-6": "uniform"},
        deviations=_DEVIATIONS,
        versions=">=2.3,<2.4",
    )


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
    """Give the arrays to the model by name."""
    arrays = {"query": query, "key": key, "value": value, "bias": bias, "mask": mask}
    given = {name: array for name, array in arrays.items() if array is not None}
    kinds = tuple((name, array.shape, array.dtype.name) for name, array in given.items())
    run = _interpreter(kinds, None if scale is None else float(scale), is_causal=bool(is_causal))
    return run(**given)["output"]


@lru_cache(_MOST_KNOWN)
def _interpreter(kinds: tuple[Any, ...], scale: float | None, *, is_causal: bool) -> Any:
    """Convert a call. The kinds are the name, the shape and the dtype of each array."""

    def call(**arrays: Any) -> Any:
        output = keras.ops.dot_product_attention(**arrays, scale=scale, is_causal=is_causal)
        return {"output": output}

    module = tf.Module()
    module.call = tf.function(call)
    specs = {name: tf.TensorSpec(shape, dtype, name) for name, shape, dtype in kinds}
    function = module.call.get_concrete_function(**specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    interpreter = Interpreter(model_content=converter.convert(), num_threads=1)
    return interpreter.get_signature_runner()


_DEVIATIONS = (
    LOWEST,
    INFINITE_SCALE,
    DEPTH,
    bias_overflow("keras/bias_overflow"),
    one_key_head("ValueError", "Dimensions must be equal"),
    Deviation(("SHAPE-7",), "an axis of size 0 is refused", "litert/empty_axes",
        Raises("ValueError", "Invalid tensor size"), when=has_empty_axis),
    Deviation(("ERR-2",), "integers, booleans and complex numbers are accepted", "keras/not_checked",
        OF_OTHER_TYPES),
)  # fmt: skip
