"""The cases that ONNX ships for its operator Attention, with their own expected data."""

from importlib import import_module
from typing import Any

import numpy as np

from attnspec.reference import split_heads
from tools.rivals.closeness import close_to_data
from tools.rivals.drawing import BFLOAT16
from tools.rivals.rival import Rival
from tools.rivals.trial import Array, Trial

_INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
#: The value of `qk_matmul_output_mode` for which the second result is the weights.
_WEIGHTS = 3


def draw() -> list[Trial]:
    """Translate the cases. The split of packed heads and the cache are done for the implementation.

    Results that no call of attention has, such as the cache, are not compared. Cases whose values have
    another dtype are left out, as a call may refuse them. So are those in bfloat16, whose spacing is wider
    than the tolerance.
    """
    from onnx import helper
    from onnx.backend.test.case.node import _NodeTestCases as cases

    import_module("onnx.backend.test.case.node.attention")  # fills the list
    trials = []
    for case in cases:
        node = case.model.graph.node[0]
        if node.op_type != "Attention" or len(case.model.graph.node) > 1:
            continue
        given, expected = case.data_sets[0]
        names = [one.name for one in case.model.graph.input]
        by_name = dict(zip(names, given, strict=True))
        inputs = {name: by_name[own] for name, own in zip(_INPUTS, node.input, strict=False) if own}
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if inputs["V"].dtype == inputs["Q"].dtype != BFLOAT16:
            trials.append(_trial(inputs, attributes, list(node.output), expected))
    return trials


def _trial(
    inputs: dict[str, Array], attributes: dict[str, Any], names: list[str], expected: list[Array]
) -> Trial:
    query, key, value = (inputs[name] for name in "QKV")
    output = expected[0]
    if query.ndim == 3:
        heads, key_heads = attributes["q_num_heads"], attributes["kv_num_heads"]
        query = split_heads(query, heads=heads, dtype=query.dtype)
        key, value = (split_heads(array, heads=key_heads, dtype=array.dtype) for array in (key, value))
        output = split_heads(output, heads=heads, dtype=output.dtype)
    past = 0
    if "past_key" in inputs:
        past = inputs["past_key"].shape[-2]
        key = np.concatenate([inputs["past_key"], key], axis=-2)
        value = np.concatenate([inputs["past_value"], value], axis=-2)
    lengths = inputs.get("nonpad_kv_seqlen")
    bounds = tuple(attributes.get(name, -1) for name in ("left_window_size", "right_window_size"))
    weights = len(names) > 3 and bool(names[3]) and attributes.get("qk_matmul_output_mode", 0) == _WEIGHTS
    options: dict[str, Any] = {
        "scale": attributes.get("scale"),
        "softcap": attributes.get("softcap") or None,
        "is_causal": bool(attributes.get("is_causal", 0)),
        # The last of the queries stands at the last key that counts.
        "query_offset": past if lengths is None else lengths - query.shape[-2],
        "window": tuple(None if bound == -1 else bound for bound in bounds),
        "key_lengths": lengths,
        **_mask(inputs.get("attn_mask"), key.shape[-2]),
        "return_weights": weights,
    }
    given = {"query": query, "key": key, "value": value}
    given |= {name: option for name, option in options.items() if option is not None}
    return Trial(given, (output, expected[-1]) if weights else (output,))


def _mask(attn_mask: Array | None, keys: int) -> dict[str, Array]:
    """Tell a mask from a bias. The keys that a short last axis lacks are disallowed."""
    if attn_mask is None:
        return {}
    is_mask = attn_mask.dtype == bool
    missing = keys - attn_mask.shape[-1]
    if missing > 0 and attn_mask.shape[-1] > 1:
        widths = [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)]
        attn_mask = np.pad(attn_mask, widths, constant_values=False if is_mask else -np.inf)
    return {"mask" if is_mask else "bias": attn_mask}


RIVALS = (
    Rival(
        "ONNX",
        "https://github.com/onnx/onnx/blob/v1.23.2/onnx/backend/test/case/node/attention.py",
        "`assert_allclose`, absolute 1e-7, relative 1e-3, against the data of ONNX",
        "the node cases of Attention, opset 23 to 25, uniform from 0 to 1, float32 and float16, up to 18"
        " keys; not those in bfloat16, which correct implementations fail: its spacing, 2^-8, exceeds the"
        " tolerance",
        draw,
        close_to_data(1e-7, 1e-3),
    ),
)
