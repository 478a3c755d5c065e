"""Caches, pages and partial results: the chapter `caching`."""

import math
from typing import Any

from array_api_compat import device

from attnspec.reference.call import Array, Call, part, step
from attnspec.reference.errors import array, check_lse_dtype, flag, integers, need, real, same_dtype, within
from attnspec.reference.functions import public
from attnspec.reference.notation import align_batch, count, largest, narrow, out_dtype, reshape, wide


def append_cache_of(call: Call, cache: Array, new: Array, *, lengths: Any) -> Array:
    """Append positions to a cache.

    Notes
    -----
    Rules CACHE-1 and CACHE-2.

    Examples
    --------
    >>> from attnspec.reference import append_cache
    >>> append_cache([[1.0], [0.0], [0.0]], [[5.0]], lengths=1).tolist()
    [[1.0], [5.0], [0.0]]
    """
    new = new_positions(call, cache, new)
    return append(call, cache, new, check_append(call, cache, new, lengths))


append_cache = public(append_cache_of)


@step
def new_positions(call: Call, cache: Array, new: Array) -> Array:
    """Check that the new positions have the dtype of the cache, and return them (ERR-1)."""
    same_dtype(call, cache=cache, new=new)
    return new


@step
def check_append(call: Call, cache: Array, new: Array, lengths: Any) -> Any:
    """Check that the lengths leave room for the new positions (CACHE-2, CACHE-8)."""
    shape, got = tuple(cache.shape), tuple(new.shape)
    need("cache", len(shape) >= 2, "two axes or more", f"shape {shape}", "ERR-16")
    fits = len(got) == len(shape) and (*got[:-2], got[-1]) == (*shape[:-2], shape[-1])
    need("new", fits, f"{shape} but for the positions", got, "ERR-16")
    room = shape[-2] - got[-2]
    need("lengths", room >= 0, f"room for {got[-2]} more", f"a capacity of {shape[-2]}", "CACHE-2")
    lengths = integers(call, "lengths", lengths, shape[:-3], "ERR-16")
    within(call, "lengths", lengths, 0, room, "CACHE-2" if isinstance(lengths, int) else "CACHE-8")
    return lengths


@step
@part
def append(call: Call, cache: Array, new: Array, lengths: Any) -> Array:
    """Write the new positions into a copy of the cache (CACHE-1)."""
    xp, added = call.xp, new.shape[-2]
    cache, new = (narrow(call, each, out_dtype(call, cache)) for each in (cache, new))
    if added == 0:
        return xp.asarray(cache, copy=True)
    starts = align_batch(lengths) if cache.ndim > 2 else lengths
    place = count(xp, cache.shape[-2], cache)[:, None] - starts  # (*B, 1, C, 1): of the new ones, which
    index = xp.broadcast_to(xp.clip(place, 0, added - 1), cache.shape)
    return xp.where((place >= 0) & (place < added), xp.take_along_axis(new, index, axis=-2), cache)


def gather_pages_of(call: Call, pages: Array, block_table: Array) -> Array:
    """Concatenate the pages of each sequence.

    Notes
    -----
    Rules CACHE-4 and CACHE-5.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import gather_pages
    >>> pages = np.array([[[[1.0], [2.0]]], [[[3.0], [4.0]]]])  # two pages of one head and two positions
    >>> gather_pages(pages, [1, 0]).ravel().tolist()
    [3.0, 4.0, 1.0, 2.0]
    """
    return gather(call, pages, check_pages(call, pages, block_table))


gather_pages = public(gather_pages_of)


@step
def check_pages(call: Call, pages: Array, block_table: Array) -> Array:
    """Check that each entry is a page that exists, or -1 for no page (CACHE-4, CACHE-5)."""
    shape = tuple(real(call, "pages", pages, "ERR-2").shape)
    need("pages", len(shape) == 4, "four axes", f"shape {shape}", "ERR-16")
    table = tuple(array(call, "block_table", block_table, "ERR-16").shape)
    need("block_table", len(table) > 0, "one axis or more", "a single number", "ERR-16")
    taken = integers(call, "block_table", block_table, table, "ERR-16")
    within(call, "block_table", taken, -1, shape[0] - 1, "CACHE-5")
    return taken


@step
@part
def gather(call: Call, pages: Array, table: Array) -> Array:
    """Concatenate the pages of each sequence (CACHE-4)."""
    number, heads, size, depth = pages.shape
    *batch, length = table.shape
    if number == 0:  # no entry is a page
        pages = call.xp.zeros((1, heads, size, depth), dtype=pages.dtype, device=device(pages))
    places = call.xp.where(table < 0, 0, table)  # the positions of an entry of -1 are not defined
    taken = call.xp.take(pages, reshape(call.xp, places, (math.prod(table.shape),)), axis=0)
    taken = reshape(call.xp, taken, (*batch, length, heads, size, depth))
    taken = call.xp.moveaxis(taken, -4, -3)  # (*B, H, T, K, D)
    taken = reshape(call.xp, taken, (*batch, heads, length * size, depth))
    return narrow(call, taken, out_dtype(call, pages))


def merge_partials_of(call: Call, outputs: Array, lses: Array, *, return_lse: bool) -> Any:
    """Merge the results over parts of the keys into the result over all keys.

    Notes
    -----
    Rules CACHE-6 and CACHE-7.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import merge_partials
    >>> merge_partials([[[1.0]], [[5.0]]], np.log([[3.0], [1.0]])).round(9).tolist()
    [[2.0]]
    """
    check_partials(call, outputs, lses)
    output, lse = _merge(call, outputs, lses)
    return (output, lse) if flag("return_lse", return_lse) else output


merge_partials = public(merge_partials_of)


@step
def check_partials(call: Call, outputs: Array, lses: Array) -> None:
    """Check that each row of each part has an lse, in float32 or better (CACHE-6, NUM-7)."""
    shape = tuple(real(call, "outputs", outputs, "ERR-2").shape)
    need("outputs", len(shape) >= 3 and shape[-1] > 0, "three axes or more", f"shape {shape}", "ERR-16")
    check_lse_dtype(call, "lses", lses, outputs)
    need("lses", tuple(lses.shape) == shape[:-1], f"shape {shape[:-1]}", tuple(lses.shape), "ERR-16")


@part
def _merge(call: Call, outputs: Array, lses: Array) -> tuple[Array, Array]:
    output, lse = merge(call, wide(call, outputs), wide(call, lses))
    return narrow(call, output, out_dtype(call, outputs)), narrow(call, lse, out_dtype(call, lses))


@step
def merge(call: Call, outputs: Array, lses: Array) -> tuple[Array, Array]:
    """Weight the parts by their shares of the denominator (CACHE-6), and exclude empty parts (CACHE-7).

    A row with a share of NaN or infinity is NaN (CACHE-9).
    """
    xp = call.xp
    top = largest(xp, lses, axis=0)[0, ...]
    top = xp.where(top == -math.inf, 0.0, top)
    if call.steps.constant is not None:  # it changes nothing, so no derivative flows through it
        top = call.steps.constant(top)
    shares = xp.exp(lses - top)  # (N, *B, H, L)
    total = xp.sum(shares, axis=0)
    kept = xp.where((lses == -math.inf)[..., None], 0.0, outputs)  # 0 * NaN is NaN
    some = xp.where(total == 0, 1.0, total)  # the derivative of the logarithm of 0 is infinite (GRAD-21)
    output = xp.sum(shares[..., None] * kept, axis=0) / some[..., None]
    lse = xp.where(total == 0, -math.inf, top + xp.log(some))
    return output, xp.where(top == math.inf, top, lse)
