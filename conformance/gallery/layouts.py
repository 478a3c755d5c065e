"""Wrong about the memory layout of arrays."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from attnspec.conformance.gallery.entry import Array, altered, base, wrong
from attnspec.reference.call import Call
from attnspec.reference.notation import Attention


@wrong("wide", "NUM-8", "H", "pytorch/pytorch#112577")
def read_in_the_order_of_memory(call: Call, array: Array) -> Any:
    """Read a transposed array as if it were not."""
    return base.wide(call, array.ravel(order="K").reshape(array.shape))


@wrong("wide", "NUM-8", "H", "pytorch/pytorch#181133")
def last_axis_taken_to_be_dense(call: Call, array: Array) -> Any:
    """Read features one after the other, whatever lies between them."""
    apart = array.size > 0 and array.strides[-1] > array.itemsize
    dense = as_strided(array, strides=(*array.strides[:-1], array.itemsize)) if apart else array
    return base.wide(call, dense)


@wrong("wide", "NUM-8", "H")
def beginning_of_a_view_forgotten(call: Call, array: Array) -> Any:
    """Read a view from where its buffer begins."""
    whole = array.base if isinstance(array.base, np.ndarray) else None
    if whole is None or not array.size or whole.ndim != array.ndim or min(array.strides) <= 0:
        return base.wide(call, array)
    return base.wide(call, as_strided(whole, array.shape, array.strides))


@wrong("entered", "NUM-8", "H", "pytorch/pytorch#163597")
def mask_read_in_the_order_of_memory(call: Attention) -> Any:
    """Read a transposed mask as if it were not."""
    return base.entered(altered(call, mask=lambda mask: mask.ravel(order="K").reshape(mask.shape)))


@wrong("wide", "NUM-8", "H", "Dao-AILab/flash-attention#818")
def rows_taken_to_be_dense(call: Call, array: Array) -> Any:
    """Read rows one after the other, whatever lies between them."""
    row = array.shape[-1] * array.itemsize
    apart = array.size > 0 and array.strides[-1] == array.itemsize and array.strides[-2] > row
    dense = as_strided(array, strides=(*array.strides[:-2], row, array.itemsize)) if apart else array
    return base.wide(call, dense)
