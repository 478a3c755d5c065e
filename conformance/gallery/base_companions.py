"""The operations beside attention, in the same way: small, correct, and made of steps."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.base import Array, Call, Mask, Steps
from attnspec.conformance.gallery.base_checks import Given, need
from attnspec.conformance.gallery.base_masking import of_batch


def scores(
    own: Steps,
    query: Array,
    key: Array,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Array | None = None,
) -> Array:
    """Compute the scores by themselves, as attention has them."""
    given: Given = {"query": query, "key": key, "value": key, "sinks": None}
    given |= {"scale": scale, "softcap": softcap, "bias": bias}
    for check in ("check_dtypes", "check_axes", "check_heads", "check_scale", "check_softcap", "check_bias"):
        given = getattr(own, check)(given)
    flat = query.ndim == 2
    wide = [own.wide(array[None] if flat else array) for array in (query, key)]
    options = {name: given[name] for name in ("scale", "softcap", "bias")}
    call = Call(own, wide[0], wide[1], wide[1], query.dtype, flat, **options)
    with np.errstate(all="ignore"):
        found = own.scored(call)
    result: Array = own.narrow(found[0] if flat else found, query.dtype)
    return result


def projection(
    own: Steps, tokens: Array, weight: Array, *, bias: Array | None = None, convention: str = "row"
) -> Array:
    """Multiply rows from the right, columns from the left, and add the bias to the features."""
    weight = own.check_projection(tokens, weight, bias, convention)
    found = own.projected(own.wide(tokens), own.wide(weight), convention)
    found = found if bias is None else own.shifted(found, own.wide(bias), convention)
    result: Array = own.narrow(found, tokens.dtype)
    return result


def check_projection(tokens: Array, weight: Array, bias: Array | None, convention: str) -> Array:
    """Ask for a weight that fits the tokens as it is (PROJ-4)."""
    need("convention", convention in ("row", "column"), "'row' or 'column'", convention)
    need("tokens", tokens.ndim >= 2, "two axes or more", tokens.shape)
    need("weight", weight.ndim == 2, "two axes", weight.shape)
    rows = convention == "row"
    summed, features = weight.shape if rows else weight.shape[::-1]
    depth = tokens.shape[-1 if rows else -2]
    need("weight", summed == depth, f"depth {depth} as in tokens", weight.shape)
    need("bias", bias is None or bias.shape == (features,), f"shape {(features,)}", bias)
    return weight


def projected(tokens: Array, weight: Array, convention: str) -> Array:
    """``tokens W`` or ``W tokens`` (PROJ-1, PROJ-2)."""
    return tokens @ weight if convention == "row" else weight @ tokens


def shifted(found: Array, bias: Array, convention: str) -> Array:
    """One number a feature: a column of rows, a row of columns (PROJ-3)."""
    return found + (bias if convention == "row" else bias[:, None])


def self_attention(
    own: Steps,
    tokens: Array,
    query_weight: Array,
    key_weight: Array,
    value_weight: Array,
    *,
    query_bias: Array | None = None,
    key_bias: Array | None = None,
    value_bias: Array | None = None,
    convention: str = "row",
    scale: float | None = None,
    mask: Mask | None = None,
    is_causal: bool = False,
) -> Array:
    """Attention of three projections of the same tokens (PROJ-5)."""
    given = own.check_self({name: thing for name, thing in locals().items() if name != "own"})

    def rows(name: str) -> Any:
        weight, bias = given[f"{name}_weight"], given[f"{name}_bias"]
        found = own.projection(own, given["tokens"], weight, bias=bias, convention=convention)
        return found if convention == "row" else np.swapaxes(found, -1, -2)

    arrays = [rows(name) for name in ("query", "key", "value")]
    output: Array = own.attention(
        own, *arrays, scale=given["scale"], mask=given["mask"], is_causal=given["is_causal"]
    )
    return output if convention == "row" else np.swapaxes(output, -1, -2)


def check_self(given: Given) -> Given:
    """Nothing that its parts do not refuse."""
    return given


def split_heads(own: Steps, features: Array, *, heads: int) -> Array:
    """Consecutive blocks, and the heads before the positions (HEAD-3)."""
    heads = own.check_split(features, heads)
    blocks = features.reshape(*features.shape[:-1], heads, features.shape[-1] // heads)
    return np.swapaxes(blocks, -2, -3)


def check_split(features: Array, heads: int) -> int:
    """As many heads as divide the features (HEAD-5)."""
    need("features", features.ndim >= 2, "two axes or more", features.shape)
    good = isinstance(heads, int) and heads > 0 and features.shape[-1] % heads == 0
    need("heads", good, f"a divisor of {features.shape[-1]}", heads)
    return heads


def merge_heads(_own: Steps, split: Array) -> Array:
    """Put the heads of a position side by side (HEAD-4)."""
    need("split", split.ndim >= 3, "three axes or more", split.shape)
    blocks = np.swapaxes(split, -2, -3)
    return blocks.reshape(*blocks.shape[:-2], blocks.shape[-2] * blocks.shape[-1])


def multi_head_attention(
    own: Steps,
    tokens: Array,
    query_weight: Array,
    key_weight: Array,
    value_weight: Array,
    output_weight: Array,
    *,
    heads: int,
    key_heads: int | None = None,
    memory: Array | None = None,
    query_bias: Array | None = None,
    key_bias: Array | None = None,
    value_bias: Array | None = None,
    output_bias: Array | None = None,
    scale: float | None = None,
    mask: Mask | None = None,
    is_causal: bool = False,
) -> Array:
    """Project, split, attend, merge, project (HEAD-6); keys and values from the memory (HEAD-7)."""
    given = {name: thing for name, thing in locals().items() if name != "own"}
    given |= {"source": tokens if memory is None else memory}
    given |= {"key_heads": heads if key_heads is None else key_heads}
    given = own.check_multi_head(given)

    def split(source: str, name: str, count: int) -> Any:
        weight, bias = given[f"{name}_weight"], given[f"{name}_bias"]
        return own.split_heads(own, own.projection(own, given[source], weight, bias=bias), heads=count)

    query = split("tokens", "query", given["heads"])
    key, value = (split("source", name, given["key_heads"]) for name in ("key", "value"))
    options = {name: given[name] for name in ("scale", "mask", "is_causal")}
    merged = own.merge_heads(own, own.attention(own, query, key, value, **options))
    found: Array = own.projection(own, merged, given["output_weight"], bias=given["output_bias"])
    return found


def check_multi_head(given: Given) -> Given:
    """Heads that can be shared, and weights that fit, by their own names (HEAD-2, PROJ-4, ERR-12)."""
    heads, key_heads = given["heads"], given["key_heads"]
    need("key_heads", key_heads > 0 and heads % key_heads == 0, f"a divisor of {heads}", key_heads)
    rows = heads * given["value_weight"].shape[-1] // key_heads
    depths = {"query": given["tokens"].shape[-1], "output": rows}
    depths |= dict.fromkeys(("key", "value"), given["source"].shape[-1])
    for name, depth in depths.items():
        weight = given[f"{name}_weight"]
        need(f"{name}_weight", len(weight) == depth, f"{depth} rows", weight.shape)
    return given


def append_cache(own: Steps, cache: Array, new: Array, *, lengths: Any) -> Array:
    """Write after what is there, into a copy (CACHE-1)."""
    lengths = own.check_append(cache, new, lengths)
    start = of_batch(lengths)  # (*B, 1, 1, 1)
    place = np.arange(cache.shape[-2])[:, None] - (start if cache.ndim > 2 else start[0, 0])  # (*B, 1, C, 1)
    index = np.clip(place, 0, max(new.shape[-2] - 1, 0))
    if new.shape[-2] == 0:
        return cache.copy()
    shape = (*cache.shape[:-1], 1)
    moved = np.take_along_axis(new, np.broadcast_to(index, shape), axis=-2)  # new[n] at lengths + n
    return np.where((place >= 0) & (place < new.shape[-2]), moved, cache)


def check_append(cache: Array, new: Array, lengths: Any) -> Any:
    """Lengths that leave room for the new positions (CACHE-2)."""
    fits = cache.ndim >= 2 and cache.shape[:-2] == new.shape[:-2] and cache.shape[-1] == new.shape[-1]
    need("new", fits and cache.dtype == new.dtype, "the cache's shape but for the positions", new.shape)
    array = np.asarray(lengths)
    need("lengths", array.dtype.kind in "iu" and array.shape in ((), cache.shape[:-3]), "integers", lengths)
    room = cache.shape[-2] - new.shape[-2]
    need("lengths", ((array >= 0) & (array <= room)).all(), f"0 to {room}", lengths)
    return lengths


def gather_pages(own: Steps, pages: Array, block_table: Array) -> Array:
    """Page after page of each sequence (CACHE-4)."""
    table = own.check_pages(pages, block_table)
    gathered = np.moveaxis(pages[table], -4, -3)  # (*B, H, T, K, D)
    *batch, heads, pages_, size, depth = gathered.shape
    result: Array = gathered.reshape(*batch, heads, pages_ * size, depth)
    return result


def check_pages(pages: Array, block_table: Array) -> Array:
    """Pages that there are (CACHE-5)."""
    need("pages", pages.ndim == 4, "four axes", pages.shape)
    need("block_table", block_table.dtype.kind in "iu" and block_table.ndim > 0, "integers", block_table)
    good = ((block_table >= 0) & (block_table < len(pages))).all()
    need("block_table", good, f"pages below {len(pages)}", block_table)
    return block_table
