"""ONNX Runtime, on the CPU."""

from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray

from attnspec.backends.adapters.onnx.model import onnx_attention
from attnspec.backends.backend import Backend
from attnspec.backends.user.described import describe


def attention_backend() -> Backend:
    """Run the node Attention of opset 24."""
    return _backend("onnxruntime-attention", 24)


def older_backend() -> Backend:
    """Run the node Attention of opset 23, which has no lengths."""
    return _backend("onnxruntime-attention-23", 23)


def _backend(name: str, opset: int) -> Backend:
    return describe(
        onnx_attention(run, opset, whole_masks=True),
        name=name,
        library="onnxruntime",
        dtypes=["float16", "float32"],
        axes=4,
        bias_dtype="query",
        dialect={"NUM-5": {"float16": "storage"}},
    )


def run(model: onnx.ModelProto, inputs: dict[str, NDArray[Any]]) -> list[Any]:
    """Run a model in a session of its own."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found: list[Any] = session.run(None, inputs)
    return found
