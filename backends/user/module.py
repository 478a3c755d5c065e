"""The module that a function takes before its arrays, as the attention functions of Transformers do."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

#: The attributes that stand for arguments of attention.
ATTRIBUTES = {"is_causal": "is_causal", "scale": "scaling"}


def with_module(call: Mapping[str, Any], module: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Replace the arguments that are attributes of a module by a module that has them, and its sizes."""
    if not module:
        return dict(call)
    heads, key_heads, depth = (sizes[size] for size in ("query_heads", "key_heads", "depth"))
    config = {
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "hidden_size": heads * depth,
        "head_dim": depth,
        "attention_dropout": 0.0,
        "sliding_window": None,
        "_attn_implementation": "sdpa",
    }
    attributes: dict[str, Any] = {
        **config,
        "config": SimpleNamespace(**config),
        "num_heads": heads,
        "num_key_value_groups": heads // max(key_heads, 1),
        "scaling": max(depth, 1) ** -0.5,
        "is_causal": False,
        "training": False,
        "layer_idx": 0,
    }
    start = f"{module}."
    attributes |= {own.removeprefix(start): x for own, x in call.items() if own.startswith(start)}
    rest = {own: x for own, x in call.items() if not own.startswith(start)}
    return {module: SimpleNamespace(**attributes), **rest}
