"""Error budgets of decoding, and of attention over codes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.formats import Budget, Format, rounded
from attnspec.reference.budget.profile import with_short_weights
from attnspec.reference.quantization import dequantize, dequantize_blocks

#: Roundings of a decoded number: its product with the scale, and the scale where it is multiplied by another.
DECODING = 2


def dequantized_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of decoded numbers, which are rounded once (QUANT-1)."""
    options = {name: given[name] for name in ("zero_points", "encoding") if name in given}
    return {"dequantized": once(dequantize(given["scales"], given["codes"], **options), arithmetic.storage)}


def blocks_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the numbers of blocks, which are rounded once (QUANT-6)."""
    options = {"blocks": given["blocks"]} if "blocks" in given else {}
    found = dequantize_blocks(given["scales"], given["packed"], **options)
    return {"dequantized": once(found, arithmetic.storage)}


def once(value: Budget, storage: Format) -> Budget:
    """Return half the distance to the next number of a format. Zero where the value is zero or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.dtypes import FORMATS
    >>> from attnspec.reference.budget.quantization import once
    >>> (once(np.array([1.0, 1.5, 0.0]), FORMATS["float16"]) * 2**11).tolist()
    [1.0, 1.0, 0.0]
    """
    finite = np.where(np.isfinite(value), value, 0)
    exponent = np.maximum(np.frexp(finite)[1] - 1, storage.exponents[0])
    return np.where(finite == 0, 0.0, np.ldexp(storage.unit, exponent))


def quantized_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of attention over decoded arrays, which inherit errors of decoding (QUANT-8).

    If the query is decoded too, half precision has the roundings of the profile `fp8` (QUANT-11).
    """
    arrays, errors = [], []
    for name in ("query", "key", "value"):
        coded = f"{name}_codes" in given
        value = decoded(given, name) if coded else given[name]
        error = DECODING * arithmetic.work.unit * np.abs(value) * coded
        arrays.append(value)
        errors.append(rounded(value, error, arithmetic.storage) if arithmetic.casts and coded else error)
    if "query_codes" in given and arithmetic.casts:
        arithmetic = replace(arithmetic, profile=with_short_weights(arithmetic.profile))
    inherited = (errors[0], errors[1], errors[2])
    return attention_budget((arrays[0], arrays[1], arrays[2]), given, arithmetic, inherited)


def decoded(given: Mapping[str, Any], name: str) -> Budget:
    """Decode the codes of queries, keys or values. NaN and infinity count as 0."""
    scales = given.get(f"{name}_scales", np.ones(()))
    options = {"encoding": given.get("encoding", "int8"), "zero_points": given.get(f"{name}_zero_points")}
    with np.errstate(over="ignore", invalid="ignore"):
        found = dequantize(scales, given[f"{name}_codes"], **options)
    return np.where(np.isfinite(found), found, 0)
