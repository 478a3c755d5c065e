"""Diffusers, on PyTorch: ``dispatch_attention_fn`` with the backend native, and ``AttnProcessor``."""

import math
from typing import Any

import torch
from diffusers.models.attention_dispatch import AttentionBackendName, dispatch_attention_fn
from diffusers.models.attention_processor import Attention, AttnProcessor

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import OF_NAN
from attnspec.backends.adapters.deviations import bias_overflow, other_heads_of_value, repeated_batch
from attnspec.backends.adapters.torch import to_attn_mask
from attnspec.backends.adapters.torch.sdpa import OF_ALL, OF_FLASH, OF_SCALE, OF_WIDE
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.function import describe


def native_backend() -> Backend:
    """Run the function that calls PyTorch."""

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
        attn_mask = to_attn_mask(mask, bias, 4)
        if is_causal and attn_mask is not None:
            raise Unsupported("scaled_dot_product_attention takes attn_mask or is_causal, not both")
        require_axes(3, query, key)
        shared = query.shape[2] != key.shape[2]
        options = {"attn_mask": attn_mask, "is_causal": is_causal, "scale": scale, "enable_gqa": shared}
        return dispatch_attention_fn(query, key, value, backend=AttentionBackendName.NATIVE, **options)

    heads = other_heads_of_value("torch/heads_of_value")
    deviations = (heads, repeated_batch("torch/batch_repeated"), OF_SCALE, *OF_ALL, *OF_FLASH, OF_WIDE)
    return _backend("diffusers-native", attention, layout="BSHD", axes=4, deviations=deviations)


def processor_backend() -> Backend:
    """Run the processor of separate operations on a module of one head that projects by the identity."""
    dialect = {"MASK-6": "nan", "MASK-2": "added", "NUM-5": "storage", "GRAD-10": "nan"}
    return _backend(
        "diffusers-processor",
        _process,
        heads="equal",
        value_depth="key",
        dialect=dialect,
        deviations=_OF_PROCESSOR,
    )


def _process(query: Any, key: Any, value: Any, *, scale: float | None = None, bias: Any = None) -> Any:
    """Make batch entries of heads."""
    arrays = (query, key, value)
    if not all(bool(torch.isfinite(array).all()) for array in arrays):
        raise Unsupported("NaN and infinity would spread over all features in a projection by the identity")
    apart = key.shape[:-1] != value.shape[:-1] or query.shape[:-2] != key.shape[:-2]
    if apart or len({array.dtype for array in arrays}) > 1:
        raise Unsupported(
            "keys and values are one array, in the dtype of the module and with its batch entries"
        )
    outer, depth = query.shape[:-2], query.shape[-1]
    module = _module(depth, query.dtype)
    module.scale = depth**-0.5 if scale is None else scale
    flat = [array.reshape(math.prod(outer), *array.shape[-2:]) for array in arrays]
    if bias is not None:
        pairs = query.shape[-2], key.shape[-2]
        bias = broadcast(torch, bias, (*outer, *pairs)).reshape(math.prod(outer), *pairs)
    output = module(flat[0], torch.cat(flat[1:], dim=-1), bias)
    return output.reshape(*outer, query.shape[-2], depth)


def _module(depth: int, dtype: torch.dtype) -> Any:
    """Make a module of one head that reads keys and values from the halves of the features of one array."""
    module = Attention(depth, 2 * depth, heads=1, dim_head=depth, processor=AttnProcessor()).to(dtype).eval()
    identity, none = torch.eye(depth, dtype=dtype), torch.zeros(depth, depth, dtype=dtype)
    own = {
        "to_q.weight": identity,
        "to_k.weight": torch.cat([identity, none], dim=1),
        "to_v.weight": torch.cat([none, identity], dim=1),
        "to_out.0.weight": identity,
        "to_out.0.bias": none[0],
    }
    module.load_state_dict(own)
    return module.requires_grad_(requires_grad=False)


def _backend(name: str, function: Any, **said: Any) -> Backend:
    return describe(function, name=name, library="diffusers", array="torch", versions=">=0.42,<0.43", **said)


_OF_PROCESSOR = (
    bias_overflow("diffusers/bias_overflow", "float16"),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "diffusers/not_checked", OF_NAN),
)
