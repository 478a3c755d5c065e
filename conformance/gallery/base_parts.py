"""More operations beside attention: parts merged by their lse, rotary embedding, ALiBi."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.base import Array, Steps
from attnspec.conformance.gallery.base_checks import Given, is_number, need
from attnspec.conformance.gallery.base_masking import of_batch


def merge_partials(own: Steps, outputs: Array, lses: Array, *, return_lse: bool = False) -> Any:
    """Weigh each part by its share of the denominator (CACHE-6)."""
    need("outputs", outputs.ndim >= 3, "three axes or more", outputs.shape)
    need("lses", lses.shape == outputs.shape[:-1], f"shape {outputs.shape[:-1]}", lses.shape)
    with np.errstate(all="ignore"):
        output, lse = own.merged(own.wide(outputs), own.wide(lses))
    output = own.narrow(output, outputs.dtype)
    return (output, lse) if return_lse else output


def merged(outputs: Array, lses: Array) -> tuple[Array, Array]:
    """Of parts with nothing to attend to nothing is used (CACHE-7)."""
    top = lses.max(axis=0, initial=-np.inf)
    top = np.where(top == -np.inf, 0, top)
    shares = np.exp(lses - top)  # (N, *B, H, L)
    total = shares.sum(axis=0)
    kept = np.where(lses[..., None] == -np.inf, 0, outputs)
    found = (shares[..., None] * kept).sum(axis=0) / np.where(total == 0, 1, total)[..., None]
    return found, top + np.log(total)


def rotary(
    own: Steps,
    features: Array,
    *,
    offset: Any = 0,
    base: float = 10000.0,
    interleaved: bool = False,
    rotary_depth: int | None = None,
) -> Array:
    """Turn pairs of features by angles that grow with the position (POS-1)."""
    depth = own.check_rotary(features, offset, base, rotary_depth)
    angle = own.angles(features, offset, base, depth)  # (*B, 1, N, R / 2)
    first, second = own.pairs(depth, interleaved=interleaved)
    wide = own.wide(features)
    a, b = wide[..., first], wide[..., second]
    turned = wide.copy()  # features past the rotary depth stay (POS-4)
    cosine, sine = np.cos(angle).astype(wide.dtype), np.sin(angle).astype(wide.dtype)
    turned[..., first], turned[..., second] = own.turned(a, b, cosine, sine)
    result: Array = own.narrow(turned, features.dtype)
    return result


def check_rotary(features: Array, offset: Any, base: float, rotary_depth: int | None) -> int:
    """Ask for an even rotary depth from 2 to D (POS-6)."""
    need("features", features.ndim >= 2, "two axes or more", features.shape)
    need("base", is_number(base) and base > 0, "a positive number", base)
    starts = np.asarray(offset)
    good = starts.dtype.kind in "iu" and starts.shape in ((), features.shape[:-3])
    need("offset", good, "an integer or one for each batch entry", offset)
    depth, most = features.shape[-1] if rotary_depth is None else rotary_depth, features.shape[-1]
    name = "features" if rotary_depth is None else "rotary_depth"
    good = isinstance(depth, int) and depth % 2 == 0 and 2 <= depth <= most
    need(name, good, f"an even rotary_depth from 2 to {most}", depth)
    return depth


def angles(features: Array, offset: Any, base: float, depth: int) -> Array:
    """Position times frequency, ``(*B, 1, N, R / 2)`` (POS-1, POS-5)."""
    starts = of_batch(offset) if features.ndim > 2 else np.asarray(offset)
    position = np.arange(features.shape[-2])[:, None] + starts
    return position * float(base) ** (-2 * np.arange(depth // 2) / depth)


def pairs(depth: int, *, interleaved: bool) -> tuple[slice, slice]:
    """Neighbours, or features half the rotary depth apart (POS-2, POS-3)."""
    if interleaved:
        return slice(0, depth, 2), slice(1, depth, 2)
    return slice(0, depth // 2), slice(depth // 2, depth)


def turned(a: Array, b: Array, cosine: Array, sine: Array) -> tuple[Array, Array]:
    """Turn a pair against the clock (POS-1)."""
    return a * cosine - b * sine, a * sine + b * cosine


def alibi_bias(own: Steps, query: Array, key: Array, *, query_offset: Any = 0) -> Array:
    """Take away in proportion to the distance, in the query's dtype (POS-8)."""
    given: Given = {"query": query, "key": key, "value": key, "query_offset": query_offset}
    given |= dict.fromkeys(("bias", "sinks", "query_lengths", "key_lengths"))
    for check in ("check_dtypes", "check_axes", "check_heads", "check_integers"):
        given = getattr(own, check)(given)
    heads = query.shape[-3] if query.ndim > 2 else 1
    p = np.arange(query.shape[-2])[:, None] + of_batch(query_offset)
    slopes = np.array(own.slopes(heads))[:, None, None]
    bias = own.distant(slopes, p, np.arange(key.shape[-2]))
    full = (*query.shape[:-1], key.shape[-2])
    bias = np.broadcast_to(bias[0] if query.ndim == 2 else bias, full)
    result: Array = own.narrow(bias, query.dtype)
    return result


def distant(slopes: Array, p: Array, j: Array) -> Array:
    """Minus slope times distance, ``(*B, Hq, L, S)`` (POS-8)."""
    bias: Array = -slopes * np.abs(p - j)
    return bias


def slopes(heads: int) -> list[float]:
    """Take a geometric sequence; between two powers of two, those between the others (POS-7)."""
    lower = 2 ** (heads.bit_length() - 1)
    few = [2.0 ** (-8 * (h + 1) / lower) for h in range(lower)]
    twice = [2.0 ** (-8 * (h + 1) / (2 * lower)) for h in range(2 * lower)]
    return few + twice[::2][: heads - lower]
