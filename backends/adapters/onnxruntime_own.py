"""ONNX Runtime, on the CPU: its own operators MultiHeadAttention and GroupQueryAttention."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, helper

from attnspec.backends.adapters.broadcast import broadcast
from attnspec.backends.adapters.conditions import (
    OF_NAN,
    Arguments,
    has_empty_axis,
    has_scale_of_zero,
    may_disallow,
    rows_with_overflow,
    rows_without_keys,
    without,
)
from attnspec.backends.adapters.deviations import mask_overflow
from attnspec.backends.adapters.onnx import OF_SOFTCAP
from attnspec.backends.adapters.onnxruntime import REFUSED, VERSIONS, may_overflow, run
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import OtherCall, Raises, Special, row_elements
from attnspec.backends.user.function import describe


def _has_causality_over_more_keys(arguments: Arguments) -> bool:
    """Whether a causal call has more keys than queries."""
    more = arguments["key"].shape[-2] > arguments["query"].shape[-2]
    return bool(arguments.get("is_causal") and more)


def _bias_row_elements(arguments: Arguments) -> Mapping[str, NDArray[np.bool_]]:
    """Mean the rows whose keys all have a bias of minus infinity."""
    return row_elements(rows_without_keys("bias"))(arguments) if "bias" in arguments else {}


def _with_all_for_the_last(arguments: Arguments) -> Arguments:
    """Let the last query attend to all keys that are not disallowed otherwise."""
    less = {name: x for name, x in arguments.items() if name != "is_causal"}
    queries, keys = arguments["query"].shape[-2], arguments["key"].shape[-2]
    after = np.tri(queries, keys, dtype=bool)
    after[-1:] = True
    return {**less, "mask": after & arguments.get("mask", True)}


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
        inputs["key_padding_mask"] = broadcast(np, masks, (len(query), *pairs)).astype(np.int32)
    if key_lengths is not None:
        inputs["key_padding_mask"] = np.broadcast_to(key_lengths, len(query)).astype(np.int32)
    if attention_bias is not None:
        inputs["attention_bias"] = broadcast(np, attention_bias, attention_bias.shape[:2] + pairs)
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
        "query": _pack(query),
        "key": _pack(key[:, past:]),
        "value": _pack(value[:, past:]),
        "past_key": key[None, :, :past],
        "past_value": value[None, :, :past],
        "seqlens_k": np.array([keys - 1], np.int32),
        "total_sequence_length": np.array(keys, np.int32),
    }
    if bias is not None:
        inputs["attention_bias"] = broadcast(np, bias, (len(bias), queries, keys))[None]
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


def _pack(array: Any) -> Any:
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
            Special(_bias_row_elements),
            Special(row_elements(rows_with_overflow(disallowed=False))),
            OtherCall(_with_all_for_the_last),
        ),
        when=_has_causality_over_more_keys,
    ),
    Deviation(("SCORE-3", "MASK-4", "ERR-3", "ERR-13"), "a scale of 0 is none", "onnxruntime/mha_scale_zero",
        without("scale"), when=has_scale_of_zero),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted, and gives NaN",
        "onnxruntime/mha_scale_not_finite", OF_NAN),
    mask_overflow("onnxruntime/mha_masked_overflow", may_disallow, "float16"),
)  # fmt: skip
_OF_GROUPED = (
    Deviation(("SCORE-3", "MASK-4", "ERR-3", "ERR-13"), "a scale of 0 is none", "onnxruntime/gqa_scale_zero",
        without("scale"), when=has_scale_of_zero),
    Deviation(("SCORE-6",), "a softcap of 0 or below is none, and NaN and infinity are accepted",
        "onnxruntime/gqa_softcap_not_positive", OF_SOFTCAP),
    Deviation(("SHAPE-7",), "an axis of size 0 is refused", "onnxruntime/gqa_empty_axes", Raises(REFUSED, ""),
        when=has_empty_axis),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted, and gives NaN",
        "onnxruntime/gqa_scale_not_finite", OF_NAN),
    Deviation(("MASK-12",), "a bias is added, and the score of a finite key may be infinite: the row is NaN",
        "onnxruntime/gqa_masked_overflow", Special(row_elements(rows_with_overflow("float16"))),
        when=may_overflow),
)  # fmt: skip
