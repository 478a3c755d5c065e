"""Tokamax, on JAX: the implementations of ``dot_product_attention`` that XLA compiles for the CPU."""

from typing import Any

import jax.numpy as jnp
import tokamax

from attnspec.backends.backend import Backend
from attnspec.backends.library import load_library
from attnspec.backends.user.described import describe


def xla_backend() -> Backend:
    """Run the implementation of separate operations."""
    return _backend("tokamax-xla", "xla")


def chunked_backend() -> Backend:
    """Run the implementation with an online softmax over 1024 keys at a time."""
    return _backend("tokamax-chunked", "xla_chunked")


def _backend(name: str, implementation: str) -> Backend:
    load_library("jax").prepare_eager()

    def attention(
        query: Any,
        key: Any,
        value: Any,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        bias: Any = None,
        mask: Any = None,
        is_causal: bool = False,
        window: Any = None,
        query_lengths: Any = None,
        key_lengths: Any = None,
    ) -> Any:
        outer, farthest = query.shape[:-3], query.shape[-3] + key.shape[-3]
        if window is not None:
            window = tuple(farthest if side is None else side for side in window)
        lengths = [_of_each(given, outer) for given in (query_lengths, key_lengths)]
        return tokamax.dot_product_attention(
            query,
            key,
            value,
            bias=bias,
            mask=mask,
            scale=scale,
            is_causal=is_causal,
            query_seq_lengths=lengths[0],
            key_value_seq_lengths=lengths[1],
            local_window_size=window,
            logits_soft_cap=softcap,
            implementation=implementation,
        )

    return describe(
        attention,
        name=name,
        array="jax",
        library="tokamax",
        layout="BSHD",
        axes=4,
        versions=">=0.0.12,<0.0.13",
        dialect={
            "SCORE-5": "after-bias",
            "MASK-2": "added",
            "MASK-6": "uniform",
            "GRAD-10": "uniform",
        },
    )


def _of_each(lengths: Any, outer: tuple[int, ...]) -> Any:
    """Give each batch entry the length, if there is one for all."""
    return jnp.full(outer, lengths) if isinstance(lengths, int) else lengths
