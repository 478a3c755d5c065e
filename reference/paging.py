"""Attention over a cache in pages: the chapter `paging`."""

from typing import Any

from array_api_compat import is_array_api_obj

from attnspec.operations import OPERATIONS
from attnspec.reference.attention import attention_of
from attnspec.reference.caching import append, gather
from attnspec.reference.call import Arguments, Array, Call, Mask, step
from attnspec.reference.errors import check_declared, need, within
from attnspec.reference.functions import public
from attnspec.reference.notation import align_batch, count, narrow, out_dtype

#: The options of attention that pages do not change.
_OPTIONS = tuple(
    name for name in OPERATIONS["attention"].options if name not in ("mask", "query_offset", "key_lengths")
)


def paged_attention_of(call: Call, **arguments: Any) -> Any:
    """Attention over keys and values that lie in pages.

    Notes
    -----
    Rules PAGE-1 to PAGE-9.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import paged_attention
    >>> pages = np.array([1.0, 2.0, 4.0, 8.0]).reshape(2, 1, 2, 1)  # two pages of two positions
    >>> query = np.zeros((1, 1, 1))
    >>> paged_attention(query, 0 * pages, pages, block_table=[1, 0], key_lengths=3).tolist()
    [[[4.333333333333333]]]
    """
    arguments = check_declared(call, "paged_attention", arguments)
    names = {"query": "query", "key": "key_pages", "value": "value_pages"}
    arrays = {
        name: narrow(call, arguments[own], out_dtype(call, arguments[own])) for name, own in names.items()
    }
    return attention_of(call, **as_attention(call, check_entries_read(call, arguments | arrays)))


paged_attention = public(paged_attention_of)


@step
def as_attention(call: Call, arguments: Arguments) -> Arguments:
    """Rewrite a checked call as one of attention over the gathered positions (PAGE-1)."""
    lengths, end = arguments["key_lengths"], end_of_keys(call, arguments)
    table = read_entries(call, arguments, lengths)
    key, value = (
        read_pages(call, arguments[name], table, arguments.get(f"new_{name}"), lengths)
        for name in ("key", "value")
    )
    padded = after_padding(call, key.shape[-2], arguments["left_padding"], arguments["query"])
    mask = arguments.get("mask")
    return {name: arguments[name] for name in _OPTIONS if name in arguments} | {
        "query": arguments["query"],
        "key": key,
        "value": value,
        "mask": padded if mask is None else padded & mask,
        "key_lengths": end,
        "query_offset": 0
        if arguments["query_positions"] is not None
        else offset_at_the_end(call, arguments["query_offset"], end, arguments["query"].shape[-2]),
    }


@step
def check_entries_read(call: Call, arguments: Arguments) -> Arguments:
    """Check the entries of the table that are read, and the room for new positions (PAGE-8)."""
    xp, taken = call.xp, dict(arguments)
    for name in ("block_table", "key_lengths", "left_padding", "query_offset"):
        if is_array_api_obj(arguments[name]):
            taken[name] = xp.astype(arguments[name], xp.int64)
    pages, _, size, _ = arguments["key"].shape
    if arguments.get("new_key") is not None:
        room = arguments["block_table"].shape[-1] * size - arguments["new_key"].shape[-2]
        need("new_key", room >= 0, "no more positions than the table has", f"{-room} more", "PAGE-8")
        within(call, "key_lengths", taken["key_lengths"], 0, room, "PAGE-8")
    read = read_entries(call, taken, taken["key_lengths"])
    within(call, "block_table", read, 0, max(pages - 1, 0), "PAGE-8")
    return taken


@step
def end_of_keys(_call: Call, arguments: Arguments) -> Any:
    """Return the number of positions of each sequence, those that are new included (PAGE-2)."""
    new = arguments.get("new_key")
    return arguments["key_lengths"] + (0 if new is None else new.shape[-2])


@step
def read_entries(call: Call, arguments: Arguments, end: Any) -> Array:
    """Return the block table with 0 for entries without a position before the end (PAGE-3)."""
    table, size = arguments["block_table"], arguments["key"].shape[2]
    first = count(call.xp, table.shape[-1], table) * size  # the first position of each entry
    ends = end if isinstance(end, int) or end.ndim == 0 else end[..., None]
    return call.xp.where(first < ends, table, call.xp.zeros_like(table))


@step
def read_pages(call: Call, pages: Array, table: Array, new: Any, lengths: Any) -> Array:
    """Return the positions of each sequence: its pages, then what is new (PAGE-1, PAGE-2)."""
    result = gather(call, pages, call.xp.clip(table, 0, max(pages.shape[0] - 1, 0)))
    return result if new is None else append(call, result, new, lengths)


@step
def after_padding(call: Call, keys: int, padding: Any, like: Array) -> Mask:
    """Allow the positions after the left padding, ``(*B, 1, 1, S)`` (PAGE-6)."""
    result: Mask = count(call.xp, keys, like) >= align_batch(padding)
    return result


@step
def offset_at_the_end(_call: Call, offset: Any, end: Any, queries: int) -> Any:
    """Return the position of query 0. By default the last query is at the last place (PAGE-7)."""
    return end - queries if offset is None else offset
