"""Dask: arrays are lazy, and computed when they are converted to NumPy.

Checks of values, such as that of a length (ERR-9), compute the array that they check.
"""

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import array_api_compat.dask.array as xp
import dask

from attnspec.backends.library.library import array_api_library

# No threads: the arrays of the suite are small, and starting threads takes longer than computing.
dask.config.set(scheduler="synchronous")

#: These index by an array. With one element in it, Dask's result has a wrong shape (dask issue 6709).
_LACKS = ("append_cache", "gather_pages")


def _compute(arrays: Sequence[Any]) -> Sequence[Any]:
    """Compute lazy arrays, without the warnings that this raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Optimizing a graph that is computed once does not pay.
        computed: tuple[Any, ...] = dask.compute(*arrays, optimize_graph=False)
        return computed


LIBRARY = array_api_library("dask", version("dask"), xp, lacks=_LACKS, compute=_compute)
