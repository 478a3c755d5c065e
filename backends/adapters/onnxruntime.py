"""ONNX Runtime, on the CPU: Attention, and its own MultiHeadAttention and GroupQueryAttention."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, helper

from attnspec.backends.adapters.conditions import (
    OF_NAN,
    Arguments,
    has_empty_axis,
    has_overflowing_score,
    has_scale_of_zero,
    may_disallow,
    pairs_of,
    rows_with_overflow,
    rows_without_keys,
    scores_of,
    without,
)
from attnspec.backends.adapters.deviations import mask_overflow
from attnspec.backends.adapters.onnx import OF_SOFTCAP, onnx_attention
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import OtherCall, Raises, Special, of_rows
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
        onnx_attention(run, opset),
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
    outputs: list[Any] = session.run(None, inputs)
    return outputs


def _may_overflow(arguments: Arguments) -> bool:
    return may_disallow(arguments) and has_overflowing_score(arguments, "float16")


def _has_causality_over_more_keys(arguments: Arguments) -> bool:
    """Whether a causal call has more keys than queries."""
    more = arguments["key"].shape[-2] > arguments["query"].shape[-2]
    return bool(arguments.get("is_causal") and more)


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


def _of_rows_of_bias(arguments: Arguments) -> Mapping[str, NDArray[np.bool_]]:
    """Mean the rows whose keys all have a bias of minus infinity."""
    return of_rows(rows_without_keys("bias"))(arguments) if "bias" in arguments else {}


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


def _with_all_for_the_last(arguments: Arguments) -> Arguments:
    """Let the last query attend to all keys that are not disallowed otherwise."""
    less = {name: x for name, x in arguments.items() if name != "is_causal"}
    queries, keys = arguments["query"].shape[-2], arguments["key"].shape[-2]
    after = np.tri(queries, keys, dtype=bool)
    after[-1:] = True
    return {**less, "mask": after & arguments.get("mask", True)}


_DEVIATIONS = (
    Deviation(
        ("MASK-7", "CACHE-3"),
        "with a past the last query is aligned with the last key, whatever the number of past keys",
        "onnxruntime/past_offset",
        OtherCall(_with_last_at_last),
        when=_aligns_with_the_last_key,
    ),
    Deviation(
        ("MASK-1", "MASK-12"),
        "a mask or a bias that repeats along queries or keys is refused",
        "onnxruntime/broadcast_mask",
        Raises("Fail or InvalidArgument", ""),
        when=_has_broadcast_mask,
    ),
    Deviation(
        ("SHAPE-7", "MASK-6"),
        "an axis of size 0 is refused",
        "onnxruntime/empty_axes",
        Raises("Fail or InvalidArgument", ""),
        when=has_empty_axis,
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
        Raises("Fail", ""),
        when=has_scale_of_zero,
    ),
    Deviation(
        ("ERR-6",),
        "a scale of NaN is none, and infinity is accepted",
        "onnxruntime/scale_not_finite",
        (OtherCall(_without_nan_scale), *OF_NAN),
    ),
    Deviation(
        ("SCORE-6",),
        "a softcap of 0 or below is none, and infinity is accepted",
        "onnxruntime/softcap_not_positive",
        OF_SOFTCAP,
    ),
    Deviation(
        ("MASK-12",),
        "a mask is added, and the score of a finite key may be infinite: the row is wrong",
        "onnxruntime/masked_overflow",
        (Special(of_rows(rows_with_overflow("float16"))), OtherCall(_with_overflow)),
        when=_may_overflow,
    ),
)


Inputs = dict[str, NDArray[Any]]


def multi_head_backend() -> Backend:
    """Run MultiHeadAttention on arrays of (B, S, H * D)."""
    return describe(
        multi_head_attention,
        name="onnxruntime-mha",
        library="onnxruntime",
        dtypes=["float32"],
        layout="BS(HD)",
        sizes={"query_heads": "num_heads"},
        names={"bias": "attention_bias", "is_causal": "unidirectional"},
        axes=4,
        mask_axes=4,
        heads="equal",
        bias_dtype="query",
        dialect={"MASK-6": {"mask": "uniform", "bias": "nan"}},
        deviations=_OF_MULTI_HEAD,
        versions=VERSIONS,
    )


def grouped_backend() -> Backend:
    """Run GroupQueryAttention on arrays of (B, S, H * D). Keys before the queries are its past."""
    return describe(
        grouped_attention,
        name="onnxruntime-gqa",
        library="onnxruntime",
        dtypes=["float16", "float32"],
        loop=True,  # several queries after a past need a batch of 1
        axes=3,
        mask_axes=3,
        depths=[8, 16, 64],
        value_depth="key",
        bias_dtype="query",
        dialect={"MASK-8": "exclusive-left", "MASK-6": "nan"},
        deviations=_OF_GROUPED,
        versions=VERSIONS,
    )


def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    num_heads: int,
    scale: float | None = None,
    attention_bias: Any = None,
    mask: Any = None,
    key_lengths: Any = None,
    unidirectional: bool = False,
) -> Any:
    """Pass a mask without heads, or lengths, as ``key_padding_mask``."""
    inputs = {"query": query, "key": key, "value": value}
    if 0 in (query.shape[2], key.shape[2], value.shape[2]):
        raise Unsupported("a depth of 0 ends the process; see the finding onnxruntime/mha_depth_zero")
    pairs = query.shape[1], key.shape[1]
    if mask is not None and (key_lengths is not None or mask.shape[1] > 1):
        raise Unsupported("key_padding_mask has no axis of heads, and is a mask or lengths")
    if mask is not None and mask.dtype != bool:
        raise Unsupported(f"mask: expected booleans, got {mask.dtype}")
    if key_lengths is not None and np.asarray(key_lengths).dtype.kind != "i":
        raise Unsupported(f"key_lengths: expected integers, got {np.asarray(key_lengths).dtype}")
    if key_lengths is not None and np.shape(key_lengths) not in ((), (len(query),)):
        raise Unsupported(f"key_lengths: expected one for each batch entry, got {np.shape(key_lengths)}")
    if mask is not None:
        masks = mask.reshape(mask.shape[:1] + mask.shape[2:])
        inputs["key_padding_mask"] = np.broadcast_to(masks, (len(query), *pairs)).astype(np.int32)
    if key_lengths is not None:
        inputs["key_padding_mask"] = np.broadcast_to(key_lengths, len(query)).astype(np.int32)
    if attention_bias is not None:
        inputs["attention_bias"] = np.broadcast_to(attention_bias, attention_bias.shape[:2] + pairs)
    attributes: dict[str, Any] = {"num_heads": num_heads, "unidirectional": int(unidirectional)}
    # The default of -10000 leaves a disallowed key a weight. See the finding `onnxruntime/mha_mask_leaks`.
    attributes["mask_filter_value"] = float(np.finfo(np.float32).min)
    if scale is not None:
        attributes["scale"] = float(scale)
    names = ("query", "key", "value", "", "key_padding_mask", "attention_bias")
    return run(_model("MultiHeadAttention", names, inputs, attributes, 1), inputs)[0]


def grouped_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Any = None,
    is_causal: bool = False,
    query_offset: Any = 0,
    window: Any = None,
    sinks: Any = None,
) -> Any:
    """Pass the keys before the queries as ``past_key``, and a window as ``local_window_size``."""
    (heads, queries, _), (key_heads, keys, _) = query.shape, key.shape
    past = keys - queries
    if past < 0:
        raise Unsupported("the new keys are as many as the queries")
    if is_causal and not np.array_equal(np.asarray(query_offset), past):
        raise Unsupported("the last query is at the last key")
    if window is not None and (not is_causal or window[0] is None or window[1] not in (0, None)):
        raise Unsupported("a window has a left side, with causal alone")
    inputs = {
        "query": _packed(query),
        "key": _packed(key[:, past:]),
        "value": _packed(value[:, past:]),
        "past_key": key[None, :, :past],
        "past_value": value[None, :, :past],
        "seqlens_k": np.array([keys - 1], np.int32),
        "total_sequence_length": np.array(keys, np.int32),
    }
    if bias is not None:
        inputs["attention_bias"] = np.broadcast_to(bias, (len(bias), queries, keys))[None]
    if sinks is not None:
        inputs["head_sink"] = sinks
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": key_heads}
    attributes |= {"causal": int(is_causal)} | ({"local_window_size": window[0]} if window else {})
    attributes |= {
        name: float(number) for name, number in (("scale", scale), ("softcap", softcap)) if number is not None
    }
    names = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length")
    options = ("", "", "", "attention_bias", "head_sink")
    model = _model("GroupQueryAttention", names + options, inputs, attributes, 3)
    output: NDArray[Any] = run(model, inputs)[0]
    return output.reshape(queries, heads, -1).swapaxes(0, 1)


def _packed(array: Any) -> Any:
    """Convert (H, S, D) to (1, S, H * D)."""
    return array.swapaxes(0, 1).reshape(1, array.shape[1], array.shape[0] * array.shape[2])


def _model(
    operator: str, names: tuple[str, ...], inputs: Inputs, attributes: Mapping[str, Any], outputs: int
) -> ModelProto:
    """Make a model of one node that takes the inputs by name, in the order of the operator."""
    given = [name if name in inputs else "" for name in names]
    results = ["output", "present_key", "present_value"][:outputs]
    node = helper.make_node(operator, given, results, domain="com.microsoft", **attributes)
    starts = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(inputs["query"].dtype)
    ends = [helper.make_tensor_value_info(name, kind, None) for name in results]
    graph = helper.make_graph([node], "attention", starts, ends)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


_OF_MULTI_HEAD = (
    Deviation(
        ("MASK-3", "MASK-4", "MASK-9", "MASK-12", "SOFT-2", "ERR-3", "ERR-13"),
        "if there are more keys than queries, the last query of a causal call attends to all",
        "onnxruntime/mha_causal_last",
        (
            Special(_of_rows_of_bias),
            Special(of_rows(rows_with_overflow(disallowed=False))),
            OtherCall(_with_all_for_the_last),
        ),
        when=_has_causality_over_more_keys,
    ),
    Deviation(
        ("SCORE-3", "MASK-4", "ERR-3", "ERR-13"),
        "a scale of 0 is none",
        "onnxruntime/mha_scale_zero",
        without("scale"),
        when=has_scale_of_zero,
    ),
    Deviation(
        ("ERR-6",),
        "a scale of NaN or infinity is accepted, and gives NaN",
        "onnxruntime/mha_scale_not_finite",
        OF_NAN,
    ),
    mask_overflow("onnxruntime/mha_masked_overflow", may_disallow, "float16"),
)
_OF_GROUPED = (
    Deviation(
        ("SCORE-3", "MASK-4", "ERR-3", "ERR-13"),
        "a scale of 0 is none",
        "onnxruntime/gqa_scale_zero",
        without("scale"),
        when=has_scale_of_zero,
    ),
    Deviation(
        ("SCORE-6",),
        "a softcap of 0 or below is none, and NaN and infinity are accepted",
        "onnxruntime/gqa_softcap_not_positive",
        OF_SOFTCAP,
    ),
    Deviation(
        ("SHAPE-7",),
        "an axis of size 0 is refused",
        "onnxruntime/gqa_empty_axes",
        Raises("Fail or InvalidArgument", ""),
        when=has_empty_axis,
    ),
    Deviation(
        ("ERR-6",),
        "a scale of NaN or infinity is accepted, and gives NaN",
        "onnxruntime/gqa_scale_not_finite",
        OF_NAN,
    ),
    Deviation(
        ("MASK-12",),
        "a bias is added, and the score of a finite key may be infinite: the row is NaN",
        "onnxruntime/gqa_masked_overflow",
        Special(of_rows(rows_with_overflow("float16"))),
        when=_may_overflow,
    ),
)
