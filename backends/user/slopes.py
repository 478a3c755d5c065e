"""The slopes of ALiBi, for a function that takes them in place of a bias."""

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.backends.errors import Unsupported
from attnspec.backends.library.library import device_of
from attnspec.backends.user.convention import Convention

#: The exponents of slopes: no head has the slope of its neighbour, and the order is no sequence.
_EXPONENTS = (-2, -4, -1, -3, -6, -5)


def with_slopes(
    call: Mapping[str, Any], convention: Convention, xp: Any, needed: Container[str] = ()
) -> dict[str, Any]:
    """Replace a bias by the slopes that it has.

    The bias of a pair is the slope of its head times the distance of query and key, below zero (POS-8).
    Another bias is declined. A function that needs slopes, or has those of POS-7 by default, gets slopes of 0
    in a call without a bias. With signed distances only those of keys that causality allows are these.
    """
    arguments = dict(call)
    bias = arguments.pop("bias", None)
    causal = call.get("is_causal") is True or "is_causal" in convention.always
    if bias is not None and convention.signed_slopes and not causal:
        raise Unsupported("takes slopes of signed distances, which are those of a bias in causal calls alone")
    if bias is None and convention.slopes not in needed and "bias" not in convention.given:
        return arguments
    heads = (1, *call["query"].shape)[-3]
    slopes = np.zeros(heads) if bias is None else slopes_of(call, from_end=convention.from_end)
    return arguments | {convention.slopes: xp.asarray(slopes, dtype=xp.float32, **device_of(call["query"]))}


def slopes_of(call: Mapping[str, Any], *, from_end: bool = False) -> NDArray[np.float32]:
    """Return the slope of each head, ``(Hq,)``, from the bias of attention, packed rows or pages.

    With `from_end` the last query is at the last key where the call has no offset (MASK-3).
    """
    if "float" not in str(call["bias"].dtype):
        raise Unsupported(f"takes slopes of ALiBi, got a bias of {call['bias'].dtype}")
    query, bias = call["query"], call["bias"]
    bias = np.asarray(bias if isinstance(bias, np.ndarray) else bias.tolist(), np.float64)
    distances = distances_of(call, from_end=from_end)  # (*B, L, S)
    outer, heads = distances.shape[:-2], (1, *query.shape)[-3]
    try:
        bias = np.broadcast_to(bias, (*outer, heads, *distances.shape[-2:]))
    except ValueError:
        raise Unsupported(f"takes slopes of ALiBi, got a bias of the shape {bias.shape}") from None
    by_head = np.moveaxis(bias, -3, 0).reshape(heads, -1)  # (Hq, *B L S)
    far = distances.ravel()
    slopes = np.zeros(heads, np.float32)
    if far.size and np.nanmax(far, initial=0) > 0:
        at = np.nanargmax(far)
        with np.errstate(over="ignore"):  # a bias past the range of float32 has no slopes
            slopes = np.nan_to_num(-by_head[:, at] / far[at], posinf=0, neginf=0).astype(np.float32)
    counts = ~np.isnan(far)
    with np.errstate(invalid="ignore"):
        biased = -slopes.astype(np.float64)[:, None] * far[counts]
    if not np.array_equal(by_head[:, counts], biased):
        raise Unsupported("takes slopes of ALiBi, got a bias that is none of ALiBi")
    return slopes


def linear_bias(call: Mapping[str, Any], *, from_end: bool = False) -> NDArray[Any]:
    """Make a bias of slopes that every dtype holds, ``(*B, Hq, L, S)``."""
    slopes = np.ldexp(1.0, np.resize(_EXPONENTS, (1, *call["query"].shape)[-3]))[:, None, None]
    bias = -slopes * np.nan_to_num(distances_of(call, from_end=from_end))[..., None, :, :]
    return bias.astype(call["query"].dtype)


def distances_of(call: Mapping[str, Any], *, from_end: bool = False) -> NDArray[np.float64]:
    """Return the distance of each query and each key, ``(*B, L, S)``, or NaN in different sequences."""
    outer = call["query"].shape[:-3]
    distances = np.abs(relative_positions_of(call, from_end=from_end)).astype(np.float64)
    if "key_starts" in call:
        of_query = _sequences(call["query_starts"], call["query"])
        of_key = _sequences(call["key_starts"], call[_name_of_keys(call)])
        distances = np.where(of_query[:, None] != of_key, np.nan, distances)
    return np.broadcast_to(distances, (*outer, *distances.shape[-2:]))


def positions_of(
    call: Mapping[str, Any], *, from_end: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of queries and of keys, each ``(L)`` or ``(S)`` or with axes of a batch.

    With `from_end` the last query is at the last key where the call has no offset (MASK-3).
    """
    places = np.arange(call["query" if "query" in call else "query_codes"].shape[-2])
    if "block_table" in call:
        name = next(name for name in ("key_pages", "latent_pages") if name in call)
        columns = np.arange(call["block_table"].shape[-1] * call[name].shape[-2])
        new = call.get("new_key")
        lengths = integers_of(call["key_lengths"]) + (0 if new is None else new.shape[-2])
    else:
        columns = np.arange(call[_name_of_keys(call)].shape[-2])
        lengths = (
            np.diff(integers_of(call["key_starts"])) if "key_starts" in call else np.asarray(len(columns))
        )
    packed, sequence = "query_starts" in call, 0 * places
    if packed:
        counts = np.diff(integers_of(call["query_starts"]))
        places, sequence = _in_sequences(call["query_starts"], len(places))
    else:
        counts = np.asarray(len(places))
    ends = from_end or "block_table" in call
    offset = integers_of(call.get("query_offset", lengths - counts if ends else 0))
    if packed:  # rows past the last sequence are of none
        offset = np.append(np.broadcast_to(offset, counts.shape), 0)[sequence]
    rows = integers_of(call.get("query_positions", places + (offset if packed else offset[..., None])))
    if "key_starts" in call:
        columns = _in_sequences(call["key_starts"], len(columns))[0]
    return rows, integers_of(call.get("key_positions", columns))


def relative_positions_of(call: Mapping[str, Any], *, from_end: bool = False) -> NDArray[np.int64]:
    """Return the position of each key less that of each query, ``(L, S)`` or with axes of a batch."""
    rows, columns = positions_of(call, from_end=from_end)
    if "query_starts" in call and columns.ndim > 1:  # the pages of each sequence have positions of their own
        columns = np.append(columns, np.zeros((1, columns.shape[-1]), np.int64), axis=0)
        return columns[_in_sequences(call["query_starts"], len(rows))[1]] - rows[:, None]
    return columns[..., None, :] - rows[..., :, None]


def _name_of_keys(call: Mapping[str, Any]) -> str:
    """Return the name of the array that has a row for each key, where there are no pages."""
    return next(name for name in ("key", "key_codes", "latent", "latent_codes") if name in call)


def _sequences(starts: Any, array: Any) -> NDArray[np.int64]:
    return _in_sequences(starts, array.shape[-2])[1]


def _in_sequences(starts: Any, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place of each row in its sequence, and the number of the sequence."""
    first = integers_of(starts)
    sequence = np.searchsorted(first, np.arange(rows), "right") - 1
    return np.arange(rows) - first[sequence], sequence


def integers_of(numbers: Any) -> NDArray[np.int64]:
    """Return an integer, or an array of integers of any library, as an array of NumPy."""
    return np.asarray(numbers.tolist() if hasattr(numbers, "tolist") else numbers, np.int64)
