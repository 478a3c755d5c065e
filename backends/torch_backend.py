"""PyTorch: the portable source, and ``scaled_dot_product_attention``."""

from typing import Any

import array_api_compat.torch as xp
import torch

from attnspec.backends.backend import DTYPES, Backend, Unsupported
from attnspec.backends.portable import COMPANIONS, attention


def portable_backend() -> Backend:
    """Run the portable source on PyTorch."""
    return Backend("torch-portable", "torch", torch.__version__, xp, attention, DTYPES, COMPANIONS)


def sdpa_backend() -> Backend:
    """Wrap ``torch.nn.functional.scaled_dot_product_attention``, the path left to PyTorch."""
    return Backend(
        "torch-sdpa", "torch", torch.__version__, xp, _sdpa, DTYPES, dialect={"SHAPE-6": "broadcast"}
    )


def _sdpa(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    if is_causal and not (mask is None and bias is None):
        raise Unsupported("scaled_dot_product_attention takes attn_mask or is_causal, not both")
    if mask is not None and bias is not None:  # one argument for both: a mask is a bias of -inf (MASK-2)
        attn_mask = torch.where(mask, bias, -torch.inf)
    else:
        attn_mask = bias if mask is None else mask
    if attn_mask is not None and attn_mask.ndim < 2:
        # Documented as broadcastable to (N, ..., L, S), but one axis raises "Dimension out of range".
        attn_mask = attn_mask[None, :]
    # Asked for where it is needed alone: not every path of PyTorch has it.
    grouped = query.ndim > 2 and query.shape[-3] != key.shape[-3]
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )
