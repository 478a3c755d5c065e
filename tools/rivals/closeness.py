"""How close results must be, as the rules of other projects say it, and how their inputs are drawn."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from tools.rivals.rival import Accepts, Array, Trial


def close(
    absolute: float,
    relative: float,
    *,
    dtype: bool = True,
    nan_equal: bool = False,
    lse: bool = False,
    swapped: bool = False,
    exact: bool = False,
) -> Accepts:
    """Require that each element is off by at most ``absolute + relative * |expected|``.

    The expected output is that of plain arithmetic in the dtype of the inputs, unless `exact` is given.
    """

    def compare(result: Array, other: Array) -> bool:
        return np.allclose(wide(result), wide(other), rtol=relative, atol=absolute, equal_nan=nan_equal)

    def accepts(got: tuple[Array, ...], trial: Trial) -> bool:
        output, own_dtype = trial.exact[0] if exact else trial.own, trial.given["query"].dtype
        expected = (output.astype(own_dtype) if dtype else output, *(trial.exact[1:] if lse else ()))
        if dtype and got[0].dtype != own_dtype:
            return False
        return len(got) >= len(expected) and all(
            result.shape == other.shape and (compare(other, result) if swapped else compare(result, other))
            for result, other in zip(got, expected, strict=False)
        )

    return accepts


def close_to_data(absolute: float, relative: float) -> Accepts:
    """Require that each element of each result is close to the data of the source. NaN equals NaN."""

    def accepts(got: tuple[Array, ...], trial: Trial) -> bool:
        return all(
            result.shape == other.shape
            and result.dtype == other.dtype
            and np.allclose(wide(result), wide(other), rtol=relative, atol=absolute, equal_nan=True)
            for result, other in zip(got, trial.data, strict=True)
        )

    return accepts


def exceeding_neither(absolute: float, relative: float, ratio: float, *, logarithm: float = 1.0) -> Accepts:
    """Require that ``ratio`` of the elements do not exceed both bounds, and that all are finite."""

    def accepts(got: tuple[Array, ...], trial: Trial) -> bool:
        dtype = trial.given["query"].dtype
        expected = (wide(trial.exact[0].astype(dtype)), *(result * logarithm for result in trial.exact[1:]))
        found = (wide(got[0]), *(wide(result) * logarithm for result in got[1:]))
        return got[0].dtype == dtype and all(
            result.shape == other.shape
            and bool(np.isfinite(result).all())
            and np.mean(_match(result, other, absolute, relative)) >= ratio
            for result, other in zip(found, expected, strict=True)
        )

    return accepts


def _match(got: Array, expected: Array, absolute: float, relative: float) -> Array:
    error = np.abs(got - expected)
    matched: Array = (error <= absolute) | (error / (np.abs(expected) + 1e-8) <= relative)
    return matched


def normalised_error(limit: float) -> Accepts:
    """Require a sum of squared errors of at most ``limit`` times the sum of squared results, and no NaN."""

    def accepts(got: tuple[Array, ...], trial: Trial) -> bool:
        output, expected = wide(got[0]), trial.exact[0]
        if output.shape != expected.shape or not np.isfinite(output).all():
            return False
        return bool(((output - expected) ** 2).sum() <= limit * (output**2).sum())

    return accepts


def similar(cosine: float) -> Accepts:
    """Require a cosine of the angle between the outputs, each as one vector."""

    def accepts(got: tuple[Array, ...], trial: Trial) -> bool:
        output, expected = wide(got[0]).ravel(), trial.exact[0].ravel()
        if output.shape != expected.shape:
            return False
        norms = max(float(np.linalg.norm(output) * np.linalg.norm(expected)), 1e-6)
        return bool(output @ expected >= cosine * norms)

    return accepts


def wide(array: Array) -> Array:
    """Return an array in float64."""
    return np.asarray(array, np.float64)


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
    """Draw query, key and value. A shape that is not given is that of the array before."""
    key = key or query
    shapes = {"query": query, "key": key, "value": value or key}
    return {name: distribution(rng, shape, dtype) for name, shape in shapes.items()}
