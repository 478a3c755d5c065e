"""Tokamax, on JAX: the implementations of ``dot_product_attention`` that XLA compiles for the CPU."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import tokamax
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_NO_DEPTH,
    Arguments,
    as_booleans,
    has_bias_beyond_differences,
    has_no_keys,
    has_several_dtypes,
    pairs_of,
    scores_of,
    with_number,
)
from attnspec.backends.adapters.deviations import bias_overflow, empty_row_gradient
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.library import load_library
from attnspec.backends.outcome import Bound, InDtype, OtherCall, Raises, Special
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
        lengths = [_each_length(given, outer) for given in (query_lengths, key_lengths)]
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


def _each_length(lengths: Any, outer: tuple[int, ...]) -> Any:
    """Give each batch entry the length, if there is one for all."""
    return jnp.full(outer, lengths) if isinstance(lengths, int) else lengths


def _has_window_of_other_lengths(arguments: Arguments) -> bool:
    return "window" in arguments and bool(arguments["query"].shape[-2] != arguments["key"].shape[-2])


def _has_product_of_one_row(arguments: Arguments) -> bool:
    """Whether two of the three sizes of a product of matrices are 1."""
    (queries, depth), (keys, value_depth) = arguments["query"].shape[-2:], arguments["value"].shape[-2:]
    products = ((queries, depth, keys), (queries, keys, value_depth))
    return any(sizes.count(1) > 1 for sizes in products)


def _with_all_for_past_queries(arguments: Arguments) -> Arguments:
    """Let a query past its length attend to all keys with equal weights."""
    less = {name: x for name, x in arguments.items() if name != "query_lengths"}
    lengths = np.asarray(arguments["query_lengths"])
    past = np.arange(arguments["query"].shape[-2]) >= lengths.reshape(
        (*lengths.shape, *(1,) * (lengths.ndim + 1))
    )
    rows = past[..., None]  # (B, 1, L, 1), or (1, L, 1) for one length
    scale = arguments.get("scale", arguments["query"].shape[-1] ** -0.5)
    names = OPERATIONS["attention"].names("masks")
    allowed = pairs_of(less)
    others = {name: x for name, x in less.items() if name not in names}
    bias = np.where(rows, -scale * scores_of(arguments), arguments.get("bias", 0.0))
    # A query that is NaN counts as little as any other one there.
    query = np.where(rows & np.isnan(arguments["query"]), 0, arguments["query"]).astype(
        arguments["query"].dtype
    )
    bias = np.where(rows & np.isnan(bias), 0, bias)
    return {**others, "query": query, "bias": bias, "mask": np.where(rows, True, allowed)}


def _with_compared_lengths(arguments: Arguments) -> Arguments:
    """Compare positions with lengths that are any numbers."""
    names = ("query_lengths", "key_lengths")
    lengths = {name: np.asarray(arguments[name]) for name in names if name in arguments}
    whole = {name: np.ceil(x).astype(np.int64) for name, x in lengths.items()}
    batch = arguments["query"].shape[:-3]
    return {
        **arguments,
        **{name: np.broadcast_to(x, batch) if batch else int(x) for name, x in whole.items()},
    }


def _with_any_softcap(arguments: Arguments) -> Arguments:
    """Make all scores 0 if the softcap is."""
    if arguments["softcap"]:
        return arguments
    return {**{name: x for name, x in arguments.items() if name != "softcap"}, "scale": 0.0}


def _softcap_elements(arguments: Arguments) -> dict[str, NDArray[np.bool_]]:
    """Mean every element if the softcap is not finite."""
    return {"output": np.asarray(not np.isfinite(arguments["softcap"]))}


def _in_narrowest(arguments: Arguments) -> Arguments:
    names = ("query", "key", "value")
    to = min((arguments[name].dtype for name in names), key=lambda dtype: dtype.itemsize)
    return {**arguments, **{name: arguments[name].astype(to) for name in names}}


_DEVIATIONS = (
    Deviation(("SOFT-3", "SHAPE-2", "NUM-3", "NUM-5", "MASK-4"),
        "one query and one key, and other products with two sizes of 1, have no algorithm on a CPU",
        "tokamax/one_query_one_key", Raises("JaxRuntimeError", "Algorithm not supported"),
        dtypes=("bfloat16", "float64"), when=_has_product_of_one_row),
    Deviation(
        (
            *("MASK-8", "MASK-4", "MASK-6", "NUM-4", "ERR-3", "ERR-13"),
            *("GRAD-1", "GRAD-4", "GRAD-5", "GRAD-9", "GRAD-19"),
        ),
        "a window needs as many queries as keys",
        "tokamax/window_of_queries",
        Raises("TypeError or TypeCheckError or NotImplementedError or ValueError", ""),
        when=_has_window_of_other_lengths,
    ),
    Deviation(
        (
            *("MASK-10", "MASK-4", "MASK-6", "NUM-5", "ERR-3", "ERR-13"),
            *("GRAD-1", "GRAD-4", "GRAD-5", "GRAD-9", "GRAD-10", "GRAD-19"),
        ),
        "a query past the length gives the mean of the values",
        "tokamax/query_lengths",
        OtherCall(_with_all_for_past_queries),
        when=lambda arguments: "query_lengths" in arguments,
    ),
    Deviation(("MASK-6", "SHAPE-7", "GRAD-10"), "a call without keys fails", "tokamax/no_keys",
        Raises("ValueError or ZeroDivisionError", ""), when=has_no_keys),
    Deviation(("MASK-5",),
        "disallowed scores are replaced by the lowest number, and a bias of allowed keys may be as low",
        "tokamax/masked_lowest", with_number(),
        when=lambda arguments: "mask" in arguments and has_bias_beyond_differences(arguments, 1e38)),
    bias_overflow("tokamax/bias_overflow"),
    empty_row_gradient("tokamax/empty_row_gradient_bias"),
    Deviation(
        ("ERR-1",),
        "queries, keys and values of different dtypes are computed in the narrowest",
        "tokamax/mixed_dtypes",
        # A query of a wider dtype is not rounded itself, which moves a score by up to its error.
        (InDtype("query"), OtherCall(_in_narrowest), Bound(2.0)),
        when=has_several_dtypes,
    ),
    Deviation(("ERR-4",), "a mask of numbers is accepted", "tokamax/not_checked", as_booleans("mask")),
    Deviation(("ERR-5",), "values of depth 0 are accepted", "tokamax/not_checked", OF_NO_DEPTH),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "tokamax/not_checked", OF_NAN),
    Deviation(("ERR-8",), "lengths that are no integers are accepted", "tokamax/not_checked",
        OtherCall(_with_compared_lengths)),
    Deviation(("SCORE-6",), "any softcap is accepted", "tokamax/not_checked",
        (Special(_softcap_elements), OtherCall(_with_any_softcap))),
)  # fmt: skip
