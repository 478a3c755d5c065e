"""Random arrays, as the sources draw them."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16 = np.dtype(np.float16)
FLOAT32 = np.dtype(np.float32)


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Draw from the standard normal distribution, and round."""
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def uniform(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: DTypeLike, low: float = 0.0, high: float = 1.0
) -> NDArray[Any]:
    """Draw from a range, and round."""
    return rng.uniform(low, high, shape).astype(dtype)


def arrays(
    rng: np.random.Generator,
    dtype: DTypeLike,
    query: tuple[int, ...],
    key: tuple[int, ...] | None = None,
    value: tuple[int, ...] | None = None,
    *,
    distribution: Any = normal,
) -> dict[str, NDArray[Any]]:
    """Draw query, key and value. A shape that is not given is that of the array before.

    Examples
    --------
    >>> import numpy as np
    >>> from tools.rivals.drawing import arrays
    >>> drawn = arrays(np.random.default_rng(0), np.float32, (4, 8), (6, 8))
    >>> [array.shape for array in drawn.values()]
    [(4, 8), (6, 8), (6, 8)]
    """
    key = key or query
    shapes = {"query": query, "key": key, "value": value or key}
    return {name: distribution(rng, shape, dtype) for name, shape in shapes.items()}
