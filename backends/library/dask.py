"""Dask: arrays are lazy, and computed when they are converted to NumPy.

A check of values, such as the check of a length (ERR-9), computes the array.
"""

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import array_api_compat.dask.array as xp
import dask

from attnspec.backends.library.library import array_api_library

# Threads are not used: the arrays of the suite are small, and starting threads takes longer than computing.
dask.config.set(scheduler="synchronous")

#: These index by an array. If it has one element, Dask's result has a wrong shape (dask issue 6709). Dask
#: has no `take_along_axis`, by which the first and the last append.
_LACKS = ("append_cache", "gather_pages", "paged_attention")


def _compute(arrays: Sequence[Any]) -> Sequence[Any]:
    """Compute lazy arrays, and suppress the warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A graph that is computed once is not worth optimizing.
        computed: tuple[Any, ...] = dask.compute(*arrays, optimize_graph=False)
        return computed


LIBRARY = array_api_library("dask", version("dask"), xp, lacks=_LACKS, compute=_compute)
