"""Axes, shapes and the working precision: the chapter `notation`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from array_api_compat import device

from attnspec.dtypes import FORMATS, SHORT
from attnspec.operations import OPERATIONS
from attnspec.reference.call import Array, Call, Mask, step
from attnspec.reference.errors import Shape, dtype_name, need, same_dtype

#: Number of positions to the left and to the right of the query's own position; None for all.
Window = tuple[int | None, int | None]


@dataclass(frozen=True)
class Attention(Call):
    """One call of attention: its arguments by their canonical names.

    The arguments are first stored as given. `enter` then adds an axis of heads to query, key and
    value and converts them to the working precision. It stores the dtype of the results in
    `storage`, and in `flat` whether the arrays had two axes.
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
    query_positions: Array = None  # (*B, L)
    key_positions: Array = None  # (*B, S), negative for no key
    sinks: Array = None  # (Hq,)
    dropout_mask: Mask = None  # broadcasts to (*B, Hq, L, S)
    dropout_rate: float = 0.0
    return_lse: bool = False
    return_weights: bool = False
    return_max: bool = False
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
        """Number of queries, ``L``."""
        return int(self.query.shape[-2])

    @property
    def keys(self) -> int:
        """Number of keys, ``S``."""
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
        """The sinks in the working precision, shaped to broadcast with the scores, ``(Hq, 1, 1)``."""
        return wide(self, self.sinks)[:, None, None]


@step
def check_dtypes(call: Attention) -> Attention:
    """Check that query, key and value are floating-point and of one dtype (ERR-1, ERR-2)."""
    same_dtype(call, query=call.query, key=call.key, value=call.value)
    return call


@step
def check_axes(call: Attention) -> Attention:
    """Check depths, positions and batch axes (SHAPE-6, ERR-5)."""
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
def enter(call: Attention) -> Attention:
    """Treat two axes as one head (SHAPE-2), and convert to the working precision (NUM-2)."""
    flat = call.query.ndim == 2
    arrays = {
        name: wide(call, array[None, ...] if flat else array)
        for name, array in (("query", call.query), ("key", call.key), ("value", call.value))
    }
    return call.but(storage=out_dtype(call, call.query), flat=flat, **arrays)


@step
def wide(call: Call, array: Array) -> Array:
    """Convert half precision to float32, and leave other dtypes as they are (NUM-2, NUM-5)."""
    dtype = call.dtype
    if dtype is None:
        name = dtype_name(array)
        dtype = getattr(call.xp, FORMATS[name].working) if name in SHORT else array.dtype
    return call.xp.astype(array, dtype, copy=False)


@step
def narrow(call: Call, array: Array, storage: Any) -> Array:
    """Round a result to nearest, once (NUM-1, NUM-6)."""
    return call.xp.astype(array, storage, copy=False)


def by_name(operation: str, arguments: Mapping[str, Any], results: Any) -> dict[str, Array]:
    """Return the outputs of a call by their names."""
    wanted = OPERATIONS[operation].wanted(arguments)
    return dict(zip(wanted, results if isinstance(results, tuple) else (results,), strict=True))


def in_storage(call: Call, operation: str, outputs: Mapping[str, Array], storage: Any) -> Any:
    """Round outputs once. An lse and a maximum have a dtype of their own (NUM-1, NUM-7)."""
    numbers = {output.name: output.numbers for output in OPERATIONS[operation].results}
    rounded = [x if numbers[name] == "lse" else narrow(call, x, storage) for name, x in outputs.items()]
    return tuple(rounded) if len(rounded) > 1 else rounded[0]


@step
def finish(call: Attention, output: Array, lse: Array, weights: Array) -> Any:
    """Round output and weights to the dtype of the query, and return what was asked for (NUM-1, NUM-7)."""
    results = [narrow(call, output, call.storage)]
    if call.return_lse:
        results.append(lse)
    if call.return_weights:
        results.append(narrow(call, weights, call.storage))
    if call.flat:
        results = [array[0, ...] for array in results]
    return tuple(results) if len(results) > 1 else results[0]


def out_dtype(call: Call, array: Array) -> Any:
    """Return the dtype of the results of an array."""
    return array.dtype if call.dtype is None else call.dtype


def count(xp: Any, size: int, like: Array) -> Array:
    """Return 0, 1, ..., ``size - 1`` on the device of the array `like`."""
    return xp.arange(size, dtype=xp.int64, device=device(like))


def align_batch(numbers: Any) -> Any:
    """Shape one number for each batch entry to broadcast with the scores, ``(*B, 1, 1, 1)``."""
    return numbers if isinstance(numbers, int) else numbers[..., None, None, None]


def largest(xp: Any, array: Array, *, axis: int) -> Array:
    """Return the maximum along an axis, which is kept. The maximum of no elements is minus infinity.

    The Array API does not define the maximum of no elements, and Dask refuses arrays without elements.
    """
    if 0 not in array.shape:
        return xp.max(array, axis=axis, keepdims=True)
    shape = list(array.shape)
    shape[axis] = 1
    return xp.full(tuple(shape), -math.inf, dtype=array.dtype, device=device(array))


def reshape(xp: Any, array: Array, shape: Shape) -> Array:
    """Reshape an array. An array without elements is created anew, because Dask cannot reshape it."""
    if 0 in shape:
        none = xp.zeros(shape, dtype=array.dtype, device=device(array))
        # The sum is 0, and gradients of 0 pass through it.
        return none + xp.sum(array, dtype=array.dtype) if xp.isdtype(array.dtype, "real floating") else none
    return xp.reshape(array, shape)
