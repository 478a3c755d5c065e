"""Axes, what fits them, and the precision that is worked in, as in the chapter `notation`."""

import math
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from attnspec.dtypes import FORMATS, SHORT
from attnspec.reference.call import Array, Call, Mask, step
from attnspec.reference.errors import Shape, dtype_name, need, same_dtype

#: Number of keys to the left and to the right of the query's own position, None for all.
Window = tuple[int | None, int | None]


@dataclass(frozen=True)
class Attention(Call):
    """One call of attention: its arguments by their canonical names, in the chapters of their rules.

    At first they are as they were given; `entered` gives query, key and value an axis of heads and
    the working precision, and notes in `storage` what dtype results have and in `flat` whether two
    axes were given.
    """

    query: Array  # (*B, Hq, L, D)
    key: Array  # (*B, Hkv, S, D)
    value: Array  # (*B, Hkv, S, Dv)
    scale: Any = None  # a number, as the softcap
    softcap: Any = None
    bias: Array = None  # broadcasts to (*B, Hq, L, S)
    mask: Mask = None  # broadcasts to (*B, Hq, L, S)
    is_causal: bool = False
    query_offset: Any = 0  # one integer, or (*B), as the lengths
    window: Any = None  # a `Window`
    query_lengths: Any = None
    key_lengths: Any = None
    query_segment_ids: Array = None  # (*B, L)
    key_segment_ids: Array = None  # (*B, S)
    sinks: Array = None  # (Hq,)
    dropout_mask: Mask = None  # broadcasts to (*B, Hq, L, S)
    dropout_rate: float = 0.0
    return_lse: bool = False
    return_weights: bool = False
    storage: Any = None
    flat: bool = False

    @property
    def batch(self) -> Shape:
        """Sizes of the batch axes, ``B``."""
        return tuple(self.query.shape[:-3])

    @property
    def shape(self) -> Shape:
        """Shape of the scores, ``(*B, Hq, L, S)``."""
        return (*self.query.shape[:-1], self.key.shape[-2])

    @property
    def queries(self) -> int:
        """How many there are, ``L``."""
        return int(self.query.shape[-2])

    @property
    def keys(self) -> int:
        """How many there are, ``S``."""
        return int(self.key.shape[-2])

    @property
    def i(self) -> Array:
        """Index of each query, ``(L, 1)``."""
        return count(self.xp, self.queries, self.query)[:, None]

    @property
    def j(self) -> Array:
        """Index of each key, ``(S,)``."""
        return count(self.xp, self.keys, self.query)

    @property
    def sink(self) -> Array:
        """The sinks in the working precision, against the scores, ``(Hq, 1, 1)``."""
        return wide(self, self.sinks)[:, None, None]


@step
def check_dtypes(call: Attention) -> Attention:
    """Floating-point numbers, the three of one dtype (ERR-1, ERR-2)."""
    same_dtype(call, query=call.query, key=call.key, value=call.value)
    return call


@step
def check_axes(call: Attention) -> Attention:
    """Depths, positions and batch axes that fit (SHAPE-6, ERR-5).

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import attention
    >>> attention(np.ones((4, 8)), np.ones((5, 7)), np.ones((5, 7)))
    Traceback (most recent call last):
        ...
    attnspec.reference.errors.ArgumentError: key: expected depth 8 as in query, got 7 [SHAPE-6]
    """
    query, key, value = (tuple(array.shape) for array in (call.query, call.key, call.value))
    for name, shape in (("query", query), ("key", key), ("value", value)):
        need(name, len(shape) >= 2, "two axes or more", f"shape {shape}", "SHAPE-6")
        need(name, shape[-1] > 0, "a depth of 1 or more", 0, "ERR-5")
        same = len(shape) == len(query) and shape[:-3] == query[:-3]
        need(name, same, f"batch axes {query[:-3]} as in query", f"shape {shape}", "SHAPE-6")
    need("key", key[-1] == query[-1], f"depth {query[-1]} as in query", key[-1], "SHAPE-6")
    need("value", value[-2] == key[-2], f"{key[-2]} positions as in key", value[-2], "SHAPE-6")
    return call


@step
def entered(call: Attention) -> Attention:
    """Two axes are one head (SHAPE-2), and everything is computed in the working precision (NUM-2)."""
    flat = call.query.ndim == 2
    arrays = {
        name: wide(call, array[None, ...] if flat else array)
        for name, array in (("query", call.query), ("key", call.key), ("value", call.value))
    }
    return call.but(storage=stored(call, call.query), flat=flat, **arrays)


@step
def wide(call: Call, array: Array) -> Array:
    """Half precision is computed in float32, anything else as it is (NUM-2, NUM-5)."""
    dtype = call.dtype
    if dtype is None:
        name = dtype_name(array)
        dtype = getattr(call.xp, FORMATS[name].working) if name in SHORT else array.dtype
    return call.xp.astype(array, dtype, copy=False)


@step
def narrow(call: Call, array: Array, storage: Any) -> Array:
    """Round a result to nearest, once (NUM-1, NUM-6)."""
    return call.xp.astype(array, storage, copy=False)


@step
def returned(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Round to the dtype of the query, all but the lse, and give what is asked for (NUM-1, NUM-7)."""
    results = [narrow(call, output, call.storage)]
    if call.return_lse:
        results.append(lse)
    if call.return_weights:
        results.append(narrow(call, weights, call.storage))
    if call.flat:
        results = [array[0, ...] for array in results]
    return tuple(results) if len(results) > 1 else results[0]


def stored(call: Call, array: Array) -> Any:
    """Take the dtype that results of an array have."""
    return array.dtype if call.dtype is None else call.dtype


def count(xp: Any, size: int, like: Array) -> Array:
    """Return 0, 1, ... below `size`, where the array `like` is."""
    return xp.arange(size, dtype=xp.int64, device=device(like))


def of_batch(numbers: Any) -> Any:
    """One number for all or one for each batch entry, against the scores, ``(*B, 1, 1, 1)``."""
    return numbers if isinstance(numbers, int) else numbers[..., None, None, None]


def largest(xp: Any, array: Array, *, axis: int) -> Array:
    """Maximum along an axis, which is kept; that of nothing is minus infinity.

    The Array API leaves the maximum of nothing open, and Dask refuses every array without elements.
    """
    if 0 not in array.shape:
        return xp.max(array, axis=axis, keepdims=True)
    shape = list(array.shape)
    shape[axis] = 1
    return xp.full(tuple(shape), -math.inf, dtype=array.dtype, device=device(array))


def reshaped(xp: Any, array: Array, shape: Shape) -> Array:
    """Reshape; an array without elements is made anew, as Dask cannot reshape one."""
    if 0 in shape:
        return xp.zeros(shape, dtype=array.dtype, device=device(array))
    return xp.reshape(array, shape)
