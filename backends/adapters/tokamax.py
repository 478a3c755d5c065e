"""Tokamax, on JAX: the implementations of ``dot_product_attention`` that XLA compiles for the CPU."""

from typing import Any

import jax.numpy as jnp
import tokamax

from attnspec.backends.adapters.conditions import (
    Arguments,
    bias_overflow,
    empty_row_gradient,
    has_bias_beyond_differences,
    has_no_keys,
    has_several_dtypes,
)
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.library import load_library
from attnspec.backends.user.function import describe


def xla_backend() -> Backend:
    """Run the implementation of separate operations."""
    return _backend("tokamax-xla", "xla")


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
        dtypes=["bfloat16", "float32", "float64"],  # float16 is refused on a CPU
        layout="BSHD",
        axes=4,
        mask_axes=4,
        versions=">=0.0.12,<0.0.13",
        dialect={
            "SCORE-5": "after-bias",
            "MASK-2": "added",
            "MASK-6": "uniform",
            "GRAD-10": "uniform",
        },
        deviations=_DEVIATIONS,
    )


def _of_each(lengths: Any, outer: tuple[int, ...]) -> Any:
    """Give each batch entry the length, if there is one for all."""
    return jnp.full(outer, lengths) if isinstance(lengths, int) else lengths


def _has_window_of_other_lengths(arguments: Arguments) -> bool:
    return "window" in arguments and bool(arguments["query"].shape[-2] != arguments["key"].shape[-2])


def _has_product_of_one_row(arguments: Arguments) -> bool:
    """Whether two of the three sizes of a product of matrices are 1."""
    (queries, depth), (keys, value_depth) = arguments["query"].shape[-2:], arguments["value"].shape[-2:]
    products = ((queries, depth, keys), (queries, keys, value_depth))
    return any(sizes.count(1) > 1 for sizes in products)


_DEVIATIONS = (
    Deviation(
        ("SOFT-3", "SHAPE-2", "NUM-3", "NUM-5", "MASK-4"),
        "one query and one key, and other products with two sizes of 1, have no algorithm on a CPU",
        "tokamax/one_query_one_key",
        dtypes=("bfloat16", "float64"),
        when=_has_product_of_one_row,
    ),
    Deviation(
        (
            *("MASK-8", "MASK-4", "MASK-6", "NUM-4", "ERR-3", "ERR-13"),
            *("GRAD-1", "GRAD-4", "GRAD-5", "GRAD-9", "GRAD-19"),
        ),
        "a window needs as many queries as keys",
        "tokamax/window_of_queries",
        when=_has_window_of_other_lengths,
    ),
    Deviation(
        (
            *("MASK-10", "MASK-4", "MASK-6", "NUM-5", "ERR-3", "ERR-13"),
            *("GRAD-1", "GRAD-4", "GRAD-5", "GRAD-9", "GRAD-10", "GRAD-19"),
        ),
        "a query past the length gives the mean of the values",
        "tokamax/query_lengths",
        when=lambda arguments: "query_lengths" in arguments,
    ),
    Deviation(
        ("MASK-6", "SHAPE-7", "GRAD-10"),
        "a call without keys fails",
        "tokamax/no_keys",
        when=has_no_keys,
    ),
    Deviation(
        ("MASK-5",),
        "disallowed scores are replaced by the lowest number, and a bias of allowed keys may be as low",
        "tokamax/masked_lowest",
        when=lambda arguments: "mask" in arguments and has_bias_beyond_differences(arguments, 1e38),
    ),
    bias_overflow("tokamax/bias_overflow"),
    empty_row_gradient("tokamax/empty_row_gradient_bias"),
    Deviation(
        ("ERR-1",),
        "queries, keys and values of different dtypes are computed in the narrowest",
        "tokamax/mixed_dtypes",
        when=has_several_dtypes,
    ),
    Deviation(("ERR-4",), "a mask of numbers is accepted", "tokamax/not_checked"),
    Deviation(("ERR-5",), "values of depth 0 are accepted", "tokamax/not_checked"),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "tokamax/not_checked"),
    Deviation(("ERR-8",), "lengths that are no integers are accepted", "tokamax/not_checked"),
    Deviation(("SCORE-6",), "any softcap is accepted", "tokamax/not_checked"),
)
