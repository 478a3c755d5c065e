"""Windows and offsets as a function takes them, such as a window that is one number of keys."""

from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from attnspec.backends.errors import Unsupported
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.slopes import integers_of
from attnspec.sizes import bound


def with_own_places(
    call: Mapping[str, Any], convention: Convention, taken: Container[str], operation: str = "attention"
) -> dict[str, Any]:
    """Write the window and the offset of a call as the function takes them.

    An offset of 0 is none, and is left out where the last query is at the last key without one. `taken` has
    the options that the function takes or always applies. One number for a window says how far a query looks
    back, and causality closes the right side. If the function has no causality, the number closes it.
    """
    call = dict(call)
    if convention.from_end and type(call.get("query_offset")) is int and call["query_offset"] == 0:
        del call["query_offset"]
    call = _with_end_at_length(call, convention, operation) if convention.at_length else call
    window = call.get("window")
    if not isinstance(window, tuple) or len(window) != 2:
        return call
    if convention.window == "sides":
        call["window"] = _open_sides(window, convention.open_side)
        return call
    left, right = window
    causal, closed = "is_causal" in taken, right == 0 or call.get("is_causal") is True
    _check_right_side(window, convention.window, causal=causal, closed=closed)
    if right == 0 and causal and convention.window != "both":
        call["is_causal"] = True
    if type(left) is int:
        call["window"] = _side_that_closes(left + (convention.window == "keys"), convention.open_side)
    elif left is None and (right is None or causal):
        del call["window"]
    else:
        raise Unsupported(f"the function takes a window as one integer, got {left}")
    return call


def _with_end_at_length(call: Mapping[str, Any], convention: Convention, operation: str) -> dict[str, Any]:
    """Leave out the offset at which the last query is at the last key of the length, which is always so."""
    if "block_table" in call and call.get("query_offset") is None:
        return dict(call)  # pages are so without an offset
    letters = bound(operation, call)[0].letters
    queries, keys = (
        np.diff(integers_of(call[starts])) if starts in call else letters.get(letter, letters.get("L", 0))
        for starts, letter in (("query_starts", "L"), ("key_starts", "S"))
    )
    asked = call.get("query_offset")
    asked = (keys - queries if convention.from_end else 0) if asked is None else asked
    lengths = keys if call.get("key_lengths") is None else call["key_lengths"]
    asked, lengths = (np.asarray(x.tolist() if hasattr(x, "tolist") else x) for x in (asked, lengths))
    if "new_key" in call:
        lengths = lengths + call["new_key"].shape[-2]
    sloped = bool(convention.slopes) and call.get("bias") is not None
    placed = call.get("is_causal") is True or call.get("window") is not None or sloped
    if placed and not np.all(asked == lengths - queries):
        raise Unsupported("the last query of the function is at the last key of the length")
    return {name: x for name, x in call.items() if name != "query_offset"}


def _check_right_side(window: tuple[Any, Any], kind: str, *, causal: bool, closed: bool) -> None:
    """Decline a window with a right side that one number cannot express."""
    left, right = window
    if kind == "both":
        if left != right:
            raise Unsupported("the function takes a window of as many keys on both sides")
    elif not causal and right != 0:
        raise Unsupported("the window of the function ends at the position of the query")
    elif right is not None and not closed:
        raise Unsupported("the function closes the right side of a window by causality alone")


def _open_sides(window: tuple[Any, ...], number: int | None) -> tuple[Any, ...]:
    """Replace None by the number that opens a side of a window."""
    if number is None:
        return window
    return tuple(number if side is None else _side_that_closes(side, number) for side in window)


def _side_that_closes(side: Any, number: int | None) -> Any:
    """Return a side, unless it is the number that opens one: such a call must be rejected."""
    if number is not None and side == number:
        raise Unsupported(f"the function opens a side of a window by {number}")
    return side
