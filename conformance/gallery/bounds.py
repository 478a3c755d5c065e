"""Wrong about the bounds of a window."""

from typing import Any

from attnspec.conformance.gallery.entry import altered, base, wrong
from attnspec.reference.notation import Attention


def _sides(call: Attention) -> tuple[Any, Any]:
    left, right = call.window or (None, None)
    return left, right


@wrong("by_window", "MASK-8", "E")
def right_bound_dropped_where_the_left_is_open(call: Attention) -> Any:
    """Ask for the left bound first, and pass over the right one where there is none."""
    return True if _sides(call)[0] is None else base.by_window(call)


@wrong("by_window", "MASK-8", "E")
def left_bound_dropped_where_the_right_is_open(call: Attention) -> Any:
    """Ask for the right bound first, and pass over the left one where there is none."""
    return True if _sides(call)[1] is None else base.by_window(call)


@wrong("by_window", "MASK-8", "E")
def right_bound_without_effect(call: Attention) -> Any:
    """Use only the left bound of a window."""
    return base.by_window(call.but(window=(_sides(call)[0], None)))


@wrong("by_window", "MASK-8", "E")
def left_bound_without_effect(call: Attention) -> Any:
    """Use only the right bound of a window."""
    return base.by_window(call.but(window=(None, _sides(call)[1])))


@wrong("by_window", "MASK-8", "E")
def right_bound_one_too_far(call: Attention) -> Any:
    """Allow one more key on the right of a window."""
    return base.by_window(
        altered(call, window=lambda pair: (pair[0], None if pair[1] is None else pair[1] + 1))
    )


@wrong("by_window", "MASK-8", "E")
def left_bound_one_too_far(call: Attention) -> Any:
    """Allow one more key on the left of a window."""
    return base.by_window(
        altered(call, window=lambda pair: (None if pair[0] is None else pair[0] + 1, pair[1]))
    )


@wrong("by_window", "MASK-8", "E")
def right_bound_one_too_near(call: Attention) -> Any:
    """Compare with the right bound by `<`, so that a bound of 0 disallows the query's own key."""
    right = _sides(call)[1]
    return base.by_window(call) & (True if right is None else call.j < base.position(call) + right)


@wrong("by_window", "MASK-8", "E")
def sides_of_the_window_exchanged(call: Attention) -> Any:
    """Take the first bound for the right one."""
    return base.by_window(altered(call, window=lambda pair: (pair[1], pair[0])))


@wrong("by_window", "MASK-8", "E")
def window_of_the_right_bound_on_both_sides(call: Attention) -> Any:
    """Take the right bound for both sides."""
    return base.by_window(altered(call, window=lambda pair: (pair[1], pair[1])))


@wrong("by_window", "MASK-8", "E")
def open_side_taken_for_zero(call: Attention) -> Any:
    """Take None for no keys on that side."""
    return base.by_window(altered(call, window=lambda pair: (pair[0] or 0, pair[1] or 0)))


@wrong("by_window", "MASK-8", "E")
def open_left_side_taken_for_zero(call: Attention) -> Any:
    """Take None on the left for no keys before the query."""
    return base.by_window(altered(call, window=lambda pair: (pair[0] or 0, pair[1])))


@wrong("by_window", "MASK-8", "E")
def left_bound_of_zero_taken_for_none(call: Attention) -> Any:
    """Ask whether the left bound is given by asking whether it is true."""
    return base.by_window(altered(call, window=lambda pair: (pair[0] or None, pair[1])))


@wrong("by_window", "MASK-8", "E")
def right_bound_of_zero_taken_for_none(call: Attention) -> Any:
    """Ask whether the right bound is given by asking whether it is true."""
    return base.by_window(altered(call, window=lambda pair: (pair[0], pair[1] or None)))


@wrong("by_window", "MASK-8", "E")
def window_of_the_larger_bound(call: Attention) -> Any:
    """Compare the distance of key and query with the larger bound."""
    left, right = _sides(call)
    most = None if left is None or right is None else max(left, right)
    return base.by_window(call.but(window=(most, most)))


@wrong("by_window", "MASK-8", "E")
def window_dropped_unless_causal(call: Attention) -> Any:
    """Apply a window only under a causal mask."""
    return base.by_window(call) if call.is_causal else True


@wrong("by_window", "MASK-8", "E")
def window_or_causal(call: Attention) -> Any:
    """Leave the left bound out under a causal mask."""
    return base.by_window(call.but(window=(None, _sides(call)[1])) if call.is_causal else call)
