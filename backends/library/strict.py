"""array-api-strict, which raises for everything outside the Array API and has no half precision.

Its devices, such as ``device1``, are names only. It raises if arrays of two of them meet.
"""

from typing import Any

import array_api_strict
import numpy as np
from numpy.typing import NDArray

from attnspec.backends.library.library import Library


def _to_library(array: NDArray[Any], device: str) -> Any:
    return array_api_strict.asarray(array, device=array_api_strict.Device(device or "CPU_DEVICE"))


def _to_numpy(array: Any, device: str) -> NDArray[Any]:
    expected = array_api_strict.Device(device or "CPU_DEVICE")
    if array.device != expected:
        raise ValueError(f"device: expected {expected}, got {array.device}")
    return np.asarray(array.to_device(array_api_strict.Device("CPU_DEVICE"))).copy()


LIBRARY = Library(
    "strict",
    array_api_strict.__version__,
    array_api_strict,
    _to_library,
    _to_numpy,
    dtypes=("float32", "float64"),
    accelerator=lambda: "device1",
)
