"""Dask: arrays are lazy, and computed when they are brought to NumPy.

Checks that look at numbers, such as that of a length (ERR-9), compute what they look at.
"""

import warnings
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import array_api_compat.dask.array as xp
import dask

from attnspec.backends.library.library import array_api_library

# No threads: what the suite asks is small, and starting them takes longer than computing it.
dask.config.set(scheduler="synchronous")

#: They index by an array, and with one element in it Dask's result has a wrong shape (dask issue 6709).
_LACKS = ("append_cache", "gather_pages")


def _compute(arrays: Sequence[Any]) -> Sequence[Any]:
    """Compute what is lazy; a lazy call is judged by its results, not by what it warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # What is computed once is not worth optimizing.
        computed: tuple[Any, ...] = dask.compute(*arrays, optimize_graph=False)
        return computed


LIBRARY = array_api_library("dask", version("dask"), xp, lacks=_LACKS, compute=_compute)
