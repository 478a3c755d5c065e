"""Attention in Array API calls alone: one source for every library that has the standard.

Source: the Python array API standard, 2022.12 or later.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from array_api_compat import array_namespace


def projection(
    tokens: Any, weight: Any, *, bias: Any = None, convention: Literal["row", "column"] = "row"
) -> Any:
    """Project tokens by a weight (PROJ-1 to PROJ-4)."""
    dtype = tokens.dtype
    tokens, weight, bias = (
        _working(*pair) for pair in (("tokens", tokens), ("weight", weight), ("bias", bias))
    )
    _check("convention", convention in ("row", "column"), "'row' or 'column'", convention, "PROJ-1")
    columns = convention == "column"
    depth = tokens.shape[-2 if columns else -1]
    fits = weight.ndim == 2 and weight.shape[1 if columns else 0] == depth
    _check("weight", fits, f"depth {depth} as in tokens", weight.shape, "PROJ-4")
    projected = weight @ tokens if columns else tokens @ weight
    if bias is not None:
        features = weight.shape[0 if columns else 1]
        _check("bias", tuple(bias.shape) == (features,), f"shape ({features},)", bias.shape, "PROJ-3")
        projected = projected + (bias[:, None] if columns else bias)
    return array_namespace(tokens).astype(projected, dtype)


def scores(query: Any, key: Any, *, scale: float | None = None, bias: Any = None) -> Any:
    """Scaled dot products, bias added (SCORE-1 to SCORE-4)."""
    return array_namespace(query).astype(_scores(query, key, scale, bias), query.dtype)


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
    return_weights: bool = False,
) -> Any:
    """Scaled dot-product attention, every rule of the chapters `scores`, `masking`, `softmax`."""
    xp = array_namespace(query, key, value)
    _check_axes(query, key, value)
    s = _scores(query, key, scale, bias)  # (*B, H, L, S)
    allowed = xp.ones(s.shape, dtype=xp.bool)
    if mask is not None:
        _check("mask", mask.dtype == xp.bool, "bool", mask.dtype, "MASK-1")
        _check_broadcast("mask", mask.shape, s.shape, "MASK-1")
        allowed = allowed & mask
    if is_causal:
        allowed = allowed & xp.tril(xp.ones(s.shape[-2:], dtype=xp.bool))
    if bias is not None:
        allowed = allowed & (bias != -math.inf)
    weights = _softmax(xp, s, allowed)
    output = xp.astype(weights @ _working("value", value), query.dtype)
    return (output, xp.astype(weights, query.dtype)) if return_weights else output


def self_attention(
    tokens: Any,
    query_weight: Any,
    key_weight: Any,
    value_weight: Any,
    *,
    query_bias: Any = None,
    key_bias: Any = None,
    value_bias: Any = None,
    convention: Literal["row", "column"] = "row",
    scale: float | None = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    """Three projections of the same tokens, then attention (PROJ-5)."""
    xp = array_namespace(tokens)
    turn = xp.matrix_transpose if convention == "column" else lambda array: array
    projected = [
        turn(projection(tokens, weight, bias=bias, convention=convention))
        for weight, bias in (
            (query_weight, query_bias),
            (key_weight, key_bias),
            (value_weight, value_bias),
        )
    ]
    return turn(attention(*projected, scale=scale, mask=mask, is_causal=is_causal))


#: The operations beside attention, as a backend lists them.
COMPANIONS: Mapping[str, Any] = MappingProxyType(
    {"projection": projection, "scores": scores, "self_attention": self_attention}
)


def _scores(query: Any, key: Any, scale: float | None, bias: Any) -> Any:
    """Scores in the working precision."""
    xp = array_namespace(query, key)
    _check_axes(query, key)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scaled = (_working("query", query) @ xp.matrix_transpose(_working("key", key))) * factor  # (*B, H, L, S)
    if bias is None:
        return scaled
    _check_broadcast("bias", bias.shape, scaled.shape, "SCORE-4")
    return scaled + _working("bias", bias)


def _working(name: str, array: Any) -> Any:
    """Half precision is computed in float32 (NUM-5); anything but floating-point numbers is refused."""
    if array is None:
        return None
    dtype = str(array.dtype).rpartition(".")[2]
    known = dtype in ("float16", "bfloat16", "float32", "float64")
    _check(name, known, "floating-point numbers", array.dtype, "NUM-1")
    xp = array_namespace(array)
    return xp.astype(array, xp.float32) if dtype.endswith("float16") else array


def _softmax(xp: Any, s: Any, allowed: Any) -> Any:
    if s.shape[-1] == 0:
        return s  # the standard leaves the maximum of nothing undefined
    masked = xp.where(allowed, s, -math.inf)
    top = xp.max(masked, axis=-1, keepdims=True)
    # A row with nothing allowed: -inf - -inf would be NaN.
    exponentials = xp.exp(masked - xp.where(top == -math.inf, 0.0, top))
    total = xp.sum(exponentials, axis=-1, keepdims=True)
    # Asked of `allowed`, not of the total: a total of NaN must stay NaN.
    empty = ~xp.any(allowed, axis=-1, keepdims=True)
    return exponentials / xp.where(empty, 1.0, total)


def _check_axes(query: Any, key: Any, value: Any = None) -> None:
    _check(
        "query",
        query.ndim >= 2 and query.shape[-1] > 0,
        "two axes or more, depth not 0",
        query.shape,
        "SHAPE-1",
    )
    for name, array in {"key": key, "value": value}.items():
        if array is not None:
            _check(
                name,
                array.ndim >= 2 and array.shape[-1] > 0,
                "two axes or more, depth not 0",
                array.shape,
                "SHAPE-1",
            )
            outer = tuple(query.shape[:-2])
            _check(
                name,
                tuple(array.shape[:-2]) == outer,
                f"batch and head axes {outer} as in query",
                array.shape,
                "SHAPE-6",
            )
    depth = query.shape[-1]
    _check("key", key.shape[-1] == depth, f"depth {depth} as in query", key.shape[-1], "SHAPE-6")
    if value is not None:
        positions = key.shape[-2]
        _check(
            "value",
            value.shape[-2] == positions,
            f"{positions} positions as in key",
            value.shape[-2],
            "SHAPE-6",
        )


def _check_broadcast(name: str, shape: Any, full: Any, rule: str) -> None:
    trailing = list(full)[len(full) - len(shape) :]
    fits = len(shape) <= len(full) and all(
        own in (1, size) for own, size in zip(shape, trailing, strict=False)
    )
    _check(name, fits, f"a shape that broadcasts to {tuple(full)}", tuple(shape), rule)


def _check(name: str, good: Any, expected: str, got: Any, rule: str) -> None:
    if not good:
        raise ValueError(f"{name}: expected {expected}, got {got} [{rule}]")
