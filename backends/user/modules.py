"""Classes of PyTorch that project tokens, with a wrapper that sets the weights of their projections."""

import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from attnspec.backends.errors import BackendError
from attnspec.operations.aliases import meant

#: The width of the heads together.
_WIDTH = "query_weight.shape[1]"
#: What the constructor of such a class is given, by what its parameter may be called.
_GIVEN: Mapping[str, str] = MappingProxyType(
    {
        r"d_?model|dim|(n_|num_)?embd|(embed|model|hidden)(ding)?_(dim|size)|features|width": _WIDTH,
        r"(n|num)_?(attention_)?heads?|nhead|heads": "heads",
        r"(n|num)_?(kv|key_value|query)_?(heads|groups)|kv_heads": "key_heads or heads",
        r"(is_)?causal": "is_causal",
    }
)
#: What a linear layer is, by its name.
_LAYERS: Mapping[str, str] = MappingProxyType(
    {
        r".*qkv.*|in_proj.*|c_attn": "torch.cat([query_weight, key_weight, value_weight], 1)",
        r"(w|to|fc|linear)?_?q(uery)?(_?proj.*|_?linear)?": "query_weight",
        r"(w|to|fc|linear)?_?k(ey)?(_?proj.*|_?linear)?": "key_weight",
        r"(w|to|fc|linear)?_?v(alue)?(_?proj.*|_?linear)?": "value_weight",
        r"(w|to|fc|linear|c)?_?(o|out|output)?(_?proj.*|_?linear)?(\.0)?": "output_weight",
    }
)
_OPTIONS = {"is_causal": "is_causal=False", "mask": "mask=None", "memory": "memory=None"}
#: What its forward pass is given besides tokens: the argument, and what is passed.
_FORWARD: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        r"(attn_|attention_)?mask": ("mask", "None if mask is None else mask[(None,) * (4 - mask.ndim)]"),
        r"(is_)?causal": ("is_causal", "is_causal"),
        r"context|memory|encoder_hidden_states|inputs_kv": (
            "memory",
            "None if memory is None else memory.reshape(-1, *memory.shape[-2:])",
        ),
    }
)
#: The same of a forward pass that takes queries, keys and values, as that of `torch.nn.MultiheadAttention`.
_OF_TORCH: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        r"k(eys?)?|v(alues?)?": ("memory", "source"),
        r"(attn_|attention_)?mask": ("mask", "None if mask is None else disallowed(mask)"),
        r"(is_)?causal": ("is_causal", "is_causal"),
    }
)
#: What such a wrapper does first.
_SOURCE = """
    def disallowed(mask):  # (B H, L, S), where True disallows
        shape = (*tokens.shape[:-2], heads, tokens.shape[-2], source.shape[-2])
        return ~mask.broadcast_to(shape).reshape(-1, *shape[-2:])

    source = tokens if memory is None else memory
    source = source.reshape(-1, *source.shape[-2:])
"""
_WRAPPER = """
import torch
import {module} as kernels


def multi_head_attention(
    tokens, query_weight, key_weight, value_weight, output_weight, *, {options},
    query_bias=None, key_bias=None, value_bias=None, output_bias=None,
):
    weights = (query_weight, key_weight, value_weight, output_weight)
    none = [torch.zeros(x.shape[1], dtype=x.dtype) for x in weights]
    biases = (query_bias, key_bias, value_bias, output_bias)
    query_bias, key_bias, value_bias, output_bias = (y if x is None else x for x, y in zip(biases, none))
    module = kernels.{made}({given}).to(tokens.dtype)
    for name, weight, bias in (
{layers}
    ):
        layer = module.get_submodule(name)
        del layer.weight, layer.bias  # gradients pass through tensors that are no parameters
        layer.weight, layer.bias = weight.T, bias
    # Not passed, so no case tests what they do: {rest}.
{source}    output = module(tokens.reshape(-1, *tokens.shape[-2:]){passed}){first}
    return output.reshape(*tokens.shape[:-1], output_weight.shape[1])
"""


def wrapper_of_class(made: Any, module: str) -> str:
    """Return a wrapper that judges a class as `multi_head_attention`; empty for one that is not understood.

    Its constructor takes a width and a number of heads, and its linear layers have the names of projections.
    """
    torch = sys.modules.get("torch")
    if torch is None or not issubclass(made, torch.nn.Module):
        return ""
    parameters = inspect.signature(made).parameters
    given = {own: ours for own in parameters if (ours := _meaning(own, _GIVEN))}
    forward = [*inspect.signature(made.forward).parameters][1:]
    if not {_WIDTH, "heads"} <= {*given.values()} or not forward:
        return ""
    sizes = {_WIDTH: 16, "heads": 4, "key_heads or heads": 4, "is_causal": False}
    try:
        layers = dict(made(**{own: sizes[ours] for own, ours in given.items()}).named_modules())
    except Exception:  # noqa: BLE001 - a constructor may raise anything
        return ""
    layers = {own: x for own, x in layers.items() if isinstance(x, torch.nn.Linear)}
    weights = {own: _meaning(own.rpartition("to_")[2] or own, _LAYERS) for own in layers}
    several = [meant(own)[:1] for own in forward[:3]] == [("query",), ("key",), ("value",)]
    passed = {
        own: ours
        for own in forward[1:]
        for names, ours in (_OF_TORCH if several else _FORWARD).items()
        if re.fullmatch(names, own, re.IGNORECASE)
    }
    named = {ours for ours, _ in passed.values()} | {x for x in given.values() if x == "is_causal"}
    options = ["heads", *(["key_heads=None"] if "key_heads or heads" in given.values() else [])]
    options += [x for ours, x in _OPTIONS.items() if ours in named]
    if sorted(weights.values()) not in (_of_layers(0), _of_layers(1)):
        return ""
    return _WRAPPER.format(
        module=module,
        made=made.__name__,
        options=", ".join(options),
        given=", ".join(f"{own}={ours}" for own, ours in given.items()),
        layers="\n".join(f'        ("{own}", {x}, {_bias_of(x)}),' for own, x in weights.items()),
        source=_SOURCE.removeprefix("\n") if several else "",
        first="[0]" if several else "",
        passed="".join(f", {own}={value}" for own, (_, value) in passed.items()),
        rest=", ".join(own for own in (*parameters, *forward[1:]) if own not in {*given, *passed})
        or "nothing",
    )


def check_module(name: str, target: Any) -> None:
    """Refuse a class or a module that projects tokens itself, with the wrapper to judge instead."""
    made = target if inspect.isclass(target) else type(target)
    place, _, attribute = name.partition("?")[0].rpartition(":")
    wrapper = wrapper_of_class(made, Path(place).stem if place.endswith(".py") else place)
    if wrapper:
        error = BackendError(
            f"backend {name}: {made.__name__} seems to project tokens to queries and keys; judge a wrapper "
            f"that makes it and sets its weights: `attnspec init {place}:{attribute}` prints one. Save it as "
            "wrap.py, change what is different in your class, and run "
            "`attnspec init ./wrap.py:multi_head_attention`"
        )
        error.add_note(wrapper)
        raise error


def _of_layers(separate: int) -> list[str]:
    """Return what the layers of a class are: one for all three projections, or one for each."""
    whole, *parts, output = _LAYERS.values()
    return sorted([*(parts if separate else [whole]), output])


def _bias_of(weight: str) -> str:
    """Return the bias that belongs to a weight, or those that belong to weights side by side."""
    return weight.replace("_weight", "_bias").replace(", 1)", ")")


def _meaning(own: str, known: Mapping[str, str]) -> str:
    return next((ours for names, ours in known.items() if re.fullmatch(names, own, re.IGNORECASE)), "")
