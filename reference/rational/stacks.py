"""Forms and their stacks for the second oracle: each query in a row or in pages is a call of its own."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.operations import OPERATIONS
from attnspec.reference.rational.attention import attention
from attnspec.reference.rational.forms import (
    attend_latent,
    mask_pairs,
    numbers_of_codes,
    pairs_of_blocks,
    pairs_of_lists,
)
from attnspec.reference.rational.numbers import widened

Arguments = dict[str, Any]
Arrays = dict[str, NDArray[np.float64]]
#: The names of the arrays that hold keys and values, and latent vectors.
_HELD = ("key", "value", "latent", "key_rotary")
#: Options that are the same for every query.
_SHARED = ("scale", "softcap", "is_causal", "window", "sinks", "dropout_rate", "return_max")
_SHARED_ARRAYS = ("key_weight", "value_weight")


def stacked_attention(operation: str, given: Mapping[str, Any], dialect: Mapping[str, str]) -> Arrays:
    """Compute the outputs of an operation of one form, or of several."""
    form = OPERATIONS[operation]
    arguments = {name: thing for name, thing in given.items() if thing is not None}
    arguments |= _decode(arguments)
    query = np.asarray(arguments["query"])
    keys = _number_of_keys(arguments)
    shape = (*query.shape[:-1], keys)
    if {"key_indices", "query_block"} & {*arguments}:
        arguments = _with_mask(arguments, shape)
    compute = attend_latent if "latent" in form.layers else attention
    if not {"packed", "paged"} & {*form.layers}:
        whole = compute(arguments, dialect)
        return {name: whole[name] for name in form.judged(given)}
    for name in ("mask", "bias", "dropout_mask"):
        if name in arguments:
            arguments[name] = np.broadcast_to(arguments[name], shape)
    names = ("value_weight", "value", "value_pages")
    depth = next(np.shape(arguments[name])[-1] for name in names if name in arguments)
    results = {"output": np.zeros((*shape[:-1], depth)), "weights": np.zeros(shape)}
    results |= {name: np.full(shape[:-1], -np.inf) for name in ("lse", "max")}
    at_end = dialect.get("PACK-5") == "bottom-right"
    for batch, i, places, position, plain in _rows(arguments, form.layers, at_end=at_end):
        call = {**plain, "query_positions": np.array([position])}
        own = compute(call, dialect)
        for name in results.keys() & own.keys():
            row = results[name][batch][:, i]  # a view
            if name == "weights":
                row[..., places] = own[name][:, 0]
            else:
                row[...] = own[name][:, 0]
    return {name: results[name] for name in form.judged(given)}


def _decode(arguments: Mapping[str, Any]) -> Arguments:
    """Decode all codes, in pages or not."""
    decoded = {}
    for scales in _HELD[:3]:
        for stored in (f"{scales}_codes", f"{scales}_pages"):
            codes = arguments.get(stored)
            if codes is not None and np.asarray(codes).dtype.kind in "iu":
                own = {**arguments, f"{scales}_codes": codes}
                decoded[stored.removesuffix("_codes")] = numbers_of_codes(own, f"{scales}_")
    return decoded


def _number_of_keys(arguments: Mapping[str, Any]) -> int:
    if "block_table" in arguments:
        pages = arguments.get("key_pages", arguments.get("latent_pages"))
        return int(np.shape(arguments["block_table"])[-1] * np.shape(pages)[-2])
    return int(np.shape(arguments.get("key", arguments.get("latent")))[-2])


def _with_mask(arguments: Arguments, shape: tuple[int, ...]) -> Arguments:
    """Replace blocks or lists by a mask. The heads of the keys are those of the lists."""
    lists = dict(arguments)
    if "key" not in lists:  # its shape is read
        heads = np.shape(lists["key_pages"])[-3] if "key_pages" in lists else 1
        lists["key"] = np.empty((*shape[:-3], heads, shape[-1], 0))
    if "key_indices" in lists and ("latent" in lists or "latent_pages" in lists):
        lists["key_indices"] = np.asarray(lists["key_indices"])[..., np.newaxis, :, :]
    pairs = pairs_of_lists if "key_indices" in lists else pairs_of_blocks
    return {**arguments, "mask": mask_pairs(lists, pairs(lists))["mask"]}


def _rows(
    arguments: Arguments, layers: tuple[str, ...], *, at_end: bool
) -> Iterator[tuple[tuple[int, ...], int, list[int], int, Arguments]]:
    """Yield for each query its batch entry, its row, the places of its keys, its position and its call."""
    *outer, rows, _ = np.shape(arguments["query"])
    starts = [int(x) for x in arguments["query_starts"]] if "packed" in layers else [0, rows]
    for batch in np.ndindex(*outer[:-1]):
        for g in range(len(starts) - 1):
            sequence = (g,) if "packed" in layers else batch
            queries = starts[g + 1] - starts[g]
            places, stored, begin = _keys_of(arguments, sequence, queries)
            stored_at = ((name, _gather(arguments, name, sequence, batch, places)) for name in _HELD)
            held = {name: array for name, array in stored_at if array is not None}
            own = arguments.get("query_offset")
            begin = begin if own is None else _integer(own, sequence)
            if at_end and "key_starts" in arguments and np.ndim(0 if own is None else own) == 0 and not own:
                begin = int(np.diff(arguments["key_starts"])[g]) - queries
            valid = _integer(arguments.get("query_lengths", queries), sequence)
            for place in range(queries):
                i = starts[g] + place
                plain: Arguments = dict(held)
                plain |= {name: arguments[name] for name in (*_SHARED, *_SHARED_ARRAYS) if name in arguments}
                plain |= _row_arguments(arguments, batch, sequence, i, places)
                plain.setdefault("key_positions", np.array(stored, dtype=np.int64))
                plain["query_lengths"] = int(place < valid)
                standing = arguments.get("query_positions")
                position = begin + place if standing is None else int(np.asarray(standing)[(*batch, i)])
                yield batch, i, places, position, plain


def _keys_of(
    arguments: Mapping[str, Any], sequence: tuple[int, ...], queries: int
) -> tuple[list[int], list[int], int]:
    """Return the places of the keys of a sequence, their positions, and the default of its first query."""
    lengths = arguments.get("key_lengths")
    if "block_table" in arguments:
        padding, length = _integer(arguments.get("left_padding", 0), sequence), _integer(lengths, sequence)
        length += np.shape(arguments["new_key"])[-2] if "new_key" in arguments else 0
        places = list(range(padding, length))
        return places, places, length - queries
    if "key_starts" in arguments:
        (g,) = sequence
        first, last = (int(arguments["key_starts"][g + more]) for more in (0, 1))
    else:
        first, last = 0, _number_of_keys(arguments)
    if lengths is not None:
        last = min(last, first + _integer(lengths, sequence))
    return list(range(first, last)), list(range(last - first)), 0


def _gather(
    arguments: Mapping[str, Any],
    name: str,
    sequence: tuple[int, ...],
    batch: tuple[int, ...],
    places: list[int],
) -> NDArray[Any] | None:
    """Return the keys, values or latent vectors at some places of a sequence."""
    pages = arguments.get(f"{name}_pages")
    if pages is not None:
        pages = widened(pages)
        table, size = np.asarray(arguments["block_table"])[sequence], pages.shape[-2]
        result = np.zeros((*pages.shape[1:-2], len(places), pages.shape[-1]), pages.dtype)
        new = arguments.get(f"new_{name}")
        end = math.inf if new is None else _integer(arguments["key_lengths"], sequence)
        for column, place in enumerate(places):
            if place < end:
                result[..., column, :] = pages[table[place // size]][..., place % size, :]
            else:
                result[..., column, :] = np.asarray(new)[sequence][..., place - int(end), :]
        return result
    array = arguments.get(name)
    if array is None:
        return None
    own = widened(array)[batch]
    return np.take(own, np.array(places, dtype=np.int64), axis=-2)


def _row_arguments(
    arguments: Mapping[str, Any],
    batch: tuple[int, ...],
    sequence: tuple[int, ...],
    i: int,
    places: list[int],
) -> Arguments:
    """Return the arguments of one query: its row of each array of pairs, and the ids of it and its keys."""
    own: Any = (*batch, slice(None), slice(i, i + 1))
    names = [name for name in ("query", "query_rotary") if name in arguments]
    row: Arguments = {name: np.asarray(arguments[name])[own] for name in names}
    for name in ("mask", "bias", "dropout_mask"):
        if name in arguments:
            row[name] = arguments[name][own][..., places]
    if "query_segment_ids" in arguments:
        row["query_segment_ids"] = np.asarray(arguments["query_segment_ids"])[batch][i : i + 1]
    for name in ("key_segment_ids", "key_positions"):
        if name in arguments:
            ids = np.asarray(arguments[name])
            row[name] = (ids[sequence] if "block_table" in arguments else ids[batch])[places]
    return row


def _integer(given: Any, sequence: tuple[int, ...]) -> int:
    array = np.asarray(given)
    return int(array if array.ndim == 0 else array[sequence])
