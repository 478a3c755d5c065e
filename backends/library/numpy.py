"""NumPy: the reference, as a backend among others."""

import array_api_compat.numpy as xp
import numpy as np

from attnspec.backends.backend import DTYPES, Backend
from attnspec.reference import functions


def portable_backend() -> Backend:
    """Run the portable source on NumPy, where it is the reference."""
    companions = dict(functions())
    attention = companions.pop("attention")
    return Backend("numpy-portable", "numpy", np.__version__, xp, attention, DTYPES, companions)
