"""PyTorch: ``scaled_dot_product_attention``, by the path that it takes itself and by each that a CPU has."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import array_api_compat.torch as xp
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnspec.backends.backend import DTYPES, Backend, Deviation
from attnspec.backends.errors import Unsupported

_SDPA = torch.nn.functional.scaled_dot_product_attention


def default_backend() -> Backend:
    """Leave the path to PyTorch."""
    deviations = (*_OF_ALL, *_OF_FLASH, *_OF_MATH)
    return _backend("torch-sdpa", _default, {"SHAPE-6": "broadcast"}, deviations)


def math_backend() -> Backend:
    """Force the path of separate operations."""
    return _backend("torch-math", _math, {"SHAPE-6": "broadcast"}, (*_OF_ALL, *_OF_MATH))


def flash_backend() -> Backend:
    """Force the fused kernel of the CPU, on the inputs of four axes that it is made for."""
    return _backend("torch-flash", _flash, {}, (*_OF_ALL, *_OF_FLASH))


def _backend(
    name: str,
    function: Callable[..., Any],
    dialect: Mapping[str, str],
    deviations: tuple[Deviation, ...],
) -> Backend:
    return Backend(
        name, "torch", torch.__version__, xp, function, DTYPES, dialect=dialect, deviations=deviations
    )


def _default(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    return _asked(query, key, value, to_attn_mask(mask, bias, 2), scale=scale, is_causal=is_causal)


def _math(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    with sdpa_kernel(SDPBackend.MATH):
        return _asked(query, key, value, to_attn_mask(mask, bias, 0), scale=scale, is_causal=is_causal)


def _asked(query: Any, key: Any, value: Any, attn_mask: Any, *, scale: float | None, is_causal: bool) -> Any:
    if is_causal and attn_mask is not None:
        raise Unsupported(
            "scaled_dot_product_attention is documented to take attn_mask or is_causal, not both"
        )
    return _SDPA(
        query,
        key,
        value,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=_grouped(query, key),
    )


def _flash(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    if query.shape[-1] != value.shape[-1] and 0 not in (query.shape[-1], value.shape[-1]):
        raise Unsupported("the fused kernel of the CPU takes values of the keys' depth alone")
    if any(array.numel() and array.stride(-1) != 1 for array in (query, key, value)):
        raise Unsupported("the fused kernel of the CPU takes features that lie side by side")
    attn_mask = to_attn_mask(mask, bias, 2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        output = _SDPA(
            *(_to_four_axes(array) for array in (query, key, value)),
            attn_mask=None if attn_mask is None else mask_of_four_axes(attn_mask, query.shape[:-2]),
            is_causal=is_causal,
            scale=scale,
            enable_gqa=_grouped(query, key),
        )
    return output.reshape(query.shape[:-1] + output.shape[-1:])


def _grouped(query: Any, key: Any) -> bool:
    """Ask for shared heads where they are needed alone: not every path of PyTorch has them."""
    return bool(min(query.ndim, key.ndim) > 2 and query.shape[-3] != key.shape[-3])


def to_attn_mask(mask: Any, bias: Any, axes: int) -> Any:
    """Give mask and bias as the one argument that PyTorch has for them, of so many axes at least.

    Parameters
    ----------
    mask, bias : tensor or None
    axes : int
        One axis is documented as broadcastable, but raises "Dimension out of range" where the fused
        kernel is looked at.
    """
    # PyTorch tells by the dtype which of the two is meant: numbers as a mask would be a bias.
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask: expected booleans, got {mask.dtype}: attn_mask takes numbers as a bias")
    if bias is not None and not bias.dtype.is_floating_point:
        raise TypeError(f"bias: expected floating-point numbers, got {bias.dtype}")
    if mask is not None and bias is not None:  # a mask is a bias of -inf (MASK-2)
        attn_mask = torch.where(mask, bias, -torch.inf)
    else:
        attn_mask = bias if mask is None else mask
    if attn_mask is not None and attn_mask.ndim < axes:
        attn_mask = attn_mask.reshape((1,) * (axes - attn_mask.ndim) + tuple(attn_mask.shape))
    return attn_mask


def _to_four_axes(array: Any) -> Any:
    """From ``(*B, H, L, D)`` to ``(B, H, L, D)``, with one batch axis."""
    heads = array.shape[-3] if array.ndim > 2 else 1
    return array.reshape((math.prod(array.shape[:-3]), heads, *array.shape[-2:]))


def mask_of_four_axes(attn_mask: Any, outer: tuple[int, ...]) -> Any:
    """Give a mask as ``(B, H, L, S)``, or with ones there, beside inputs of outer axes ``(*B, H)``."""
    if len(outer) < 3:
        return attn_mask.reshape((1,) * (4 - attn_mask.ndim) + tuple(attn_mask.shape))
    full = torch.broadcast_to(attn_mask, (*outer, *attn_mask.shape[-2:]))
    return full.reshape((math.prod(outer[:-1]), outer[-1], *attn_mask.shape[-2:]))


def _has_nan_query(arguments: Mapping[str, Any]) -> bool:
    return bool(np.isnan(arguments["query"]).any())


def _has_no_mask(arguments: Mapping[str, Any]) -> bool:
    return "mask" not in arguments and "bias" not in arguments


#: Whatever the path.
_OF_ALL = (
    Deviation(
        ("ERR-6",), "a scale of NaN or infinity is taken, and gives NaN or 0", "torch/scale_not_finite"
    ),
    Deviation(("ERR-5",), "a depth of 0 is taken", "torch/depth_zero"),
    Deviation(
        ("SHAPE-6",),
        "values of no positions fit every key, and give 0",
        "torch/value_of_no_positions",
        when=lambda arguments: bool(arguments["value"].shape[-2] == 0),
    ),
    Deviation(
        ("MASK-12",),
        "a mask is added, and the score of a finite key may be infinite: the row is NaN",
        "torch/masked_overflow",
    ),
    Deviation(
        ("MASK-6",),
        "a mask is added, so that a query of NaN that may attend to nothing gives NaN",
        "torch/masked_nan_query",
        when=lambda arguments: _has_nan_query(arguments) and not _has_no_mask(arguments),
    ),
)
_OF_MATH = (
    Deviation(
        ("HEAD-2",),
        "other heads of value than of key are repeated",
        "torch/heads_of_value",
        when=lambda arguments: arguments["key"].shape[-3] != arguments["value"].shape[-3],
    ),
)
_OF_FLASH = (
    Deviation(
        ("SHAPE-6",),
        "the positions are those of the values: of fewer keys, memory past their end is read",
        "torch/flash_value_length",
        when=lambda arguments: arguments["key"].shape[-2] != arguments["value"].shape[-2],
    ),
    Deviation(
        ("SCORE-3", "MASK-3", "MASK-4"),
        "causal with a scale of 0 or below gives NaN: the mask is multiplied by the scale",
        "torch/flash_causal_scale",
        when=lambda arguments: bool(arguments.get("is_causal") and arguments.get("scale", 1) <= 0),
    ),
    Deviation(
        ("NUM-11",),
        "without a mask, a query of NaN gives 0",
        "torch/flash_nan_query",
        when=lambda arguments: _has_nan_query(arguments) and _has_no_mask(arguments),
    ),
)
