"""Dask: the portable source on lazy arrays.

Results are lazy and computed when they are brought to NumPy. Checks that look at
numbers, such as that of a length (ERR-9), compute what they look at.
"""

from importlib.metadata import version

import array_api_compat.dask.array as xp

from attnspec.backends.backend import DTYPES, Backend
from attnspec.reference import functions

#: They index by an array, and with one element in it Dask's result has a wrong shape (dask issue 6709).
_WITHOUT = ("append_cache", "gather_pages")


def portable_backend() -> Backend:
    """Run the portable source on Dask."""
    companions = {name: function for name, function in functions().items() if name not in _WITHOUT}
    attention = companions.pop("attention")
    return Backend("dask-portable", "dask", version("dask"), xp, attention, DTYPES, companions)
