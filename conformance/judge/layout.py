"""Memory layouts: views that hold the same numbers (NUM-8)."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attnspec.backends.library.library import device_of

Layout = Callable[[Any, Any], Any]


def _transpose(xp: Any, array: Any) -> Any:
    """Store the last two axes in exchanged order."""
    return _swap(_fill(xp, _swap(array, -1, -2), lambda buffer: buffer, ()), -1, -2)


def _positions_first(xp: Any, array: Any) -> Any:
    """Store as (*B, positions, heads, depth), the order of many libraries."""
    if array.ndim < 3:
        return _transpose(xp, array)
    return _swap(_fill(xp, _swap(array, -2, -3), lambda buffer: buffer, ()), -2, -3)


def _backwards(array: Any) -> Any:
    for axis in range(array.ndim // 2):
        array = _swap(array, axis, -1 - axis)
    return array


def _part(index: Any, *times: int, axes: int = 0) -> Layout:
    """Store in a part of a buffer that is some times as large, if the array has more than some axes."""
    return lambda xp, array: (
        _fill(xp, array, lambda buffer: buffer[index], times) if array.ndim > axes else array
    )


def _within(xp: Any, array: Any) -> Any:
    """Start in the middle of a longer row, like the parts of a fused projection."""
    count = array.shape[-1]
    return _fill(xp, array, lambda buffer: buffer[..., count : 2 * count], (3,))


def _surround(number: int) -> Layout:
    """Lie between a number before and behind, or for integers and booleans between zeros or ones."""

    def run(xp: Any, array: Any) -> Any:
        fill, count = number if "float" in str(array.dtype) else int(number > 0), array.shape[0]
        memory = xp.full((3 * count, *array.shape[1:]), fill, dtype=array.dtype, **device_of(array))
        part = memory[count : 2 * count]
        part[...] = array
        return part

    return run


def _fill(xp: Any, array: Any, view: Callable[[Any], Any], factors: tuple[int, ...]) -> Any:
    """Allocate a buffer whose trailing axes are longer by some factors, and write through a view of it."""
    shape = list(array.shape)
    for axis, factor in enumerate(factors, start=-len(factors)):
        shape[axis] *= factor
    part = view(xp.full(tuple(shape), 1, dtype=array.dtype, **device_of(array)))
    part[...] = array
    return part


def _swap(array: Any, one: int, other: int) -> Any:
    return array.swapaxes(one, other)


#: Layouts by name.
LAYOUTS: Mapping[str, Layout] = {
    "transposed": _transpose,
    "positions first": _positions_first,
    "column major": lambda xp, array: _backwards(_fill(xp, _backwards(array), lambda buffer: buffer, ())),
    "sliced": _part(np.s_[..., ::2], 2),
    "sliced rows": _part(np.s_[..., 1::2, :], 2, 1),
    "within": _within,
    "reversed": _part(np.s_[..., ::-1]),
    "reversed rows": _part(np.s_[..., ::-1, :], axes=1),
    "reversed heads": _part(np.s_[..., ::-1, :, :], axes=2),
    # By strides of 0: all heads, or all parts along the first axis, are equal.
    "repeated": lambda xp, x: xp.broadcast_to(x[..., :1, :, :], x.shape) if x.ndim > 2 else x,
    "expanded": lambda xp, array: xp.broadcast_to(array[:1], array.shape),
}
#: The same layout with other numbers around an array. Arrays of valid calls hold smaller ones.
SURROUNDED: Mapping[str, Layout] = {f"between {number}": _surround(number) for number in (-100, 100)}
#: The beginning of the layout of an argument that is another one, whose name follows.
SHARED = "shared with "
#: The layouts that hold any numbers. The others repeat one head, or one number.
OF_ANY_NUMBERS = tuple(name for name in LAYOUTS if name not in ("repeated", "expanded"))


def needs_strides(layout: str) -> tuple[str, ...]:
    """Return the kinds of strides, as in `Library.strides`, with which a layout is possible."""
    return ("any",) if layout.startswith("reversed") else ("any", "positive")
