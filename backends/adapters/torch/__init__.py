"""The attention functions of PyTorch, and what their adapters share."""

import math
from typing import Any

import torch

from attnspec.backends.adapters.broadcast import broadcast
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import Bound
from attnspec.dtypes import SHORT

#: The releases on which the declarations were observed.
VERSIONS = ">=2.13,<2.14"

#: The fused kernel of the CPU, which several functions use.
SUMS_OF_GRADIENTS = Deviation(
    ("NUM-5", "GRAD-19"),
    "the gradients of keys and values are added up in half precision, 32 queries at a time",
    "torch/flash_gradient_sums",
    Bound(3),
    dtypes=SHORT,
    outputs=("d_key", "d_value"),
    when=lambda arguments: bool(arguments["query"].shape[-2] > 32),
)


def to_four_axes(array: Any) -> Any:
    """Convert ``(*B, H, L, D)`` to ``(B, H, L, D)``, with one batch axis."""
    heads = array.shape[-3] if array.ndim > 2 else 1
    return array.reshape((math.prod(array.shape[:-3]), heads, *array.shape[-2:]))


def to_attn_mask(mask: Any, bias: Any, axes: int) -> Any:
    """Combine mask and bias into the single argument of PyTorch, with a minimum number of axes."""
    # PyTorch distinguishes a mask from a bias by the dtype, so it decides about other types itself.
    if mask is not None and mask.dtype.is_floating_point:
        raise Unsupported(f"mask: expected booleans, got {mask.dtype}: attn_mask takes numbers as a bias")
    if bias is not None and bias.dtype == torch.bool:
        raise Unsupported(
            "bias: expected floating-point numbers, got booleans, which attn_mask takes as a mask"
        )
    if mask is not None and mask.dtype != torch.bool and bias is not None:
        raise Unsupported(
            f"mask: expected booleans beside a bias, got {mask.dtype}: attn_mask is one of them"
        )
    if mask is not None and bias is not None:  # a mask is a bias of -inf (MASK-2)
        attn_mask = torch.where(mask, bias, -torch.inf)
    else:
        attn_mask = bias if mask is None else mask
    if attn_mask is not None and attn_mask.ndim < axes:
        attn_mask = attn_mask.reshape((1,) * (axes - attn_mask.ndim) + tuple(attn_mask.shape))
    return attn_mask


def mask_of_four_axes(attn_mask: Any, outer: tuple[int, ...]) -> Any:
    """Convert a mask to four axes, each of its full size or 1, for inputs of outer axes ``(*B, H)``."""
    if len(outer) < 3:
        return attn_mask.reshape((1,) * (4 - attn_mask.ndim) + tuple(attn_mask.shape))
    full = broadcast(torch, attn_mask, (*outer, *attn_mask.shape[-2:]))
    return full.reshape((math.prod(outer[:-1]), outer[-1], *attn_mask.shape[-2:]))
