"""The axes of arrays: how many there are, and the order in which a function expects them."""

from typing import Any

from attnspec import OPERATIONS
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.convention import PACKED
from attnspec.operations.letters import BATCH, HEADS

_OPERATION = OPERATIONS["attention"]
#: Arguments with batch axes but no heads axis: (*B, L), (*B, S), (*B).
BY_ENTRY = tuple(
    one.name for one in _OPERATION.named if one.axis(BATCH) is not None and one.axis(*HEADS) is None
)
#: Arguments that broadcast to (*B, Hq, L, S).
OF_PAIRS = tuple(one.name for one in _OPERATION.named if one.broadcasts)


def of_axes(call: dict[str, Any], axes: int | None) -> dict[str, Any]:
    """Add leading axes; arrays with different numbers of axes stay, for the function to refuse."""
    found = {call[array].ndim for array in _OPERATION.arrays}
    if axes is None or found == {axes} or len(found) > 1 or min(found) < 2:
        return dict(call)
    (got,) = found
    if got > axes:
        raise Unsupported(f"the function takes only arrays of {axes} axes, got {got}")
    call = dict(call)
    for array in _OPERATION.arrays:
        call[array] = _with_leading(call[array], axes)
    if axes == 4:  # a batch axis may have been added
        for option in BY_ENTRY:
            if getattr(call.get(option), "shape", None) is not None and call[option].ndim < 2:
                call[option] = call[option].reshape((1, *call[option].shape))
    return call


def without_axes(array: Any, outer: tuple[int, ...], axes: int | None) -> Any:
    """Remove the leading axes that `of_axes` added."""
    added = 0 if axes is None else axes - 2 - len(outer)
    if added <= 0 or tuple(array.shape[:added]) != (1,) * added:
        return array
    return array.reshape(tuple(array.shape[added:]))


def with_mask_axes(call: dict[str, Any], axes: int | None) -> dict[str, Any]:
    """Add leading axes to the arrays of pairs of a query and a key."""
    found = {name: call[name] for name in OF_PAIRS if call.get(name) is not None}
    if axes is None or not found:
        return call
    most = max(array.ndim for array in found.values())
    if most > axes:
        raise Unsupported(f"the function takes only masks of {axes} axes, got {most}")
    return call | {name: _with_leading(array, axes) for name, array in found.items()}


def check_packed(call: dict[str, Any]) -> None:
    """Decline a call that arrays without an axis of heads cannot express."""
    key, value = call["key"], call["value"]
    if key.ndim > 2 and value.ndim > 2 and key.shape[-3] != value.shape[-3]:
        raise Unsupported(
            f"the layout {PACKED} has as many heads of values as of keys: "
            f"expected {key.shape[-3]}, got {value.shape[-3]}"
        )


def laid_out(array: Any, layout: str, xp: Any) -> Any:
    """Bring an array of (*B, H, S, D) into a layout."""
    if layout == "BHSD" or array.ndim < (4 if layout == PACKED else 3):
        return array
    array = _swapped(array, xp)  # (*B, S, H, D)
    return (
        array.reshape((*array.shape[:-2], array.shape[-2] * array.shape[-1])) if layout == PACKED else array
    )


def laid_back(array: Any, layout: str, heads: int, xp: Any) -> Any:
    """Bring an output in a layout to (*B, Hq, L, Dv)."""
    if layout == PACKED and array.ndim == 3 and heads and not array.shape[-1] % heads:
        array = array.reshape((*array.shape[:-1], heads, array.shape[-1] // heads))
    elif layout != "BSHD":
        return array
    return _swapped(array, xp)


def _swapped(array: Any, xp: Any) -> Any:
    """Exchange the axes of heads and positions, if there are heads."""
    if array.ndim < 3:
        return array
    order = [*range(array.ndim - 3), array.ndim - 2, array.ndim - 3, array.ndim - 1]
    return xp.permute_dims(array, order) if hasattr(xp, "permute_dims") else array.transpose(order)


def _with_leading(array: Any, axes: int) -> Any:
    return array.reshape((1,) * (axes - array.ndim) + tuple(array.shape))
