"""Translates the ONNX operator Attention (opset 23 to 25) to calls of attnspec, as spec/dialects.md does.

What the attributes and inputs mean is taken from the operator's text as of ONNX 1.23. Nothing here computes
attention: the numbers come from `attnspec.reference` alone.
"""

import numpy as np

from attnspec.reference import allowed_keys, append_cache, attention, merge_heads, scores, split_heads

DEFAULTS = {
    "is_causal": 0,
    "left_window_size": -1,
    "qk_matmul_output_mode": 0,
    "right_window_size": -1,
    "scale": None,
    "softcap": 0.0,
}


def onnx_attention(attributes, inputs, *, opset):
    """Compute the outputs of a node by name, from its attributes and the inputs that it was given."""
    given = DEFAULTS | attributes
    # Every dtype of ONNX's is held exactly by float64; V may have another than Q and K, which ERR-1 refuses.
    query, key, value = (inputs[name].astype(np.float64) for name in ("Q", "K", "V"))
    flat = query.ndim == 3  # (B, S, H * D)
    if flat:
        query = split_heads(query, heads=given["q_num_heads"])
        key, value = (split_heads(a, heads=given["kv_num_heads"]) for a in (key, value))
    past = inputs["past_key"].shape[-2] if "past_key" in inputs else 0
    key, value = appended(inputs.get("past_key"), key), appended(inputs.get("past_value"), value)
    shape = (*query.shape[:-1], key.shape[-2])  # (B, Hq, L, S)
    lengths = inputs.get("nonpad_kv_seqlen")  # (B,)
    # The last of the queries stands at the last key that counts.
    offset = past if lengths is None else lengths - shape[-2]
    bounds = (given["left_window_size"], given["right_window_size"])
    masking = {
        "is_causal": bool(given["is_causal"]),
        "query_offset": offset,
        "window": tuple(None if bound == -1 else bound for bound in bounds),
        "key_lengths": lengths,
        **mask_or_bias(inputs.get("attn_mask"), shape[-1], pad=opset >= 24),
    }
    scaling = {"scale": given["scale"]}
    capping = {**scaling, "softcap": given["softcap"] or None}
    output, weights = attention(query, key, value, **capping, **masking, return_weights=True)
    bias = masking.get("bias")
    modes = {
        0: lambda: scores(query, key, **scaling),
        1: lambda: scores(query, key, **capping),
        2: lambda: np.where(
            allowed_keys(shape, **masking), scores(query, key, **capping, bias=bias), -np.inf
        ),
        3: lambda: weights,
    }
    first, second = inputs["Q"].dtype, inputs["V"].dtype  # T1 and T2
    return {
        "Y": (merge_heads(output) if flat else output).astype(first),
        "present_key": key.astype(first),
        "present_value": value.astype(second),
        "qk_matmul_output": modes[given["qk_matmul_output_mode"]]().astype(first),
    }


def appended(past, new):
    """Put new positions after those of the past, in a cache that both just fill."""
    if past is None:
        return new
    held, more = past.shape[-2], new.shape[-2]
    cache = np.zeros((*new.shape[:-2], held + more, new.shape[-1]))
    cache = append_cache(cache, past.astype(np.float64), lengths=0)
    return append_cache(cache, new, lengths=held)


def mask_or_bias(attn_mask, keys, *, pad):
    """Tell a mask from a bias; since opset 24 the last axis may be short: what is missing is disallowed."""
    if attn_mask is None:
        return {}
    is_mask = attn_mask.dtype == bool
    missing = keys - attn_mask.shape[-1]
    if pad and missing > 0:
        widths = [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)]
        attn_mask = np.pad(attn_mask, widths, constant_values=False if is_mask else -np.inf)
    return {"mask" if is_mask else "bias": attn_mask}
