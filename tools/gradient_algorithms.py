"""Correct backward passes in NumPy, as libraries and kernels compute them. A budget must accept them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.dtypes import DTYPES, FORMATS, SHORT, numpy_dtype
from attnspec.reference.budget.budget import Accuracy
from tools import units
from tools.algorithms import Array, sequential, short_exponential
from tools.gradient_backward import all_stored, backward, division_last
from tools.gradient_call import Call, prepared


@dataclass(frozen=True)
class Backward:
    """A way to compute gradients, and the class or profile that it must meet.

    Attributes
    ----------
    function : callable
        Takes a `Call` and returns the gradients by name, in the dtypes of their arrays.
    accuracy : {"full", "cast", "storage"} or None
        None for a fault.
    dtypes : tuple of str
        The dtypes that it supports.
    profile : str
    products : int
        The largest number of products that a problem may need, because simulated arithmetic is slow.
    """

    function: Callable[[Call], dict[str, Array]]
    accuracy: Accuracy | None = "full"
    dtypes: tuple[str, ...] = DTYPES
    profile: str = ""
    products: int = 2**40


def run(one: Backward, arguments: Mapping[str, Any]) -> dict[str, Array]:
    """Convert the inputs to the working precision, and compute the gradients.

    Examples
    --------
    >>> from tools.gradient_algorithms import BACKWARDS, run
    >>> from tools.gradient_problems import problem
    >>> given = problem("plain", (1, 2, 1, 3, 5, 4, 4), "bfloat16", 0)
    >>> {name: str(x.dtype) for name, x in run(BACKWARDS["dense"], given.arguments).items()}
    {'d_query': 'bfloat16', 'd_key': 'bfloat16', 'd_value': 'bfloat16'}
    """
    dtype = str(arguments["query"].dtype)
    with np.errstate(all="ignore"):  # a row may have no allowed key, and a fault may overflow
        return one.function(prepared(arguments, dtype, numpy_dtype(FORMATS[dtype].working).type))


def multiplied_in_order(left: Array, right: Array) -> Array:
    """Multiply matrices, and add the products one after the other."""
    return sequential(left[..., :, None, :] * np.swapaxes(right, -1, -2)[..., None, :, :])


def multiplied_on_units(left: Array, right: Array, *, split: units.Split, block: int = 4) -> Array:
    """Multiply stacks of matrices on simulated matrix units."""
    of_heads = zip(left.reshape(-1, *left.shape[-2:]), right.reshape(-1, *right.shape[-2:]), strict=True)
    found = [units.multiplied(split(a, b), block=block, digits=24) for a, b in of_heads]
    return np.stack(found).reshape(*left.shape[:-1], right.shape[-1])


def _on_units(split: units.Split, profile: str, *, block: int = 4, **options: Any) -> Backward:
    product = partial(multiplied_on_units, split=split, block=block)
    dtypes = SHORT if profile == "matrix" else ("float32",)
    function = partial(backward, product=product, **options)
    return Backward(function, "cast" if dtypes == SHORT else "full", dtypes, profile, 2**17)


#: The options of flash kernels.
_FLASH: dict[str, Any] = {"cast": True, "columns": 64, "rows": 32, "folded": True}

#: The algorithms by name, roughly from simple to complex.
BACKWARDS: Mapping[str, Backward] = MappingProxyType(
    {
        "dense": Backward(partial(backward, weights="kept", delta="keys")),
        "weights kept, delta of the output": Backward(partial(backward, weights="kept")),
        "recomputed": Backward(backward),
        "recomputed, delta of the keys": Backward(partial(backward, delta="keys")),
        "recomputed to base 2": Backward(partial(backward, weights="base 2", folded=True)),
        "sequential sums": Backward(
            partial(backward, delta="keys", product=multiplied_in_order), products=2**17
        ),
        "scaled first": Backward(partial(backward, scaled_first=True)),
        "division last": Backward(division_last),
        "tiles of 16 keys": Backward(partial(backward, columns=16, folded=True)),
        "tiles of 64 keys": Backward(partial(backward, columns=64, delta="keys")),
        "tiles of 1 key": Backward(partial(backward, columns=1), products=2**17),
        "tiles of 8 queries": Backward(partial(backward, rows=8)),
        "split over queries, one by one": Backward(partial(backward, rows=1), products=2**17),
        "tiles of 32 and 16, from the last": Backward(partial(backward, rows=32, columns=16, reverse=True)),
        "cast": Backward(partial(backward, cast=True), "cast"),
        "cast, weights kept": Backward(partial(backward, cast=True, weights="kept", delta="keys"), "cast"),
        "cast in tiles": Backward(partial(backward, **_FLASH), "cast"),
        "cast, scaled first": Backward(partial(backward, cast=True, scaled_first=True), "cast"),
        "cast, exponentials short": Backward(
            partial(backward, exponential=short_exponential, **_FLASH), "cast", SHORT
        ),
        "cast as differentiated": Backward(
            partial(backward, cast=True, cast_cotangents=True, weights="kept", delta="keys"), "cast"
        ),
        "all stored": Backward(all_stored, "storage", SHORT),
        "matrix units, blocks of 4": _on_units(units.as_they_are, "matrix", **_FLASH),
        "matrix units, blocks of 16": _on_units(units.as_they_are, "matrix", block=16, cast=True),
        "bf16x3, blocks of 4": _on_units(units.split_in_two, "bf16x3"),
        "tf32 cut off, blocks of 4": _on_units(partial(units.cut_off, digits=11), "tf32"),
        "bf16, blocks of 4": _on_units(units.rounded_to_bfloat16, "bf16"),
    }
)
