"""New keys of a paged cache, for a function that writes its keys into the pages in each call."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.backends.errors import Unsupported
from attnspec.backends.library.library import device_of
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.signature import required_parameters
from attnspec.backends.user.slopes import integers_of
from attnspec.backends.user.small_calls import option_values

Integers = NDArray[np.int64]
#: Each new array, and the array of the pages into which it comes.
_PAGES = {"new_key": "key_pages", "new_value": "value_pages"}


def with_own_new_keys(
    call: Mapping[str, Any], xp: Any, *, needed: bool = True, writes: bool = True
) -> dict[str, Any]:
    """Write a call as a function takes it that writes new keys into the pages, or needs as many as queries.

    The pages into which they come are copies that no other sequence has (NUM-4), with zeros in their places,
    so that a key that the function does not write is missing. If they are needed, the last positions of each
    sequence are the new keys (PAGE-2), wherever the call has them, and a call with fewer is declined.
    """
    given = [name for name in _PAGES if name in call]
    if not needed and (len(given) < len(_PAGES) or not writes):
        return dict(call)
    if len(given) == 1:
        raise Unsupported(f"the function takes new keys and new values together, got {given[0]} alone")
    try:
        return _with_new_keys(call, xp, needed=needed)
    except (IndexError, TypeError, ValueError) as error:
        raise Unsupported("a malformed call has no positions that may be new keys") from error


def _with_new_keys(call: Mapping[str, Any], xp: Any, *, needed: bool) -> dict[str, Any]:
    wanted = call["query" if needed else "new_key"].shape[-2]
    page, count = call["key_pages"].shape[-2], call["key_pages"].shape[0]
    batch = call["block_table"].shape[:-1]
    table = integers_of(call["block_table"]).reshape(prod(batch), call["block_table"].shape[-1])
    held = np.broadcast_to(integers_of(call["key_lengths"]), batch).ravel()
    new = call["new_key"].shape[-2] if "new_key" in call else 0
    before = held + new - wanted
    if (before < 0).any():
        raise Unsupported(
            f"the function takes as many new keys as queries, got {wanted} queries of a sequence of "
            f"{before.min() + wanted} keys"
        )

    def rows_of(sequences: Integers, places: Integers) -> Integers:
        """Return where the places of sequences are among the rows of the pages and then of the new keys."""
        of_pages = places < held[sequences]
        columns = np.where(of_pages, np.minimum(places // page, table.shape[-1] - 1), 0)
        in_pages = table[sequences, columns] * page + places % page if table.size else 0 * places
        return np.where(of_pages, in_pages, count * page + sequences * new + places - held[sequences])

    every = np.arange(len(table))[:, None]
    last = rows_of(every, before[:, None] + np.arange(wanted)).reshape(*batch, wanted)
    table_of_own, sequences, columns = _with_pages_of_its_own(
        table, np.minimum(held, before), before + wanted, page, count
    )
    places = columns[:, None] * page + np.arange(page)  # (F, K)
    kept = places < before[sequences][:, None]
    rows = np.where(kept, rows_of(sequences[:, None], np.where(kept, places, 0)), 0)
    most = count * page + len(table) * new
    if not all(((x >= 0) & (x < most)).all() for x in (last, rows[kept])):
        raise IndexError("expected page numbers of pages")
    if (held > table.shape[-1] * page).any():
        raise IndexError("expected lengths of positions in the table")
    own = dict(call)
    for name, pages in _PAGES.items():
        old = _flat(call[pages], call.get(name), xp)
        own[name] = xp.moveaxis(_take(old, last, xp), -3, -2)
        copies = xp.moveaxis(_take(old, rows, xp), -3, -2)
        keeps = xp.asarray(kept[:, None, :, None], **device_of(copies))
        own[pages] = xp.concat([call[pages], xp.where(keeps, copies, xp.zeros_like(copies))], axis=0)
    lengths, on = call["key_lengths"], device_of(call["query"])
    table_of_own = table_of_own.reshape(*batch, table_of_own.shape[-1])
    own["block_table"] = xp.asarray(table_of_own, dtype=call["block_table"].dtype, **on)
    if isinstance(lengths, int):
        own["key_lengths"] = int(before[0]) if before.size else 0
    else:
        own["key_lengths"] = xp.asarray(before.reshape(batch), dtype=lengths.dtype, **on)
    return own


def infer_writes(
    calls: Any, convention: Convention, call: Mapping[str, Any], why: dict[str, str]
) -> Convention:
    """Find out whether a function writes its new keys into the pages, by calls of an operation."""
    own = convention.names.get("new_key")
    if own is None or own in required_parameters(calls.function):
        return convention
    values = option_values(call)
    call = {**call, **{name: values[name] for name in _PAGES}}
    if calls.distance(convention, call) is None:
        return convention
    pages = calls.backend.to_numpy(calls.passed["key_pages"])
    if np.array_equal(pages, call["key_pages"], equal_nan=True):
        return convention
    why["writes"] = "it wrote new keys into its pages, and gets copies of these"
    convention = replace(convention, writes=True)
    shared = {**call, "key_lengths": int(call["key_lengths"].min())}
    if convention.per_entry or calls.distance(convention, shared) is not None:
        return convention
    why["per_entry"] = "with new keys and one length for all batch entries it raised an error"
    return replace(convention, per_entry=True)


def _flat(pages: Any, new: Any, xp: Any) -> Any:
    """Return the rows of pages, ``(P, Hkv, K, D)``, and then those of new keys, ``(*B, Hkv, N, D)``."""
    arrays = [xp.moveaxis(x, -3, -2) for x in (pages, new) if x is not None]
    return xp.concat([xp.reshape(x, (prod(x.shape[:-2]), *x.shape[-2:])) for x in arrays], axis=0)


def _take(rows: Any, numbers: Integers, xp: Any) -> Any:
    """Take rows by numbers of any shape, which comes before the axes of a row."""
    taken = xp.take(rows, xp.asarray(numbers.ravel(), **device_of(rows)), axis=0)
    return xp.reshape(taken, (*numbers.shape, *rows.shape[1:]))


def _with_pages_of_its_own(
    table: Integers, begins: Integers, ends: Integers, page: int, count: int
) -> tuple[Integers, Integers, Integers]:
    """Give each sequence pages of its own, after `count` others, for its places that its pages may not hold.

    Return the table, and the sequence and the column in the table of each of these pages.
    """
    ends = -(-ends // page)
    wide = np.zeros((len(table), max(table.shape[-1], *ends.tolist(), 0)), np.int64)
    wide[:, : table.shape[-1]] = table
    pairs = [
        (sequence, column)
        for sequence, (first, end) in enumerate(zip(begins // page, ends, strict=True))
        for column in range(first, end)
    ]
    sequences, columns = np.array(pairs, np.int64).reshape(len(pairs), 2).T
    wide[sequences, columns] = count + np.arange(len(pairs))
    return wide, sequences, columns
