"""Arrays in files that a process which is not trusted may replace, change, link or remove at any time."""

import math
import os
import stat
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - makes "bfloat16" a name that NumPy knows
import numpy as np
from numpy.typing import NDArray

from attnspec.backends.errors import Broken
from attnspec.backends.program.handshake import short

#: The dtypes that a result may say that it has.
_REAL = ("float16", "bfloat16", "float32", "float64", "bool", "complex64", "complex128")
_DTYPES = (*_REAL, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))


def write_array(path: Path, array: NDArray[Any]) -> dict[str, Any]:
    """Write an array with its strides to a new file, and describe it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from attnspec.backends.untrusted.files import write_array
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_array(Path(folder, "x.bin"), np.arange(6.0)[::-2])
    {'dtype': 'float64', 'shape': [3], 'strides': [-2], 'offset': 4}
    """
    tensor: dict[str, Any] = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    if array.flags.c_contiguous or not array.size:
        octets = array.tobytes()
    else:
        low, span = _span(array)
        buffer = np.ones(span, array.dtype)
        view = _view(buffer, array, low)
        view[...] = array
        steps = [step // array.itemsize for step in array.strides]
        tensor |= {"strides": steps, "offset": low}
        octets = buffer.tobytes()
    place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(place, "wb") as file:
        file.write(octets)
    return tensor


def read_again(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    """Read an array that `write_array` wrote, in the strides of the first one."""
    if array.flags.c_contiguous or not array.size:
        return _elements(path, array.size, array.dtype).reshape(array.shape)
    low, span = _span(array)
    return _view(_elements(path, span, array.dtype), array, low)


def read_result(path: Path, tensor: Any, most: int) -> NDArray[Any]:
    """Read a result once into memory, after its dtype, shape and size are checked."""
    shape = tensor.get("shape") if isinstance(tensor, dict) else None
    sound = isinstance(shape, list) and len(shape) <= 32 and all(type(x) is int and x >= 0 for x in shape)
    if not isinstance(shape, list) or not sound or tensor.get("dtype") not in _DTYPES:
        raise Broken(f"{path.name}: expected a dtype and a shape, got {short(repr(tensor))}")
    dtype, size = np.dtype(tensor["dtype"]), math.prod(shape)
    if size * dtype.itemsize > most:
        raise Broken(f"{path.name}: expected at most {most} bytes, got {size * dtype.itemsize}")
    return _elements(path, size, dtype).reshape(shape)


def _elements(path: Path, size: int, dtype: Any) -> NDArray[Any]:
    """Read the elements of an array from a plain file of exactly their size."""
    expected = size * dtype.itemsize
    try:
        # A link or a pipe in place of the file is not followed or waited for.
        place = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(place, "rb") as file:
            found = os.fstat(place)
            if not stat.S_ISREG(found.st_mode) or found.st_size != expected:
                raise Broken(f"{path.name}: expected a file of {expected} bytes, got {found.st_size}")
            octets = file.read(expected)
    except OSError as error:
        raise Broken(f"{path.name}: expected a readable file, got {error.strerror}") from error
    if len(octets) != expected:
        raise Broken(f"{path.name}: expected {expected} bytes, got {len(octets)}")
    return np.frombuffer(bytearray(octets), dtype)


def _span(array: NDArray[Any]) -> tuple[int, int]:
    """Return the index of the first element in the memory of an array, and the length of that memory."""
    sizes = zip(array.shape, array.strides, strict=True)
    steps = [(size - 1) * step // array.itemsize for size, step in sizes]
    low = sum(step for step in steps if step < 0)
    return -low, sum(map(abs, steps)) + 1


def _view(buffer: NDArray[Any], like: NDArray[Any], offset: int) -> NDArray[Any]:
    return np.ndarray(like.shape, like.dtype, buffer.data, offset * like.itemsize, like.strides)
