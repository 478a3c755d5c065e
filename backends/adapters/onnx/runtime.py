"""ONNX Runtime, on the CPU."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from attnspec.backends.adapters.onnx.conditions import (
    has_empty_axis,
    has_scale_of_zero,
    may_overflow,
)
from attnspec.backends.adapters.onnx.model import onnx_attention
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.function import describe

#: The releases that were run.
VERSIONS = ">=1.31,<1.32"


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
        deviations=_DEVIATIONS,
        versions=VERSIONS,
    )


def run(model: onnx.ModelProto, inputs: dict[str, NDArray[Any]]) -> list[Any]:
    """Run a model in a session of its own."""
    if inputs.get("K", np.ones(())).shape[1:2] == (0,):
        raise Unsupported("zero key heads end the process; see the finding onnxruntime/no_key_heads")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    found: list[Any] = session.run(None, inputs)
    return found


_DEVIATIONS = (
    Deviation(
        ("SHAPE-7", "MASK-6"), "an axis of size 0 is refused", "onnxruntime/empty_axes", when=has_empty_axis
    ),
    Deviation(
        (
            "SCORE-3",
            "SCORE-4",
            "SCORE-5",
            "MASK-1",
            "MASK-3",
            "MASK-4",
            "MASK-7",
            "MASK-9",
            "ERR-3",
            "ERR-13",
        ),
        "a scale of 0 is refused",
        "onnxruntime/scale_zero",
        when=has_scale_of_zero,
    ),
    Deviation(("ERR-6",), "a scale of NaN is none, and infinity is accepted", "onnxruntime/scale_not_finite"),
    Deviation(
        ("SCORE-6",),
        "a softcap of 0 or below is none, and infinity is accepted",
        "onnxruntime/softcap_not_positive",
    ),
    Deviation(
        ("MASK-12",),
        "a mask is added, and the score of a finite key may be infinite: the row is wrong",
        "onnxruntime/masked_overflow",
        when=may_overflow,
    ),
)
