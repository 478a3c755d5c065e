"""Error budgets: the largest error of a correct implementation, element by element.

The formulas and their constants are derived in the chapter `numerics` (NUM-3);
this file computes them, in float64, from the inputs of a case.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.masking import allowed_keys
from attnspec.reference.softmax import softmax

Accuracy = Literal["full", "cast", "storage"]
Budget = NDArray[np.float64]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes
    ----------
    unit : float
        Unit roundoff: half the distance from 1 to the next number.
    normal : float
        Smallest positive normal number.
    subnormal : float
        Smallest positive number.
    largest : float
        Largest finite number.
    """

    unit: float
    normal: float
    subnormal: float
    largest: float


def _format(digits: int, least: int, most: int) -> Format:
    """Describe the format of so many binary digits, with exponents of 2 from `least` to `most`."""
    unit = 2.0**-digits
    return Format(unit, 2.0**least, 2.0 ** (least - digits + 1), (2 - 2 * unit) * 2.0**most)


#: Digits, then the exponents of the smallest normal and of the largest number: IEEE 754, and bfloat16.
FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "float16": _format(11, -14, 15),
        "bfloat16": _format(8, -126, 127),
        "float32": _format(24, -126, 127),
        "float64": _format(53, -1022, 1023),
    }
)

#: The precision in which inputs of a dtype are computed, at least.
WORKING: Mapping[str, str] = MappingProxyType(
    {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}
)

#: Relative error of a library's exponential or logarithm, in units: two units in the last place.
EXPONENTIAL = 4
#: Roundings of a score beside those of its sum: two factors sqrt(scale), two scaled inputs.
SCALING = 4
#: Roundings of an exponent's distance from the maximum: difference, conversion to base 2, its constant.
SHIFTING = 3
#: Roundings of an output beside those of its two sums: quotient, last rescaling, and two for a merged part.
NORMALISING = 4


def budget(
    operation: str,
    arguments: Mapping[str, Any],
    dtype: str,
    *,
    accuracy: Accuracy = "full",
    working: str | None = None,
    uniform_rows: bool = False,
) -> dict[str, Budget]:
    """Compute the budget of every element of every output.

    Parameters
    ----------
    operation : str
        A name in `attnspec.OPERATIONS`.
    arguments : mapping
        The arguments of the call, by canonical name.
    dtype : str
        Of the inputs and the result: a name in `FORMATS`.
    accuracy : {"full", "cast", "storage"}
        ``full`` keeps everything in the working precision until the result is
        rounded; ``cast`` rounds the weights to `dtype` before the second product;
        ``storage`` does everything in `dtype`.
    working : str, optional
        Another working precision than that of NUM-2 for `dtype`.
    uniform_rows : bool, optional
        Whether a row with no allowed key is the mean of all values (the variant
        ``uniform`` of MASK-6) instead of 0.

    Returns
    -------
    dict of str to float64 array
        By output name. Zero where no rounding can happen.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference.rounding import budget
    >>> one = np.ones((1, 1))
    >>> allowed = budget("projection", {"tokens": one, "weight": one}, "float32")["projected"]
    >>> round(float(allowed[0, 0]) * 2**24, 3)  # units: one for the product, one for the result
    2.0
    """
    storage = FORMATS[dtype]
    work = storage if accuracy == "storage" else FORMATS[working or WORKING[dtype]]
    given: dict[str, Any] = {"uniform_rows": uniform_rows}
    given |= {name: np.asarray(x, dtype=np.float64) if _is_real(x) else x for name, x in arguments.items()}
    if operation == "projection":
        value, error = _projected(given["tokens"], given["weight"], given.get("bias"), given, work)
        return {"projected": _rounded(value, error, storage)}
    if operation == "scores":
        value, error = _scores(given["query"], given["key"], given, work)
        return {"scores": _rounded(value, error, storage)}
    if operation == "self_attention":
        return _self_attention(given, storage, work, accuracy)
    return _attention(given["query"], given["key"], given["value"], given, storage, work, accuracy)


def _is_real(thing: Any) -> bool:
    return isinstance(thing, np.ndarray) and thing.dtype != bool


def _rounded(value: Budget, error: Budget, storage: Format) -> Budget:
    """Add the one rounding of the result: relative, or half the spacing of the subnormals."""
    with np.errstate(invalid="ignore"):  # inf - inf: such places are compared as patterns, not by budget
        final = np.maximum(storage.unit * (np.abs(value) + error), storage.subnormal / 2)
        return np.where(
            np.isfinite(value), error + np.where(value == 0, np.where(error == 0, 0, final), final), 0
        )


def _projected(
    tokens: Budget, weight: Budget, bias: Budget | None, given: Mapping[str, Any], work: Format
) -> tuple[Budget, Budget]:
    columns = given.get("convention", "row") == "column"
    left, right = (weight, tokens) if columns else (tokens, weight)
    value, size = left @ right, np.abs(left) @ np.abs(right)
    depth = left.shape[-1]
    if bias is not None:
        added = bias[:, None] if columns else bias
        value, size, depth = value + added, size + np.abs(added), depth + 1
    return value, depth * (work.unit * size + work.normal * (size > 0))


def _scores(
    query: Budget,
    key: Budget,
    given: Mapping[str, Any],
    work: Format,
    inherited: tuple[Budget, Budget] | None = None,
) -> tuple[Budget, Budget]:
    """Scores and their errors, with the errors that query and key bring along."""
    depth = query.shape[-1]
    scale = given.get("scale")
    factor = 1 / np.sqrt(depth) if scale is None else float(scale)
    keys = np.swapaxes(key, -1, -2)
    value = factor * (query @ keys)
    size = abs(factor) * (np.abs(query) @ np.abs(keys))
    error = (depth + SCALING) * (work.unit * size + abs(factor) * work.normal * (size > 0))
    if inherited is not None:
        query_error, key_error = inherited
        key_error = np.swapaxes(key_error, -1, -2)
        error += abs(factor) * (query_error @ (np.abs(keys) + key_error) + np.abs(query) @ key_error)
    bias = given.get("bias")
    if bias is not None:
        value = value + bias
        error = error + np.where(np.isfinite(value), work.unit * (np.abs(value) + error), 0)
    return value, error


def _attention(
    query: Budget,
    key: Budget,
    value: Budget,
    given: Mapping[str, Any],
    storage: Format,
    work: Format,
    accuracy: Accuracy,
    inherited: tuple[Budget, Budget, Budget] | None = None,
) -> dict[str, Budget]:
    s, score_error = _scores(query, key, given, work, inherited and inherited[:2])
    allowed = allowed_keys(
        s.shape, mask=given.get("mask"), is_causal=given.get("is_causal", False), bias=given.get("bias")
    )
    if given["uniform_rows"]:
        empty = ~allowed.any(axis=-1, keepdims=True)
        s, score_error = np.where(empty, 0, s), np.where(empty, 0, score_error)
        allowed = allowed | empty
    p: Budget = softmax(s, allowed).astype(np.float64)  # (*B, H, L, S)
    keys = allowed.sum(axis=-1, keepdims=True)
    top = np.where(allowed, s, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):  # rows with nothing allowed
        below = np.where(allowed, top - s, 0)
    # Relative error of each exponential, before anything cancels; alone in its row, a key has weight 1.
    exponent = np.where(keys > 1, score_error + work.unit * (SHIFTING * below + EXPONENTIAL), 0)
    exponential = np.expm1(np.minimum(exponent, 700))
    sums = (keys + NORMALISING) * work.unit * (keys > 1)
    # Parts merged by exp(lse_part - lse): each lse is as wrong as its rounding and its logarithm.
    largest = np.where(keys > 0, np.abs(top), 0) + (1 + EXPONENTIAL) * np.log(np.maximum(keys, 1))
    merging = 2 * work.unit * largest * (keys > 1)
    floor = work.normal * (allowed & (keys > 1))  # an exponential may be flushed to zero
    mean = (p * exponential).sum(axis=-1, keepdims=True)
    weight_error = np.minimum(p * (exponential + mean + sums + merging), 1) + floor  # more says nothing
    weights = _rounded(p, weight_error, storage)

    if accuracy == "cast" and storage is not work:
        relative, absolute = storage.unit, storage.subnormal / 2
    else:
        relative, absolute = 0.0, 0.0
    size = p @ np.abs(value)  # (*B, H, L, Dv)
    output = p @ value
    # A common factor of all weights cancels: what counts is how far a value is from the output.
    spread = _spread(p * exponential, value, output)
    # Cast weights are those that are summed too, or the sum is of the others: the larger error of the two.
    cast = (keys > 1) * relative * np.maximum(size, _spread(p, value, output)) if relative else 0.0
    # An exponential, or its product with a value, may be flushed to zero.
    underflow = (floor + absolute * (allowed & (keys > 1))) @ np.abs(value) + keys * (
        keys > 1
    ) * work.normal * (size > 0)
    error = spread + (2 * sums + merging) * size + cast + underflow
    if inherited is not None:
        error = error + (p + weight_error) @ inherited[2]
    return {"output": _rounded(output, error, storage), "weights": weights}


def _spread(moved: Budget, value: Budget, output: Budget) -> Budget:
    """Sum over j of ``moved[i, j] * |value[j, c] - output[i, c]|``, a column of values at a time."""
    spread = np.empty_like(output)
    for c in range(value.shape[-1]):
        distance = np.abs(value[..., None, :, c] - output[..., :, None, c])  # (*B, H, L, S)
        spread[..., c] = (moved * distance).sum(axis=-1)
    return spread


def _self_attention(
    given: Mapping[str, Any], storage: Format, work: Format, accuracy: Accuracy
) -> dict[str, Budget]:
    columns = given.get("convention", "row") == "column"
    values, errors = [], []
    for name in ("query", "key", "value"):
        value, error = _projected(
            given["tokens"], given[f"{name}_weight"], given.get(f"{name}_bias"), given, work
        )
        # A projection is a result of its own and may be kept in the storage dtype.
        error = _rounded(value, error, storage)
        values.append(np.swapaxes(value, -1, -2) if columns else value)
        errors.append(np.swapaxes(error, -1, -2) if columns else error)
    query, key, value = values
    inherited = (errors[0], errors[1], errors[2])
    output = _attention(query, key, value, given, storage, work, accuracy, inherited)["output"]
    return {"output": np.swapaxes(output, -1, -2) if columns else output}
