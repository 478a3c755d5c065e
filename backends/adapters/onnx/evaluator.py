"""ONNX's reference evaluator, which runs a node in NumPy."""

from onnx.reference import ReferenceEvaluator

from attnspec.backends.adapters.onnx.model import onnx_attention
from attnspec.backends.backend import Backend
from attnspec.backends.user.described import describe


def reference_backend() -> Backend:
    """Run the node of opset 25."""
    return describe(
        onnx_attention(lambda model, inputs: ReferenceEvaluator(model).run(None, inputs), 25),
        name="onnx-reference",
        library="onnx",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        axes=4,
        bias_dtype="query",
    )
