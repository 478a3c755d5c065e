"""ONNX Runtime, on the CPU: the node Attention."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from attnspec.backends.adapters.conditions import (
    OF_NAN,
    Arguments,
    has_empty_axis,
    has_overflowing_score,
    has_scale_of_zero,
    may_disallow,
    pairs_of,
    rows_with_overflow,
    scores_of,
    with_more_axes,
)
from attnspec.backends.adapters.deviations import other_heads_of_value
from attnspec.backends.adapters.onnx import OF_SOFTCAP, onnx_attention
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import OtherCall, Raises, Special, row_elements
from attnspec.backends.user.function import describe

#: The releases that were run.
VERSIONS = ">=1.31,<1.32"


def attention_backend() -> Backend:
    """Run the node Attention of opset 24."""
    return _backend("onnxruntime-attention", 24, (*OF_ATTENTION, OF_LENGTHS))


def older_backend() -> Backend:
    """Run the node Attention of opset 23, which has no lengths."""
    return _backend("onnxruntime-attention-23", 23, OF_ATTENTION)


def _backend(name: str, opset: int, deviations: tuple[Deviation, ...]) -> Backend:
    return describe(
        onnx_attention(run, opset),
        name=name,
        library="onnxruntime",
        dtypes=["float16", "float32", "float64"],
        axes=4,
        bias_dtype="query",
        dialect=DIALECT,
        deviations=deviations,
        versions=VERSIONS,
    )


def run(model: onnx.ModelProto, inputs: dict[str, NDArray[Any]]) -> list[Any]:
    """Run a model in a session of its own."""
    if inputs.get("K", np.ones(())).shape[1:2] == (0,):
        raise Unsupported("zero key heads end the process; see the finding onnxruntime/no_key_heads")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    outputs: list[Any] = session.run(None, inputs)
    return outputs


def may_overflow(arguments: Arguments) -> bool:
    """Whether a score may overflow in float16 and a key may be disallowed."""
    return may_disallow(arguments) and has_overflowing_score(arguments, "float16")


def _without_nan_scale(arguments: Arguments) -> Arguments:
    return {name: x for name, x in arguments.items() if name != "scale" or not np.isnan(x)}


def _with_overflow(arguments: Arguments) -> Arguments:
    """Let a query attend to the disallowed keys whose score is infinite in float16, if there are some."""
    if arguments["query"].dtype != np.float16:
        return arguments
    scale = arguments.get("scale", arguments["query"].shape[-1] ** -0.5)
    allowed = pairs_of(arguments)
    over = ~allowed & (scores_of(arguments) * scale > np.finfo(np.float16).max)
    rows = over.any(axis=-1, keepdims=True)
    less = {
        name: arguments[name] for name in ("key", "value", "scale", "softcap", "bias") if name in arguments
    }
    query = np.where(rows, 0, arguments["query"]).astype(np.float16)
    return {**less, "query": query, "mask": np.where(rows, over, allowed)}


def _aligns_with_the_last_key(arguments: Arguments) -> bool:
    """Whether a causal call has a past that does not end at its queries."""
    offset, spare = arguments["query_offset"], arguments["key"].shape[-2] - arguments["query"].shape[-2]
    return bool(arguments.get("is_causal") and offset and offset != spare)


def _with_last_at_last(arguments: Arguments) -> Arguments:
    return {**arguments, "query_offset": arguments["key"].shape[-2] - arguments["query"].shape[-2]}


def _has_broadcast_mask(arguments: Arguments) -> bool:
    """Whether a mask or a bias repeats along the queries or the keys."""
    pairs = arguments["query"].shape[-2], arguments["key"].shape[-2]
    given = [arguments[name] for name in ("mask", "bias") if name in arguments]
    return any((1, *array.shape)[-2:] != pairs or array.ndim < 2 for array in given)


#: How it refuses in Python, and how it does so over the protocol for programs.
REFUSED = "Fail or InvalidArgument or Refused"
#: In float64 the node is a function of other nodes, with a scale of float32, and not a kernel.
_DOUBLE = ("float64",)
DIALECT = {
    "NUM-2": "float32",
    "NUM-5": {"float16": "storage"},
    "MASK-2": {"float64": "added"},
    "MASK-6": {"float64": "nan"},
}


def _with_positive_softcap(arguments: Arguments) -> Arguments:
    return {**arguments, "softcap": abs(arguments["softcap"])}


def _with_fitting_mask(arguments: Arguments) -> Arguments:
    name, keys = "mask" if "mask" in arguments else "bias", arguments["key"].shape[-2]
    shorter = {**arguments, name: arguments[name][..., :keys]}
    return with_more_axes(shorter) if arguments[name].ndim > arguments["query"].ndim else shorter


_OF_FLOAT64 = (
    Deviation(("MASK-4",), "in float64 a bias beside is_causal is refused",
        "onnxruntime/float64_bias_and_causal", Raises(REFUSED, "Type parameter (T) of Optype (Add)"),
        dtypes=_DOUBLE, when=lambda arguments: "bias" in arguments and bool(arguments.get("is_causal"))),
    Deviation(("SCORE-6",), "in float64 a softcap below 0 or of NaN is used",
        "onnxruntime/float64_not_checked", (*OF_NAN, OtherCall(_with_positive_softcap)), dtypes=_DOUBLE),
    replace(
        other_heads_of_value(
            "onnxruntime/float64_not_checked", "in float64 values may have other heads than keys"
        ),
        dtypes=_DOUBLE,
    ),
    Deviation(("ERR-15",), "in float64 a mask with more axes or keys than the scores is accepted",
        "onnxruntime/float64_not_checked", OtherCall(_with_fitting_mask), dtypes=_DOUBLE),
)  # fmt: skip
#: Of lengths, which opset 24 has.
OF_LENGTHS = Deviation(
    ("CACHE-3",),
    "in float64 causality beside lengths starts at the first key",
    "onnxruntime/float64_lengths_and_causal",
    OtherCall(lambda arguments: {**arguments, "query_offset": 0}),
    dtypes=_DOUBLE,
    when=lambda arguments: "key_lengths" in arguments and bool(arguments.get("is_causal")),
)
OF_ATTENTION = (
    Deviation(("MASK-7", "CACHE-3"),
        "with a past the last query is aligned with the last key, whatever the number of past keys",
        "onnxruntime/past_offset", OtherCall(_with_last_at_last), when=_aligns_with_the_last_key),
    Deviation(("MASK-1", "MASK-12"), "a mask or a bias that repeats along queries or keys is refused",
        "onnxruntime/broadcast_mask", Raises(REFUSED, ""), when=_has_broadcast_mask),
    Deviation(("SHAPE-7", "MASK-6"), "an axis of size 0 is refused", "onnxruntime/empty_axes",
        Raises(REFUSED, ""), when=has_empty_axis),
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
        Raises(REFUSED, ""),
        when=has_scale_of_zero,
    ),
    Deviation(("ERR-6",), "a scale of NaN is none, and infinity is accepted", "onnxruntime/scale_not_finite",
        (OtherCall(_without_nan_scale), *OF_NAN)),
    Deviation(("SCORE-6",), "a softcap of 0 or below is none, and infinity is accepted",
        "onnxruntime/softcap_not_positive", OF_SOFTCAP),
    Deviation(("MASK-12",),
        "a mask is added, and the score of a finite key may be infinite: the row is wrong",
        "onnxruntime/masked_overflow",
        (Special(row_elements(rows_with_overflow("float16"))), OtherCall(_with_overflow)), when=may_overflow),
    *_OF_FLOAT64,
)  # fmt: skip
