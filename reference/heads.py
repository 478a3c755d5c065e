"""Grouped heads, and splitting and merging of heads: the chapter `heads`."""

from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import need, real, whole
from attnspec.reference.functions import public
from attnspec.reference.notation import Attention, narrow, out_dtype, reshape


def split_heads_of(call: Call, features: Array, *, heads: int) -> Array:
    """Split features into consecutive blocks, one for each head.

    Notes
    -----
    Rules HEAD-3 and HEAD-5.

    Examples
    --------
    >>> from attnspec.reference import split_heads
    >>> split_heads([[1.0, 2.0], [3.0, 4.0]], heads=2).tolist()
    [[[1.0], [3.0]], [[2.0], [4.0]]]
    """
    return split(call, features, check_split(call, features, heads))


split_heads = public(split_heads_of)


@step
def check_split(call: Call, features: Array, heads: int) -> int:
    """Check that the number of heads divides the number of features (HEAD-5)."""
    shape = tuple(real(call, "features", features, "ERR-2").shape)
    need("features", len(shape) >= 2, "two axes or more", f"shape {shape}", "ERR-16")
    heads = whole("heads", heads, 1, "HEAD-5", kind="ERR-16")
    need("heads", shape[-1] and shape[-1] % heads == 0, f"a divisor of {shape[-1]} features", heads, "HEAD-5")
    return heads


@step
@part
def split(call: Call, features: Array, heads: int) -> Array:
    """Split into consecutive blocks, and move the heads before the positions (HEAD-3)."""
    shape = (*features.shape[:-1], heads, features.shape[-1] // heads)
    blocks = reshape(call.xp, features, shape)  # (*B, N, heads, D)
    return narrow(call, call.xp.moveaxis(blocks, -2, -3), out_dtype(call, features))


def merge_heads_of(call: Call, split: Array) -> Array:
    """Put the heads of each position side by side: the inverse of `split_heads`.

    Notes
    -----
    Rule HEAD-4.

    Examples
    --------
    >>> from attnspec.reference import merge_heads
    >>> merge_heads([[[1.0], [3.0]], [[2.0], [4.0]]]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    shape = tuple(real(call, "split", split, "ERR-2").shape)
    need("split", len(shape) >= 3, "three axes or more", f"shape {shape}", "ERR-16")
    return side_by_side(call, split)


merge_heads = public(merge_heads_of)


@step
@part
def side_by_side(call: Call, split: Array) -> Array:
    """Put the heads of a position side by side (HEAD-4)."""
    *batch, heads, positions, depth = split.shape
    blocks = call.xp.moveaxis(split, -3, -2)  # (*B, N, heads, D)
    merged = reshape(call.xp, blocks, (*batch, positions, heads * depth))
    return narrow(call, merged, out_dtype(call, split))


@step
def check_heads(call: Attention) -> Attention:
    """Check that the number of key heads divides the number of query heads (HEAD-2, ERR-17)."""
    if call.query.ndim > 2:
        heads, of_key, of_value = (array.shape[-3] for array in (call.query, call.key, call.value))
        need("query", heads > 0, "one head or more", heads, "ERR-17")
        need("key", of_key > 0, "one head or more", of_key, "HEAD-2")
        need(
            "key",
            heads % of_key == 0,
            f"a number of heads that divides the query's {heads}",
            of_key,
            "HEAD-2",
        )
        need("value", of_value == of_key, f"{of_key} heads as in key", of_value, "HEAD-2")
    return call


@step
def repeat_heads(call: Attention, array: Array) -> Array:
    """Repeat key heads in place until there is one for each query head, ``(*B, Hq, S, D)`` (HEAD-1)."""
    # Repeated in place (1 1 2 2), not tiled (1 2 1 2): with tiling, query head h would read head h % Hkv.
    group = call.query.shape[-3] // array.shape[-3]
    return array if group == 1 else call.xp.repeat(array, group, axis=-3)
