"""Attention and its companions in Array API calls alone: one source for every library that has the standard.

Source: the Python array API standard, 2024.12 or later. One file for each chapter; this one lists them.
It looks at numbers where a rule needs it, so it runs eagerly but for parts that do not (`portable_parts`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from attnspec.backends.portable.attention import attention
from attnspec.backends.portable.caching import append_cache, gather_pages, merge_partials
from attnspec.backends.portable.heads import merge_heads, multi_head_attention, split_heads
from attnspec.backends.portable.positions import alibi_bias, rotary
from attnspec.backends.portable.projection import projection, self_attention
from attnspec.backends.portable.scores import scores

__all__ = ["COMPANIONS", "attention"]

#: The operations beside attention, as a backend lists them.
COMPANIONS: Mapping[str, Any] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            projection,
            scores,
            self_attention,
            split_heads,
            merge_heads,
            multi_head_attention,
            append_cache,
            gather_pages,
            merge_partials,
            rotary,
            alibi_bias,
        )
    }
)
