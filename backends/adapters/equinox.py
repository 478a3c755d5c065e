"""Equinox, on JAX: ``nn.MultiheadAttention`` with given weights.

For attention, all its projections are the identity. A product with the identity is exact.
"""

import math
from functools import cache
from typing import Any

import equinox
import jax
import jax.numpy as jnp

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import OF_NO_DEPTH, OF_OTHER_TYPES, Arguments, as_booleans
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.outcome import Raises
from attnspec.backends.user.function import describe


def attention_backend() -> Backend:
    """Run the module with one head, for each head of a call."""
    load_library("jax").prepare_eager()
    return describe(
        attention,
        name="equinox-mha",
        library="equinox",
        array="jax",
        heads="equal",
        dialect={"MASK-6": "uniform", "GRAD-10": "uniform", "NUM-5": "storage"},
        deviations=_DEVIATIONS,
        versions=">=0.13.8,<0.14",
    )


def attention(query: Any, key: Any, value: Any, *, mask: Any = None) -> Any:
    """Map the module over batch entries and heads. A mask needs its whole shape."""
    arrays = (query, key, value)
    if not all(bool(jnp.isfinite(array).all()) for array in arrays):
        raise Unsupported("NaN and infinity would spread over all features in a projection by the identity")
    if len({array.shape[:-2] for array in arrays}) > 1 or len({array.dtype for array in arrays}) > 1:
        raise Unsupported("the module is mapped over the batch entries and heads of arrays of one dtype")
    require_axes(2, *arrays)
    outer, pairs = query.shape[:-2], (query.shape[-2], key.shape[-2])
    module = _module(query.shape[-1], value.shape[-1], query.dtype)
    flat = [array.reshape(math.prod(outer), *array.shape[-2:]) for array in arrays]
    if mask is None:
        output = jax.vmap(module)(*flat)
    else:
        masks = broadcast(jnp, mask, (*outer, *pairs)).reshape(math.prod(outer), *pairs)
        output = jax.vmap(module)(*flat, masks)
    return output.reshape(*outer, query.shape[-2], value.shape[-1])


@cache
def _module(depth: int, of_value: int, dtype: Any) -> Any:
    """Make a module of one head whose projections are the identity."""
    widths = {"key_size": depth, "value_size": of_value, "output_size": of_value}
    made = equinox.nn.MultiheadAttention(
        1, depth, qk_size=depth, vo_size=of_value, dtype=dtype, key=jax.random.key(0), **widths
    )
    projections = ("query_proj", "key_proj", "value_proj", "output_proj")
    return equinox.tree_at(
        lambda module: [getattr(module, name).weight for name in projections],
        made,
        [jnp.eye(len(getattr(made, name).weight), dtype=dtype) for name in projections],
    )


def _has_no_rows(arguments: Arguments) -> bool:
    return 0 in (arguments["query"].shape[-2], arguments["key"].shape[-2])


_DEVIATIONS = (
    Deviation(("SHAPE-7", "MASK-6"), "a call without queries or without keys fails", "equinox/empty_axes",
        Raises("ZeroDivisionError", ""), when=_has_no_rows),
    Deviation(("ERR-2",), "complex numbers are accepted", "equinox/not_checked", OF_OTHER_TYPES),
    Deviation(("ERR-4",), "a mask of numbers is accepted", "equinox/not_checked", as_booleans("mask")),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "equinox/not_checked", OF_NO_DEPTH),
)  # fmt: skip
