"""ONNX's reference evaluator, which runs a node in NumPy."""

from onnx.reference import ReferenceEvaluator

from attnspec.backends.adapters.conditions import has_other_heads_of_value, has_repeated_batch_entry
from attnspec.backends.adapters.onnx.conditions import (
    has_empty_axis,
    has_scale_without_short_root,
    may_overflow,
)
from attnspec.backends.adapters.onnx.model import onnx_attention
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.user.function import describe


def reference_backend() -> Backend:
    """Run the node of opset 25."""
    return describe(
        onnx_attention(
            lambda model, inputs: ReferenceEvaluator(model).run(None, inputs), 25, whole_masks=True
        ),
        name="onnx-reference",
        library="onnx",
        dtypes=["float16", "bfloat16", "float32", "float64"],
        axes=4,
        bias_dtype="query",
        dialect={
            "NUM-5": {"float16": "storage", "bfloat16": "storage"},
        },
        deviations=_DEVIATIONS,
        versions=">=1.23,<1.24",
    )


_DEVIATIONS = (
    Deviation(("SHAPE-7", "MASK-6"), "a call without keys is refused", "onnx/no_keys", when=has_empty_axis),
    Deviation(
        ("SHAPE-6",),
        "keys and values of one batch entry are repeated",
        "onnx/batch_repeated",
        when=has_repeated_batch_entry,
    ),
    Deviation(
        ("NUM-2",),
        "the square root of a given scale is taken in float32",
        "onnx/float64_scale",
        dtypes=("float64",),
        when=has_scale_without_short_root,
    ),
    Deviation(
        ("NUM-6",),
        "exponentials are summed in bfloat16, where a sum stops to grow",
        "onnx/half_sums",
        dtypes=("bfloat16",),
    ),
    Deviation(("ERR-2",), "integers are taken", "onnx/integers"),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "onnx/depth_zero"),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "onnx/scale_not_finite"),
    Deviation(
        ("SCORE-6",), "a softcap of 0 or below is none, and infinity is accepted", "onnx/softcap_not_positive"
    ),
    Deviation(
        ("HEAD-2",),
        "values with other heads than the keys are repeated",
        "onnx/heads_of_value",
        when=has_other_heads_of_value,
    ),
    Deviation(("ERR-15",), "a mask with more axes than the scores is accepted", "onnx/mask_of_more_axes"),
    Deviation(
        ("MASK-12",),
        "a mask is added, and the score of a finite key may be infinite: the row is NaN",
        "onnx/masked_overflow",
        when=may_overflow,
    ),
)
