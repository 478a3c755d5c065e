"""Transformers, on PyTorch: the attention functions ``eager`` (of Llama) and ``sdpa``."""

from types import SimpleNamespace
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.models.llama.modeling_llama import eager_attention_forward

from attnspec.backends.backend import Backend
from attnspec.backends.user.described import describe

_VERSIONS = ">=5.23,<5.24"


def eager_backend() -> Backend:
    """Run the function of separate operations. Masks are made as Transformers makes them."""

    def attention(
        query: Any, key: Any, value: Any, *, scale: float, bias: Any = None, mask: Any = None
    ) -> Any:
        if mask is not None:
            if mask.dtype != torch.bool:
                raise TypeError(f"mask: expected booleans, got {mask.dtype}")
            zero, lowest = torch.zeros((), dtype=query.dtype), torch.finfo(query.dtype).min
            bias = torch.where(mask, zero if bias is None else bias, lowest)
        module = _module(query, key)
        output, weights = eager_attention_forward(module, query, key, value, bias, scaling=scale)
        return output.transpose(1, 2), weights

    dialect = {
        "MASK-2": "added",
        "MASK-6": {"mask": "uniform", "bias": "nan"},
        "NUM-2": "float32",
        "NUM-5": {"float16": "storage", "bfloat16": "storage"},
    }
    return _backend("transformers-eager", attention, returns=["output", "weights"], dialect=dialect)


def sdpa_backend() -> Backend:
    """Run the function that calls PyTorch."""
    sdpa = AttentionInterface()["sdpa"]

    def attention(
        query: Any,
        key: Any,
        value: Any,
        *,
        scale: float | None = None,
        bias: Any = None,
        mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        options = {"scaling": scale, "position_bias": bias, "is_causal": is_causal}
        return sdpa(_module(query, key), query, key, value, mask, **options)[0].transpose(1, 2)

    return _backend("transformers-sdpa", attention, mask_axes=4)


def _backend(name: str, function: Any, **said: Any) -> Backend:
    fixed = {"library": "transformers", "array": "torch", "axes": 4, "versions": _VERSIONS}
    return describe(function, name=name, **fixed, **said)


def _module(query: Any, key: Any) -> Any:
    """Make what the functions read of a module."""
    groups = query.shape[1] // max(key.shape[1], 1)
    return SimpleNamespace(num_key_value_groups=groups, training=False)
