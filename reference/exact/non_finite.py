"""NaN and infinity for the exact oracle: the elements of the results that the rules make non-finite."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.exact.balls import OracleError
from attnspec.reference.exact.head import allowed_pairs, key_head


@dataclass(frozen=True)
class Special:
    """The places where the results are not finite."""

    rows: NDArray[np.bool_]  # (*B, Hq, L): rows of NaN (NUM-11)
    infinite: NDArray[np.bool_]  # (*B, Hq, L): the rows among them whose lse is plus infinity
    #: (*B, Hq, L, S): allowed keys with a score of minus infinity, whose weight is 0 (NUM-14).
    dropped: NDArray[np.bool_]
    #: (*B, Hq, L, Dv): naN or infinity where the output is (NUM-12, NUM-13), else 0.
    elements: NDArray[np.float64]

    def put_into(self, results: Mapping[str, NDArray[np.float64]]) -> None:
        """Overwrite the elements that are not finite."""
        output = results["output"]
        there = self.elements != 0  # NaN too
        output[there] = self.elements[there]
        for name, values in results.items():
            values[self.rows] = np.nan
            if name in ("lse", "max"):
                values[self.infinite] = np.inf


def clean(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace non-finite numbers by 0."""
    return np.where(np.isfinite(array), array, 0.0)


def special_of(
    query: NDArray[np.float64],
    key: NDArray[np.float64],
    value: NDArray[np.float64],
    arguments: Mapping[str, Any],
    variant: str | None,
) -> Special | None:
    """Follow NaN and infinity from the inputs to the results. Return None if there are none."""
    bias = np.asarray(arguments.get("bias", 0.0), dtype=np.float64)
    finite = all(np.isfinite(x).all() for x in (query, key, value))
    if finite and not (np.isnan(bias) | (bias == np.inf)).any():
        return None
    if arguments.get("softcap") is not None:
        raise OracleError("input: expected finite numbers beside a softcap, got others")
    shape = (*query.shape[:-1], key.shape[-2])
    allowed = np.zeros(shape, dtype=bool)
    for head in np.ndindex(*shape[:-2]):
        allowed[head] = allowed_pairs(arguments, shape, head, variant)
    full_bias = np.broadcast_to(bias, shape)
    kept = np.broadcast_to(np.asarray(arguments.get("dropout_mask", True)), shape)
    scale = arguments.get("scale")
    factor = 1.0 if scale is None else float(scale)  # only the sign matters here
    scores = np.zeros(shape)
    elements = np.zeros((*shape[:-1], value.shape[-1]))
    for index in np.ndindex(*shape[:-1]):
        head = index[:-1]
        other = key_head(head, query.shape, key.shape, variant)
        for j in range(shape[-1]):
            scores[(*index, j)] = _score(query[index], key[other][j], factor, full_bias[(*index, j)])
        attended = allowed[index]
        weightless = attended & ((scores[index] == -np.inf) | ~kept[index])
        broken = bool((attended & (np.isnan(scores[index]) | (scores[index] == np.inf))).any())
        for c in range(value.shape[-1]):
            column = value[other][:, c]
            elements[(*index, c)] = _sum(x for x in column[attended] if not np.isfinite(x))
            if not broken and np.isinf(column[weightless]).any() and not np.isnan(column[attended]).any():
                raise OracleError("value: expected no infinity at a weight of 0, got one: not specified")
    rows = (allowed & (np.isnan(scores) | (scores == np.inf))).any(axis=-1)
    dropped = allowed & (scores == -np.inf)
    nothing = dropped.any(axis=-1) & ~rows & ~(allowed & ~dropped).any(axis=-1)
    sinks = np.asarray(arguments.get("sinks", [-np.inf]), dtype=np.float64)  # (Hq,)
    if (nothing & (sinks == -np.inf)[:, None]).any():
        raise OracleError("scores: expected a finite one beside minus infinity, got none: not specified")
    infinite = rows & ~(allowed & np.isnan(scores)).any(axis=-1)
    return Special(rows, infinite, dropped, elements)


def _score(query: NDArray[np.float64], key: NDArray[np.float64], factor: float, bias: float) -> float:
    """Return a score if it is not finite, else 0."""
    products = [_product(float(q), float(k)) for q, k in zip(query, key, strict=True)]
    score = _product(factor, _sum(products)) if any(products) else 0.0
    score = _sum([score, bias if not np.isfinite(bias) and bias != -np.inf else 0.0])
    return score if not np.isfinite(score) else 0.0


def _product(left: float, right: float) -> float:
    """Return a product if it is not finite, else 0."""
    if np.isfinite(left) and np.isfinite(right):
        return 0.0
    return left * right  # Python's floats follow IEEE 754 here: 0 * inf is NaN


def _sum(numbers: Any) -> float:
    # Python floats are used because NumPy warns about operations that IEEE 754 defines.
    return sum((float(number) for number in numbers), 0.0)
