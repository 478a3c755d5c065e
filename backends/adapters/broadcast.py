"""Masks and biases in the whole shape that a function needs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnspec.backends.errors import Unsupported


def broadcast(xp: Any, array: Any, shape: Sequence[int]) -> Any:
    """Broadcast an array, which is NumPy's, PyTorch's or JAX's by `xp`.

    A shape that does not fit is declined, as the function never sees it.
    """
    try:
        fits = np.broadcast_shapes(tuple(array.shape), tuple(shape)) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise Unsupported(f"{tuple(array.shape)} does not broadcast to {tuple(shape)}, which is asked for")
    return xp.broadcast_to(array, tuple(shape))


def require_axes(count: int, *arrays: Any) -> None:
    """Decline arrays of fewer axes, which have no place in a layout."""
    if any(len(array.shape) < count for array in arrays):
        raise Unsupported(f"an array of fewer than {count} axes has no place in the layout")
