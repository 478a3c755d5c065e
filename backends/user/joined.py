"""Arrays that a function takes joined in one: it lies as the arrays of a call do, if these are its parts."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided


def join(arrays: Sequence[Any], axis: int, xp: Any) -> Any:
    """Join arrays on a new axis, in new memory unless they are the parts of one array."""
    whole = whole_of(arrays, axis)
    if whole is not None:
        return whole
    joined = xp.stack(arrays, axis=axis)
    return np.ascontiguousarray(joined) if isinstance(joined, np.ndarray) else joined  # as other libraries


def whole_of(arrays: Sequence[Any], axis: int) -> Any:
    """View the parts of an array of NumPy or PyTorch as the whole, with a new axis; None for other arrays."""
    is_numpy = all(isinstance(array, np.ndarray) for array in arrays)
    if not is_numpy and not all(hasattr(array, "untyped_storage") for array in arrays):
        return None
    first = arrays[0]
    if is_numpy:
        owners = {id(array) if array.base is None else id(array.base) for array in arrays}
        strides = {array.strides for array in arrays}
        starts = [array.__array_interface__["data"][0] for array in arrays]
    else:
        if any(array.requires_grad for array in arrays):  # a view of the first gives the others no gradient
            return None
        owners = {array.untyped_storage().data_ptr() for array in arrays}
        strides = {tuple(array.stride()) for array in arrays}
        starts = [array.storage_offset() for array in arrays]
    steps = {later - earlier for earlier, later in pairwise(starts)}
    if len(owners) > 1 or len(strides) > 1 or len(steps) > 1 or steps == {0}:
        return None
    shape: list[int] = list(first.shape)
    own: list[int] = list(*strides)
    at = len(shape) + 1 + axis
    shape.insert(at, len(arrays))
    own.insert(at, *steps)
    return as_strided(first, shape, own) if is_numpy else first.as_strided(shape, own, starts[0])
