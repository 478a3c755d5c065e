"""PyTorch: the portable source."""

import array_api_compat.torch as xp
import torch

from attnspec.backends.backend import DTYPES, Backend
from attnspec.reference import functions


def portable_backend() -> Backend:
    """Run the portable source on PyTorch."""
    companions = dict(functions())
    attention = companions.pop("attention")
    return Backend("torch-portable", "torch", torch.__version__, xp, attention, DTYPES, companions)
