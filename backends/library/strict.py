"""array-api-strict: the proof that the portable source uses the Array API alone."""

import array_api_strict

from attnspec.backends.backend import Backend
from attnspec.reference import functions


def portable_backend() -> Backend:
    """Run the portable source where anything beyond the standard raises."""
    companions = dict(functions())
    attention = companions.pop("attention")
    version = array_api_strict.__version__
    return Backend("strict-portable", "strict", version, array_api_strict, attention, companions=companions)
