"""The chapter `numerics`: however the inputs lie in memory (NUM-8)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from attnspec.backends import Backend
from attnspec.conformance.extent import tried
from attnspec.conformance.suite.options import biased
from attnspec.conformance.suite.problem import SHAPES, problem_of
from attnspec.conformance.suite import Record, check, rule

#: Views can be made from outside in these; of the others the layout is their own affair.
_LIBRARIES = ("numpy", "torch")


def _transposed(xp: Any, array: Any) -> Any:
    """The last two axes stored the other way round."""
    return _last_swapped(_filled(xp, _last_swapped(array), lambda buffer: buffer, ()))


def _positions_first(xp: Any, array: Any) -> Any:
    """Stored as (*B, positions, heads, depth), as many libraries have it."""
    if array.ndim < 3:
        return _transposed(xp, array)
    return _swapped(_filled(xp, _swapped(array, -2, -3), lambda buffer: buffer, ()), -2, -3)


def _sliced(xp: Any, array: Any) -> Any:
    """Every second element of a larger array, along the last axis."""
    return _filled(xp, array, lambda buffer: buffer[..., ::2], (2,))


def _sliced_rows(xp: Any, array: Any) -> Any:
    """Every second row of a larger array, and not its first."""
    return _filled(xp, array, lambda buffer: buffer[..., 1::2, :], (2, 1))


def _within(xp: Any, array: Any) -> Any:
    """Beginning in the middle of a longer row, as the parts of a fused projection do."""
    count = array.shape[-1]
    return _filled(xp, array, lambda buffer: buffer[..., count : 2 * count], (3,))


def _reversed(xp: Any, array: Any) -> Any:
    """Stored from last to first."""
    return _filled(xp, array, lambda buffer: buffer[..., ::-1], ())


def _repeated(xp: Any, array: Any) -> Any:
    """One head, repeated by a stride of 0; all heads are equal in the problem."""
    return xp.broadcast_to(array[..., :1, :, :], array.shape) if array.ndim > 2 else array


def _filled(xp: Any, array: Any, view: Callable[[Any], Any], factors: tuple[int, ...]) -> Any:
    """Make a buffer whose trailing axes are so many times as long, and write the array through a view."""
    shape = list(array.shape)
    for axis, factor in enumerate(factors, start=-len(factors)):
        shape[axis] *= factor
    part = view(xp.full(tuple(shape), 1, dtype=array.dtype))
    part[...] = array
    return part


def _last_swapped(array: Any) -> Any:
    return _swapped(array, -1, -2)


def _swapped(array: Any, one: int, other: int) -> Any:
    return array.swapaxes(one, other)


_LAYOUTS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "transposed": _transposed,
        "positions first": _positions_first,
        "sliced": _sliced,
        "sliced rows": _sliced_rows,
        "within": _within,
        "reversed": _reversed,
        "repeated": _repeated,
    }
)


def _laid_out(backend: Backend, names: tuple[str, ...], layout: str) -> Backend:
    """Have a backend's function called with some of its arrays as such views."""
    function = backend.attention

    @wraps(function)  # keeps the signature, which is the list of capabilities
    def run(*arrays: Any, **options: Any) -> Any:
        given = dict(zip(("query", "key", "value"), arrays, strict=True)) | options
        for name in names:
            given[name] = _LAYOUTS[layout](backend.xp, given[name])
        views = [given.pop(name) for name in ("query", "key", "value")]
        return function(*views, **given)

    return replace(backend, attention=run)


@rule("NUM-8")
@pytest.mark.parametrize("name", ["query", "key", "value", "mask", "bias", "all"])
@pytest.mark.parametrize("layout", _LAYOUTS)
def test_strides_do_not_matter(layout: str, name: str, backend: Backend, record_property: Record) -> None:
    """Each input as a view, and all of them."""
    if backend.library not in _LIBRARIES or (layout == "reversed" and backend.library == "torch"):
        pytest.skip(f"{backend.library} makes no such view")
    for dtype in tried(backend.dtypes):
        problem = problem_of(SHAPES[4], dtype, 8)
        arguments: dict[str, Any] = problem.arguments
        arguments |= {"mask": {"mask": problem.mask()}, "bias": {"bias": biased(problem)}}.get(name, {})
        if layout == "repeated":
            arguments = {
                key: np.array(np.broadcast_to(x[..., :1, :, :], x.shape)) for key, x in arguments.items()
            }
        names = tuple(arguments) if name == "all" else (name,)
        check(_laid_out(backend, names, layout), "NUM-8", arguments, record_property)
