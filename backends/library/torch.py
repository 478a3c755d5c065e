"""PyTorch: the portable source."""

import array_api_compat.torch as xp
import torch

from attnspec.backends.backend import DTYPES, Backend
from attnspec.backends.portable.operations import COMPANIONS, attention


def portable_backend() -> Backend:
    """Run the portable source on PyTorch."""
    return Backend("torch-portable", "torch", torch.__version__, xp, attention, DTYPES, COMPANIONS)
