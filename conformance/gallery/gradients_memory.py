"""Wrong about tiles, memory, earlier calls and long calls in the backward pass."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from attnspec.conformance.gallery.entry import Array, base, rows, wrong
from attnspec.reference.call import Mask
from attnspec.reference.gradients import Gradients


def _in_tiles(count: int, size: int) -> int:
    """Count what whole tiles hold; all of it where there is no whole tile."""
    return count - count % size or count


ENTRIES = rows(
    ("last_queries_lost_in_d_key", "d_key", "GRAD-19", "G",
     lambda call, u, allowed: base.d_key(call, np.where(call.i < _in_tiles(call.queries, 16), u, 0), allowed),
     "Leave the queries after the last whole tile of 16 out of the sum for the keys."),
    ("last_keys_lost_in_d_query", "d_query", "GRAD-19", "G",
     lambda call, u, allowed: base.d_query(call, np.where(call.j < _in_tiles(call.keys, 32), u, 0), allowed),
     "Leave the keys after the last whole tile of 32 out of the sum for the queries."),
    ("features_of_values_past_a_tile_lost", "d_weights", "GRAD-19", "G",
     lambda call: base.d_weights(call.but(value=call.value[..., :64], d_output=call.d_output[..., :64])),
     "Take the first 64 features of values and cotangents for the gradients of the weights."),
    ("delta_of_the_first_tile", "delta", "GRAD-19", "G",
     lambda call, p, r, allowed: base.delta(call, np.where(call.j < 32, p, 0), r, allowed),
     "Take the mean over the first 32 keys."),
    ("last_queries_lost_in_d_value", "d_value", "GRAD-19", "G",
     lambda call, p, allowed: base.d_value(call,
         np.where(call.i < _in_tiles(call.queries, 128), p, 0), allowed),
     "Leave the queries after the last whole tile of 128 out of the sum for the values."),
    ("d_query_of_the_last_tile", "d_query", "GRAD-19", "G",
     lambda call, u, allowed: base.d_query(call,
         np.where(call.j >= (call.keys - 1) // 16 * 16, u, 0), allowed),
     "Write the gradient of the query anew for each tile of 16 keys."),
    ("weights_of_an_earlier_call", "forward_again", "ERR-13", "T",
     lambda call: call.steps.memory.setdefault("saved", {}).setdefault((call.shape, call.query.dtype.name),
         base.forward_again(call)),
     "Keep the weights that the first call of a shape saved for its backward pass."),
)  # fmt: skip


@wrong("d_key", "GRAD-19", "G")
def last_keys_take_the_first_of_their_tile(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Store all gradients of an incomplete tile of 32 keys where its first belongs."""
    result = base.d_key(call, u, allowed)
    whole = _in_tiles(call.keys, 32)
    if whole < call.keys:
        result[..., whole:, :] = result[..., -1:, :]
    return result


@wrong("d_key", "GRAD-19", "G")
def last_features_lost_in_d_key(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Write whole tiles of 16 features of the gradient of the key, and 0 after them."""
    depth = call.key.shape[-1]
    return np.where(np.arange(depth) < _in_tiles(depth, 16), base.d_key(call, u, allowed), 0)


@wrong("d_key", "GRAD-1", "G", "NVIDIA/cudnn-frontend#1072")
def d_key_of_one_query_nan(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Return NaN for the gradient of the keys where there is one query."""
    result = base.d_key(call, u, allowed)
    return np.full_like(result, np.nan) if call.queries == 1 else result


@wrong("forward_again", "GRAD-19", "C", "pytorch/pytorch#196678")
def weights_by_a_product_of_exponentials(call: Gradients) -> Any:
    """Divide the exponential of a score by that of the lse, and both overflow."""
    p, lse, seen = base.forward_again(call)
    some = np.where(lse == -np.inf, 0, lse)[..., None]
    return np.where(seen, np.exp(base.score(call)) * np.exp(-some), 0).astype(p.dtype), lse, seen


@wrong("convert_cotangents", "GRAD-15", "H", "Dao-AILab/flash-attention#355")
def cotangent_read_in_the_order_of_memory(call: Gradients) -> Any:
    """Read a transposed cotangent as if it were not."""
    g = call.d_output
    return base.convert_cotangents(call.but(d_output=g.ravel(order="K").reshape(g.shape)))


@wrong("convert_cotangents", "GRAD-15", "H", "facebookresearch/xformers#282")
def cotangent_taken_to_be_dense(call: Gradients) -> Any:
    """Read the cotangent one number after the other, whatever lies between them."""
    g = call.d_output
    flat = as_strided(
        g, (1 + sum(s * (n - 1) for s, n in zip(_steps(g), g.shape, strict=True)),), (g.itemsize,)
    )
    places = np.arange(g.size).reshape(g.shape) % max(flat.size, 1)
    return base.convert_cotangents(call.but(d_output=flat[places] if g.size else g))


@wrong("convert_cotangents", "GRAD-15", "H")
def features_of_the_cotangent_taken_to_be_dense(call: Gradients) -> Any:
    """Read the features of a cotangent one after the other, whatever lies between them."""
    g = call.d_output
    apart = g.size > 0 and g.strides[-1] > g.itemsize
    dense = as_strided(g, strides=(*g.strides[:-1], g.itemsize)) if apart else g
    return base.convert_cotangents(call.but(d_output=dense))


@wrong("d_query", "NUM-8", "H", "pytorch/pytorch#146377")
def key_read_in_the_order_of_memory_backward(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Read a transposed key as if it were not, only in the backward pass."""
    key = call.key.ravel(order="K").reshape(call.key.shape)
    return base.d_query(call.but(key=key), u, allowed)


@wrong("d_key", "NUM-8", "H")
def query_taken_to_be_dense_backward(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Read the features of a query one after the other, only in the backward pass."""
    query = call.query
    apart = query.size > 0 and query.strides[-1] > query.itemsize
    dense = as_strided(query, strides=(*query.strides[:-1], query.itemsize)) if apart else query
    return base.d_key(call.but(query=dense), u, allowed)


@wrong("convert_cotangents", "NUM-4", "H")
def cotangent_scaled_in_place(call: Gradients) -> Any:
    """Multiply the caller's cotangent by one half after it is read."""
    given = base.convert_cotangents(call.but(d_output=call.d_output.copy()))
    if call.d_output.flags.writeable:
        call.d_output[...] *= call.d_output.dtype.type(0.5)
    return given


@wrong("d_key", "ERR-13", "T")
def d_key_added_to_the_last_call(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Add to a buffer that still holds the gradient of the last call."""
    kept = call.steps.memory.setdefault("d_key", {})
    result = base.d_key(call, u, allowed)
    last = kept.get((result.shape, result.dtype.name), 0)
    kept[result.shape, result.dtype.name] = result
    return result + last


@wrong("d_query", "NUM-9", "T", "Dao-AILab/flash-attention#1596")
def d_query_added_in_another_order(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Add up the keys from the last one in every second call, for the gradient of the query."""
    times = call.steps.memory["times"] = call.steps.memory.get("times", 0) + 1
    if times % 2:
        return base.d_query(call, u, allowed)
    key = np.ascontiguousarray(base.repeat_heads(call, call.key)[..., ::-1, :])
    return base.factor(call) * base.multiply_allowed(call, u[..., ::-1], allowed[..., ::-1], key)


@wrong("sum_heads", "NUM-9", "T", "Dao-AILab/flash-attention#1766")
def d_key_added_by_chance(call: Gradients, d: Array, like: Array) -> Any:
    """Round sums for keys and values up in one call and down in the next, as unordered additions may."""
    times = call.steps.memory["summed_heads"] = call.steps.memory.get("summed_heads", -1) + 1
    result = base.sum_heads(call, d, like)
    return np.where(result == 0, 0, np.nextafter(result, np.inf)) if times % 4 > 1 else result


def _steps(array: Array) -> tuple[int, ...]:
    return tuple(abs(stride) // array.itemsize for stride in array.strides)


@wrong("d_key", "GRAD-19", "G")
def last_queries_lost_in_d_key_past_256(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Leave the queries after the last whole tile of 128 out of the sum for the keys, past 256 of both."""
    long = call.queries > 256 and call.keys > 256
    whole = call.queries - call.queries % 128 if long else call.queries
    return base.d_key(call, np.where(call.i < whole, u, 0), allowed)


@wrong("delta", "GRAD-19", "G")
def delta_of_the_second_tile_read_in_steps_of_two(call: Gradients, p: Array, r: Array, allowed: Mask) -> Any:
    """Read the mean of every second row for the rows from 256 to 511, where there are more than 512 keys."""
    result = base.delta(call, p, r, allowed)
    rows = np.arange(call.queries)
    second = (rows >= 256) & (rows < 512) & (call.keys > 512)
    read = np.where(second, np.minimum(256 + 2 * (rows - 256), call.queries - 1), rows)
    return result[..., read, :]


@wrong("d_query", "GRAD-19", "G")
def last_keys_not_added_to_d_query_past_512(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Add up whole tiles of 256 keys for the gradient of the query, where there are more than 512 keys."""
    whole = call.keys - call.keys % 256 if call.keys > 512 else call.keys
    return base.d_query(call, np.where(call.j < whole, u, 0), allowed)


@wrong("sum_heads", "GRAD-19", "D")
def last_head_of_a_group_lost_past_8(call: Gradients, d: Array, like: Array) -> Any:
    """Add up the first 8 query heads of a group, for more than 256 keys."""
    heads = like.shape[-3]
    group = d.shape[-3] // max(heads, 1)
    if group <= 8 or call.keys <= 256:
        return base.sum_heads(call, d, like)
    parts = d.reshape(*d.shape[:-3], heads, group, *d.shape[-2:])
    return parts[..., :8, :, :].sum(axis=-3)


@wrong("d_key", "GRAD-19", "C")
def d_key_added_in_half_precision_past_512(call: Gradients, u: Array, allowed: Mask) -> Any:
    """Round the sum for the keys to float16 after each 128 queries, where there are more than 512 of both."""
    if call.queries <= 512 or call.keys <= 512:
        return base.d_key(call, u, allowed)
    result: Array = 0 * base.d_key(call, u, allowed)
    for start in range(0, call.queries, 128):
        tile = (call.i >= start) & (call.i < start + 128)
        result = result + base.d_key(call, np.where(tile, u, 0), allowed)
        result = result.astype(np.float16).astype(result.dtype)
    return result


@wrong("d_value", "GRAD-19", "E")
def window_of_one_more_key_backward_past_1000(call: Gradients, p: Array, allowed: Mask) -> Any:
    """Let each query give the key before its window the weight of the first key of it, past 1000 queries."""
    result = base.d_value(call, p, allowed)
    left = (call.window or (None, None))[0]
    if left is None or call.queries <= 1000:
        return result
    before = (call.j == call.i - left - 1) & (call.i >= 0)
    moved = np.where(before, np.roll(np.where(allowed, p, 0), -1, axis=-1), 0)
    return result + base.sum_heads(call, np.swapaxes(moved, -1, -2) @ call.d_output, call.value)
