"""Attention over a cache in pages: the chapter `paging`."""

from typing import Any

from array_api_compat import device

from attnspec.operations import OPERATIONS
from attnspec.reference.attention import attention_of
from attnspec.reference.caching import appended, gathered
from attnspec.reference.call import Arguments, Array, Call, Mask, step
from attnspec.reference.errors import array, integers, need, same_dtype, within
from attnspec.reference.functions import public
from attnspec.reference.notation import count, of_batch

#: The options of attention that pages do not change.
_OPTIONS = tuple(
    name for name in OPERATIONS["attention"].options if name not in ("mask", "query_offset", "key_lengths")
)


def paged_attention_of(
    call: Call, query: Array, key_pages: Array, value_pages: Array, **arguments: Any
) -> Any:
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
    arguments = arguments | {"query": query, "key": key_pages, "value": value_pages}
    return attention_of(call, **as_attention(call, check_paged(call, check_paged_arrays(call, arguments))))


paged_attention = public(paged_attention_of)


@step
def as_attention(call: Call, arguments: Arguments) -> Arguments:
    """Rewrite a checked call as one of attention over the gathered positions (PAGE-1)."""
    lengths, end = arguments["key_lengths"], end_of_keys(call, arguments)
    table = read_entries(call, arguments, lengths)
    key, value = (
        held(call, arguments[name], table, arguments[f"new_{name}"], lengths) for name in ("key", "value")
    )
    padded = after_padding(call, key.shape[-2], arguments["left_padding"], arguments["query"])
    mask = arguments.get("mask")
    return {name: arguments[name] for name in _OPTIONS if name in arguments} | {
        "query": arguments["query"],
        "key": key,
        "value": value,
        "mask": padded if mask is None else padded & mask,
        "key_lengths": end,
        "query_offset": offset_at_the_end(call, arguments["query_offset"], end, arguments["query"].shape[-2]),
    }


@step
def check_paged_arrays(call: Call, arguments: Arguments) -> Arguments:
    """Check the dtypes and shapes of pages, of the table, and of new positions (ERR-16, PAGE-9)."""
    for name, other in (("new_key", "new_value"), ("new_value", "new_key")):
        alone = arguments[name] is None and arguments[other] is not None
        need(name, not alone, f"an array, as {other} is given", None, "PAGE-9")
    names = {"query": "query", "key_pages": "key", "value_pages": "value"}
    names |= {} if arguments["new_key"] is None else {"new_key": "new_key", "new_value": "new_value"}
    same_dtype(call, **{name: arguments[of] for name, of in names.items()})
    query = tuple(arguments["query"].shape)
    need("query", len(query) >= 3, "three axes or more", f"shape {query}", "SHAPE-6")
    keys, values = tuple(arguments["key"].shape), tuple(arguments["value"].shape)
    need("key_pages", len(keys) == 4, "four axes", f"shape {keys}", "ERR-16")
    shared = keys[1] > 0 and query[-3] % keys[1] == 0
    need("key_pages", shared, f"a number of heads that divides {query[-3]}", keys[1], "HEAD-2")
    need("key_pages", keys[3] == query[-1], f"depth {query[-1]} as in query", keys[3], "ERR-16")
    _same_heads("value_pages", values, keys[1])
    fits = len(values) == 4 and values[:3] == keys[:3]
    need("value_pages", fits, f"shape {keys[:3]} and a depth, as key_pages", f"shape {values}", "ERR-16")
    need("value_pages", values[3] > 0, "a depth of 1 or more", 0, "ERR-5")
    table = tuple(array(call, "block_table", arguments["block_table"], "ERR-16").shape)
    batch = query[:-3]
    good = len(table) == len(batch) + 1 and table[:-1] == batch
    need("block_table", good, f"batch axes {batch} and one of pages", f"shape {table}", "ERR-16")
    if arguments["new_key"] is not None:
        own = tuple(arguments["new_key"].shape)
        _same_heads("new_key", own, keys[1])
        good = len(own) == len(query) and (*own[:-2], own[-1]) == (*batch, keys[1], keys[3])
        need("new_key", good, f"shape {(*batch, keys[1], 'N', keys[3])}", own, "ERR-16")
        shape, its = (*own[:-1], values[3]), tuple(arguments["new_value"].shape)
        _same_heads("new_value", its, keys[1])
        need("new_value", its == shape, f"shape {shape}", its, "ERR-16")
    return arguments


def _same_heads(name: str, shape: tuple[int, ...], heads: int) -> None:
    """Check that an array has the heads of the pages of keys (HEAD-2)."""
    own = shape[-3] if len(shape) >= 4 else heads  # an array of fewer axes is refused for its shape
    need(name, own == heads, f"{heads} heads as in key_pages", own, "HEAD-2")


@step
def check_paged(call: Call, arguments: Arguments) -> Arguments:
    """Check the integers: lengths, left padding, offsets, and the entries that are read (ERR-16, PAGE-8)."""
    batch, pages = tuple(arguments["query"].shape[:-3]), arguments["key"].shape
    table = integers(
        call, "block_table", arguments["block_table"], (*batch, arguments["block_table"].shape[-1]), "ERR-16"
    )
    room = arguments["block_table"].shape[-1] * pages[2]
    added = 0 if arguments["new_key"] is None else arguments["new_key"].shape[-2]
    need("key_lengths", added <= room, f"room for {added} more", f"{room} positions", "PAGE-8")
    taken: Arguments = {"block_table": table}
    for name, most in (("key_lengths", room - added), ("left_padding", room)):
        taken[name] = integers(call, name, arguments[name], batch, "ERR-16")
        within(call, name, taken[name], 0, most, "PAGE-8")
    if arguments["query_offset"] is not None:
        taken["query_offset"] = integers(call, "query_offset", arguments["query_offset"], batch, "ERR-16")
    checked = arguments | taken
    read = read_entries(call, checked, checked["key_lengths"])
    within(call, "block_table", read, 0, max(pages[0] - 1, 0), "PAGE-8")
    return checked


@step
def end_of_keys(_call: Call, arguments: Arguments) -> Any:
    """Return the number of positions of each sequence, those that are new included (PAGE-2)."""
    return arguments["key_lengths"] + (0 if arguments["new_key"] is None else arguments["new_key"].shape[-2])


@step
def read_entries(call: Call, arguments: Arguments, end: Any) -> Array:
    """Return the block table with 0 for entries without a position before the end (PAGE-3)."""
    table, size = arguments["block_table"], arguments["key"].shape[2]
    first = count(call.xp, table.shape[-1], table) * size  # the first position of each entry
    ends = end if isinstance(end, int) or end.ndim == 0 else end[..., None]
    return call.xp.where(first < ends, table, call.xp.zeros_like(table))


@step
def held(call: Call, pages: Array, table: Array, new: Any, lengths: Any) -> Array:
    """Return the positions of each sequence: its pages, then what is new (PAGE-1, PAGE-2)."""
    if pages.shape[0] == 0:  # no entry is read
        pages = call.xp.zeros((1, *pages.shape[1:]), dtype=pages.dtype, device=device(pages))
    result = gathered(call, pages, call.xp.clip(table, 0, pages.shape[0] - 1))
    return result if new is None else appended(call, result, new, lengths)


@step
def after_padding(call: Call, keys: int, padding: Any, like: Array) -> Mask:
    """Allow the positions after the left padding, ``(*B, 1, 1, S)`` (PAGE-6)."""
    result: Mask = count(call.xp, keys, like) >= of_batch(padding)
    return result


@step
def offset_at_the_end(_call: Call, offset: Any, end: Any, queries: int) -> Any:
    """Return the position of query 0. By default the last query is at the last key (PAGE-7)."""
    return end - queries if offset is None else offset
