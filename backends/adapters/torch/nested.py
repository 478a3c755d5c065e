"""PyTorch: ``scaled_dot_product_attention`` of nested tensors, which hold sequences of unequal lengths.

``torch.nn.attention.varlen.varlen_attn`` has no kernel for the CPU.
"""

from typing import Any

import torch

from attnspec.backends.adapters.conditions import has_queries_without_keys
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported

OF_NESTED = (
    Deviation(
        ("PACK-2", "PACK-7"),
        "sequences of nested tensors that have queries and no keys raise, but for some places among others",
        "torch/nested_no_keys",
        when=has_queries_without_keys,
    ),
)


def packed_attention(
    query: Any, key: Any, value: Any, *, query_starts: Any, key_starts: Any, scale: float | None = None
) -> Any:
    """Attend within the sequences of nested tensors in the jagged layout, which cover their whole row."""
    if query.shape[-3] != key.shape[-3]:
        raise Unsupported("nested tensors do not share key heads on the CPU")
    for rows, starts in ((query, query_starts), (key, key_starts)):
        if int(starts[-1]) != rows.shape[-2] or len(starts) == 1:
            raise Unsupported("a nested tensor has sequences, which cover its whole row")
    nested = (_nested(query, query_starts), _nested(key, key_starts), _nested(value, key_starts))
    output = torch.nn.functional.scaled_dot_product_attention(*nested, scale=scale)
    return output.transpose(1, 2).values().transpose(0, 1)


def _nested(rows: Any, starts: Any) -> Any:
    """Nest an array of heads, positions and features, to sequences, heads, positions and features."""
    jagged = torch.nested.nested_tensor_from_jagged(rows.transpose(0, 1).contiguous(), offsets=starts)
    return jagged.transpose(1, 2)
