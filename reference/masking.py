"""The keys that a query may attend to: the chapter `masking`."""

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.operations import OPERATIONS
from attnspec.reference.call import Array, Call, Mask, step
from attnspec.reference.errors import (
    booleans,
    describe,
    dtype_name,
    flag,
    integers,
    is_integer,
    need,
    need_kind,
    within,
)
from attnspec.reference.functions import evaluate
from attnspec.reference.notation import Attention, align_batch, enter
from attnspec.reference.scores import check_bias


def allowed_keys(shape: tuple[int, ...], **masks: Any) -> NDArray[np.bool_]:
    """Return for each query and key whether every source allows the pair.

    Parameters
    ----------
    shape : tuple of int
        The scores' shape, ``(*B, Hq, L, S)`` or ``(L, S)``.
    **masks
        The arguments of `attention` that mask: ``bias``, ``mask``, ``is_causal``, ``query_offset``,
        ``window``, the lengths, the segment ids and the positions.

    Returns
    -------
    bool array of that shape

    Raises
    ------
    ArgumentError
        If an argument is refused.

    Notes
    -----
    Rules MASK-1 to MASK-4, MASK-7 to MASK-11, MASK-14 and MASK-15.

    Examples
    --------
    >>> from attnspec.reference import allowed_keys
    >>> allowed_keys((2, 3), is_causal=True).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0]]
    >>> allowed_keys((2, 3), window=(0, 1), key_lengths=2).astype(int).tolist()
    [[1, 1, 0], [0, 1, 0]]
    """
    unknown = masks.keys() - set(OPERATIONS["attention"].names("masks"))
    if unknown:
        raise TypeError(
            f"allowed_keys(): expected only arguments that mask, got {', '.join(sorted(unknown))}"
        )
    *rows, keys = shape
    arrays = {"query": np.empty((*rows, 0)), "key": np.empty((*rows[:-1], keys, 0))}  # only shapes
    return np.array(evaluate(allowed_of, arrays | masks | {"dtype": float}))


def allowed_of(call: Call, query: Array, key: Array, **options: Any) -> Mask:
    """Compute the allowed keys in the same way as attention."""
    pairs = check_bias(Attention(call.steps, call.xp, call.dtype, query, key, key, **options))
    for check in MASK_CHECKS:
        pairs = check(pairs)
    pairs = enter(pairs)
    return allowed_pairs(pairs)[0, ...] if pairs.flat else allowed_pairs(pairs)


@step
def check_masks(call: Attention) -> Attention:
    """Check that masks are booleans that broadcast to the scores (ERR-4, ERR-15), and flags (ERR-3)."""
    if call.mask is not None:
        booleans(call, "mask", call.mask, call.shape, "ERR-15")
    if call.dropout_mask is not None:
        booleans(call, "dropout_mask", call.dropout_mask, call.shape, "ERR-15")
    flag("is_causal", call.is_causal)
    return call


@step
def check_window(call: Attention) -> Attention:
    """Check that a window is a pair whose members are None or integers of 0 or more (ERR-7)."""
    if call.window is None:
        return call
    window = call.window
    good = isinstance(window, tuple | list) and len(window) == 2
    good = good and all(side is None or (is_integer(side) and side >= 0) for side in window)
    got = f"({', '.join(map(describe, window))})" if isinstance(window, tuple | list) else describe(window)
    need("window", good, "a pair of None or whole numbers from 0 on", got, "ERR-7")
    # A distance needs at most 63 bits, so larger bounds are reduced to that.
    left, right = (None if side is None else min(int(side), 2**63 - 1) for side in window)
    return call.but(window=(left, right))


@step
def check_integers(call: Attention) -> Attention:
    """Check that offsets and lengths are one integer, or one for each batch entry (ERR-8)."""
    taken = {"query_offset": integers(call, "query_offset", call.query_offset, call.batch, "ERR-8")}
    for name in ("query_lengths", "key_lengths"):
        if getattr(call, name) is not None:
            taken[name] = integers(call, name, getattr(call, name), call.batch, "ERR-8")
    return call.but(**taken)


@step
def check_ranges(call: Attention) -> Attention:
    """Check that lengths lie within their axis (ERR-9)."""
    for name, most in (("query_lengths", call.queries), ("key_lengths", call.keys)):
        if getattr(call, name) is not None:
            within(call, name, getattr(call, name), 0, most, "ERR-9")
    return call


@step
def check_segments(call: Attention) -> Attention:
    """Check that both segment ids are given, and hold one integer for each position (ERR-10)."""
    if call.query_segment_ids is None and call.key_segment_ids is None:
        return call
    own, other = call.query_segment_ids, call.key_segment_ids
    sides = {"query_segment_ids": (own, call.queries), "key_segment_ids": (other, call.keys)}
    for name, (given, positions) in sides.items():
        shape = (*call.batch, positions)
        need(name, given is not None, "ids as for the other side", None, "ERR-10")
        need(name, not is_integer(given), f"integers of shape {shape}", given, "ERR-10")
        integers(call, name, given, shape, "ERR-10")
    taken = as_ids(call.xp, own, other)
    return call.but(query_segment_ids=taken, key_segment_ids=as_ids(call.xp, other, own))


def as_ids(xp: Any, own: Array, other: Array) -> Array:
    """Return segment ids in int64. Beside signed ids, one from 2^63 up becomes an id that these lack."""
    ids = xp.astype(own, xp.int64)
    if dtype_name(own) != "uint64" or dtype_name(other) == "uint64":
        return ids
    free = next(number for number in itertools.count(-(2**63)) if not bool(xp.any(other == number)))
    return xp.where(ids < 0, free, ids)


@step
def check_query_and_key_positions(call: Attention) -> Attention:
    """Check that positions are integers, one for each query or key, and exclude an offset (ERR-18)."""
    taken = {}
    for name, count in (("query_positions", call.queries), ("key_positions", call.keys)):
        given = getattr(call, name)
        if given is not None:
            need(name, not is_integer(given), f"integers of shape {(*call.batch, count)}", given, "ERR-18")
            taken[name] = integers(call, name, given, (*call.batch, count), "ERR-18")
    if "query_positions" in taken:
        offset = call.query_offset
        alone = is_integer(offset) and offset == 0
        need_kind("query_positions", alone, "no query_offset beside it", offset, "ERR-18")
    return call.but(**taken)


#: The arguments of `allowed_keys`.
MASK_CHECKS = (
    check_masks,
    check_window,
    check_query_and_key_positions,  # before offsets become arrays, as a compiler makes them
    check_integers,
    check_ranges,
    check_segments,
)


@step
def allowed_pairs(call: Attention) -> Mask:
    """Whether every source allows the pair, ``(*B, Hq, L, S)`` (MASK-4)."""
    result = call.xp.broadcast_to(call.j >= 0, call.shape)
    for source in SOURCES:
        if (pairs := source(call)) is not True:
            result = result & pairs
    return result


@step
def by_mask(call: Attention) -> Mask:
    """Allow where the mask is True (MASK-1)."""
    return True if call.mask is None else call.mask


@step
def by_bias(call: Attention) -> Mask:
    """Disallow where the bias is minus infinity (MASK-2)."""
    return True if call.bias is None else call.bias != -math.inf


@step
def by_causality(call: Attention) -> Mask:
    """Disallow keys after the query (MASK-3)."""
    return key_position(call) <= position(call) if call.is_causal else True


@step
def position(call: Attention) -> Array:
    """Position of each query among the keys, ``(*B, 1, L, 1)`` (MASK-7, MASK-14)."""
    if call.query_positions is None:
        return call.i + align_batch(call.query_offset)
    return call.query_positions[..., None, :, None]


@step
def key_position(call: Attention) -> Array:
    """Position of each key, ``(S,)`` or ``(*B, 1, 1, S)`` (MASK-14)."""
    return call.j if call.key_positions is None else call.key_positions[..., None, None, :]


@step
def by_window(call: Attention) -> Mask:
    """Allow keys within the bounds of the window, inclusive (MASK-8)."""
    left, right = call.window or (None, None)
    ahead = key_position(call) - position(call)  # distance of the key after the query
    after = True if left is None else ahead >= -left
    return after if right is None else after & (ahead <= right)


@step
def by_key_lengths(call: Attention) -> Mask:
    """Allow keys below the length (MASK-9)."""
    return True if call.key_lengths is None else call.j < align_batch(call.key_lengths)


@step
def by_query_lengths(call: Attention) -> Mask:
    """Allow queries below the length (MASK-10)."""
    return True if call.query_lengths is None else call.i < align_batch(call.query_lengths)


@step
def by_segments(call: Attention) -> Mask:
    """Allow pairs with equal ids (MASK-11)."""
    if call.query_segment_ids is None or call.key_segment_ids is None:
        return True
    equal = call.query_segment_ids[..., :, None] == call.key_segment_ids[..., None, :]  # (*B, L, S)
    return equal[..., None, :, :]


@step
def by_key_positions(call: Attention) -> Mask:
    """Disallow keys at a negative position (MASK-15)."""
    return True if call.key_positions is None else key_position(call) >= 0


#: Every source must allow the pair (MASK-4).
SOURCES = (
    by_mask,
    by_bias,
    by_causality,
    by_window,
    by_key_lengths,
    by_query_lengths,
    by_segments,
    by_key_positions,
)
