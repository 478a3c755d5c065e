"""Which keys a query may attend to, in Array API calls alone: the chapter `masking`."""

import math
from typing import Any

from attnspec.backends.portable.errors import (
    boolean,
    check,
    check_array,
    count,
    describe,
    dtype_name,
    integers,
    is_integer,
)
from attnspec.backends.portable.notation import Shape, per_entry


def allowed_keys(
    xp: Any,
    full: Shape,
    like: Any,
    *,
    bias: Any,
    mask: Any,
    is_causal: bool,
    query_offset: Any,
    window: Any,
    query_lengths: Any,
    key_lengths: Any,
    query_segment_ids: Any,
    key_segment_ids: Any,
) -> Any:
    """Combine everything that disallows keys (MASK-1 to MASK-11).

    Parameters
    ----------
    xp : module
        The array namespace.
    full : tuple of int
        The scores' shape, ``(*B, Hq, L, S)`` or ``(L, S)``.
    like : array
        The result is made on the device where this one is.

    Returns
    -------
    array of bool, of shape `full`

    Raises
    ------
    ValueError
        By ERR-4, ERR-7 to ERR-10 and MASK-1.
    """
    outer = full[:-3]
    rows, columns = count(xp, full[-2], like)[:, None], count(xp, full[-1], like)[None, :]
    allowed = xp.broadcast_to(columns >= 0, full)
    if mask is not None:
        allowed = allowed & boolean(xp, "mask", mask, full, "MASK-1")
    if bias is not None:
        allowed = allowed & (bias != -math.inf)
    offset = integers(xp, "query_offset", query_offset, outer, "ERR-8")
    left, right = _sides(window)
    ahead = columns - rows - per_entry(offset, len(full))  # by how much a key stands after its query
    if is_causal:
        allowed = allowed & (ahead <= 0)
    if left is not None:
        allowed = allowed & (ahead >= -left)
    if right is not None:
        allowed = allowed & (ahead <= right)
    for name, lengths, size, positions in (
        ("query_lengths", query_lengths, full[-2], rows),
        ("key_lengths", key_lengths, full[-1], columns),
    ):
        if lengths is not None:
            known = integers(xp, name, lengths, outer, "ERR-8", (0, size))
            allowed = allowed & (positions < per_entry(known, len(full)))
    if query_segment_ids is None and key_segment_ids is None:
        return allowed
    query_ids = _segments(xp, "query_segment_ids", query_segment_ids, (*outer, full[-2]))
    key_ids = _segments(xp, "key_segment_ids", key_segment_ids, (*outer, full[-1]))
    if len(full) > 2:  # the head axis
        query_ids, key_ids = query_ids[..., None, :], key_ids[..., None, :]
    return allowed & (query_ids[..., :, None] == key_ids[..., None, :])


def _sides(window: Any) -> tuple[int | None, int | None]:
    """Return the two bounds of a window (ERR-7)."""
    if window is None:
        return None, None
    expected, rule = "a pair, each None or an integer of 0 or more", "ERR-7"
    check("window", isinstance(window, tuple | list), expected, describe(window), rule)
    good = len(window) == 2 and all(side is None or (is_integer(side) and side >= 0) for side in window)
    check("window", good, expected, f"({', '.join(describe(side) for side in window)})", rule)
    # A distance never needs more than 63 bits, whatever number stands for a side.
    left, right = (None if side is None else min(int(side), 2**63 - 1) for side in window)
    return left, right


def _segments(xp: Any, name: str, ids: Any, shape: Shape) -> Any:
    expected = f"integers of shape {shape}, as both segment ids are given together or neither"
    check(name, ids is not None, expected, "None", "ERR-10")
    check_array(xp, name, ids, "ERR-10")
    kind = dtype_name(ids).startswith(("int", "uint"))
    check(name, kind and tuple(ids.shape) == shape, f"integers of shape {shape}", describe(ids), "ERR-10")
    return xp.astype(ids, xp.int64)
