"""PyTorch: dropout of ``scaled_dot_product_attention``, whose generator is set to a seed."""

import operator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnspec.backends.adapters.torch.arguments import to_attn_mask
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported

_SDPA = torch.nn.functional.scaled_dot_product_attention


def seeded_dropout_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    dropout_p: float,
    seed: int,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    """Set the generator to the seed, and attend by the path of separate operations.

    The state of the generator is restored afterwards. PyTorch has no argument for a seed, and
    ``manual_seed`` drops the fraction of one, so only integers are passed on.
    """
    attn_mask = to_attn_mask(mask, bias, 0)
    if is_causal and attn_mask is not None:
        raise Unsupported(
            "scaled_dot_product_attention is documented to take attn_mask or is_causal, not both"
        )
    with torch.random.fork_rng(devices=[]), sdpa_kernel(SDPBackend.MATH):
        torch.manual_seed(operator.index(seed))
        return _SDPA(
            query,
            key,
            value,
            attn_mask=attn_mask,
            dropout_p=dropout_p,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=bool(min(query.ndim, key.ndim) > 2 and query.shape[-3] != key.shape[-3]),
        )


OF_DROPOUT = (
    Deviation(
        ("DROP-12",),
        "a probability below 0 and one of NaN are accepted, and drop nothing",
        "torch/dropout_p_not_checked",
        when=lambda arguments: not arguments.get("dropout_p", 0) >= 0,
    ),
)
