"""JAX: the portable source, and ``jax.nn.dot_product_attention``.

Loading it switches JAX to 64-bit numbers for the whole process: without that,
JAX quietly makes every float64 a float32, and nothing could be said of float64.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp

from attnspec.backends.backend import DTYPES, Backend, Unsupported
from attnspec.backends.portable import COMPANIONS, attention

jax.config.update("jax_enable_x64", True)


def portable_backend() -> Backend:
    """Run the portable source on JAX."""
    return Backend("jax-portable", "jax", jax.__version__, jnp, attention, DTYPES, COMPANIONS)


def nn_backend() -> Backend:
    """Wrap ``jax.nn.dot_product_attention``, eagerly, the implementation left to JAX."""
    dialect = {"MASK-2": "added", "MASK-6": "uniform", "NUM-2": "float32"}
    return Backend("jax-nn", "jax", jax.__version__, jnp, _dot_product_attention, DTYPES, dialect=dialect)


def _dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    if key.shape[-1] != value.shape[-1]:
        raise Unsupported("dot_product_attention takes values of the keys' depth alone")
    output = jax.nn.dot_product_attention(
        _to_btnh(query),
        _to_btnh(key),
        _to_btnh(value),
        bias=None if bias is None else _to_four_axes(bias, query.shape[:-2]),
        mask=None if mask is None else _to_four_axes(mask, query.shape[:-2]),
        scale=scale,
        is_causal=is_causal,
    )  # (B, L, H, D)
    return jnp.swapaxes(output, 1, 2).reshape(query.shape[:-1] + value.shape[-1:])


def _to_btnh(array: Any) -> Any:
    """From ``(*B, H, L, D)`` to JAX's ``(B, L, H, D)``, with one batch axis."""
    heads = array.shape[-3] if array.ndim > 2 else 1
    return jnp.swapaxes(array.reshape((math.prod(array.shape[:-3]), heads, *array.shape[-2:])), 1, 2)


def _to_four_axes(array: Any, outer: tuple[int, ...]) -> Any:
    """Give a mask or bias as ``(B, H, L, S)`` or with ones there, which is how JAX broadcasts it."""
    if array.ndim < 2:
        array = array.reshape((1,) * (2 - array.ndim) + array.shape)
    if len(outer) < 2:
        return array.reshape((1,) * (4 - array.ndim) + array.shape)
    full = jnp.broadcast_to(array, (*outer, *array.shape[-2:]))
    return full.reshape((math.prod(outer[:-1]), outer[-1], *array.shape[-2:]))
