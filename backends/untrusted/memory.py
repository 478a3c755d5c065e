"""Reads the memory of a process, where its results lie, without help of that process."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.backends.errors import Broken

#: The most memory that is read at once, in bytes.
_LONGEST = 1 << 28


def open_memory(number: int) -> int | None:
    """Open the memory of the last of the processes that have started each other; None if it cannot be read.

    Only Linux offers this. What is opened stays readable, whatever the process does later.
    """
    if sys.platform != "linux":
        return None
    with suppress(OSError, ValueError):
        while children := Path(f"/proc/{number}/task/{number}/children").read_text().split():
            (child,) = children
            number = int(child)
        return os.open(f"/proc/{number}/mem", os.O_RDONLY)
    return None


def read_memory(memory: int | None, tensor: dict[str, Any], like: NDArray[Any]) -> bytes | None:
    """Read the elements of a result; None if its process says no address, or cannot be read from here."""
    address, strides = tensor.get("address"), tensor.get("strides")
    if not like.size:
        return b""
    if memory is None or address is None or strides is None:
        return None
    try:
        steps = [(size - 1) * step for size, step in zip(like.shape, strides, strict=True)]
        low = sum(step for step in steps if step < 0)
        span = sum(map(abs, steps)) + like.itemsize
        if span > _LONGEST:
            return None
        octets = os.pread(memory, span, address + low)
        return np.ndarray(like.shape, like.dtype, octets, -low, strides).tobytes()
    except (OSError, ValueError, TypeError, OverflowError) as error:
        raise Broken("says an address of its result that cannot be read") from error
