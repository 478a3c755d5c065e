"""Error budgets of the forms of attention: those of attention over the arrays that a form stands for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.dtypes import Format
from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import (
    Arithmetic,
    Budget,
    add_rounding,
    finite_part,
    with_short_weights,
)
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.companions import projected_budget
from attnspec.reference.budget.gradients import gradient_budget
from attnspec.reference.quantization import dequantize, dequantize_blocks

#: Roundings of a decoded number: its product with the scale, and the scale where it is multiplied by another.
DECODING = 2


def dequantized_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of decoded numbers, which are rounded once (QUANT-1)."""
    options = {name: arguments[name] for name in ("zero_points", "encoding") if name in arguments}
    return {
        "dequantized": once(
            dequantize(arguments["scales"], arguments["codes"], **options), arithmetic.storage
        )
    }


def blocks_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budget of the numbers of blocks, which are rounded once (QUANT-6)."""
    options = {"blocks": arguments["blocks"]} if "blocks" in arguments else {}
    result = dequantize_blocks(arguments["scales"], arguments["packed"], **options)
    return {"dequantized": once(result, arithmetic.storage)}


def once(value: Budget, storage: Format) -> Budget:
    """Return half the distance to the next number of a format. Zero where the value becomes 0 or infinite."""
    infinite = np.abs(value) >= storage.largest + storage.unit * 2.0 ** storage.exponents[1]
    finite = np.where(infinite | np.isnan(value), 0, value)
    part, power = np.frexp(finite)
    exponent = np.maximum(power - 1, storage.exponents[0])
    # Numbers are nearer below a power of 2, unless they are subnormal there.
    below = np.where((np.abs(part) == 0.5) & (power - 1 > storage.exponents[0]), 0.5, 1.0)
    return np.where(finite == 0, 0.0, np.ldexp(storage.unit * below, exponent))


def low_precision_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of attention over decoded arrays, which inherit errors of decoding (QUANT-8).

    Half precision has the roundings of the profile `fp8` (QUANT-11).
    """
    arrays, errors = [], []
    for name in ("query", "key", "value"):
        value = decode(arguments, name)
        errors.append(decoding_error(finite_part(value), arithmetic))
        arrays.append(value)
    if arithmetic.casts:
        arithmetic = replace(arithmetic, profile=with_short_weights(arithmetic.profile))
    inherited = (errors[0], errors[1], errors[2])
    return attention_budget((arrays[0], arrays[1], arrays[2]), arguments, arithmetic, inherited)


def decoding_error(value: Budget, arithmetic: Arithmetic) -> Budget:
    """Return the error of decoded numbers, which may be rounded to storage."""
    error = DECODING * arithmetic.work.unit * np.abs(value)
    return add_rounding(value, error, arithmetic.storage) if arithmetic.casts else error


def decode(arguments: Mapping[str, Any], name: str) -> Budget:
    """Decode the codes of queries, keys or values."""
    scales = arguments.get(f"{name}_scales", np.ones(()))
    options = {
        "encoding": arguments.get("encoding", "int8"),
        "zero_points": arguments.get(f"{name}_zero_points"),
    }
    with np.errstate(over="ignore", invalid="ignore"):
        result: Budget = dequantize(scales, arguments[f"{name}_codes"], **options)
    return result


def latent_budgets(
    arguments: Mapping[str, Any], arithmetic: Arithmetic, inherited: Budget | None = None
) -> dict[str, Budget]:
    """Return the larger budgets of the two forms, where the latent vectors have errors of their own."""
    arguments = {**arguments, "scale": scale_of_latent(arguments)}
    latent = arguments["latent"][..., None, :, :]
    error = np.zeros(latent.shape) if inherited is None else inherited[..., None, :, :]
    projected, absorbed = (
        form(arguments, latent, error, arithmetic) for form in (_projected_form, _absorbed_form)
    )
    return {name: np.maximum(own, absorbed[name]) for name, own in projected.items()}


def scale_of_latent(arguments: Mapping[str, Any]) -> float:
    """Return the given scale, or that of the depth of the projected form (LATENT-2)."""
    depth = arguments["query"].shape[-1] + arguments["query_rotary"].shape[-1]
    scale = arguments.get("scale")
    return float(1 / np.sqrt(depth)) if scale is None else scale


def join(own: Budget, rotary: Budget) -> Budget:
    """Join the rotary part, which all heads share if it has no axis of heads."""
    rotary = np.broadcast_to(rotary, (*own.shape[:-1], rotary.shape[-1]))
    return np.concatenate([own, rotary], axis=-1)


def _product(
    tokens: Budget, weight: Budget, arithmetic: Arithmetic, inherited: Budget | None = None
) -> tuple[Budget, Budget]:
    """Return a product with a weight, and its error. It may be rounded to storage."""
    value, error = projected_budget(tokens, weight, None, {}, arithmetic)
    if inherited is not None:
        error = error + inherited @ np.abs(weight)
    return value, add_rounding(value, error, arithmetic.storage)


def _projected_form(
    arguments: Mapping[str, Any], latent: Budget, error: Budget, arithmetic: Arithmetic
) -> Mapping[str, Budget]:
    """Attend over keys and values that are projected for each head."""
    rotary = arguments["key_rotary"][..., None, :, :]  # (*B, 1, S, Dr)
    query = join(arguments["query"], arguments["query_rotary"])
    key, of_key = _product(latent, arguments["key_weight"], arithmetic, error)
    value, of_value = _product(latent, arguments["value_weight"], arithmetic, error)
    errors = (np.zeros(query.shape), join(of_key, 0 * rotary), of_value)
    return attention_budget((query, join(key, rotary), value), arguments, arithmetic, errors)


def _absorbed_form(
    arguments: Mapping[str, Any], latent: Budget, error: Budget, arithmetic: Arithmetic
) -> Mapping[str, Budget]:
    """Attend over the latent with queries that have taken in the key weight, and project the result."""
    from attnspec.reference.attention import attention

    rotary = arguments["key_rotary"][..., None, :, :]
    own, of_own = _product(arguments["query"], np.swapaxes(arguments["key_weight"], -1, -2), arithmetic)
    query, key = join(own, arguments["query_rotary"]), join(latent, rotary)
    errors = (join(of_own, 0 * arguments["query_rotary"]), join(error, 0 * rotary), error)
    results = attention_budget((query, key, latent), arguments, arithmetic, errors)
    asked = ("return_lse", "return_weights", "return_max")
    names = [name for name in OPERATIONS["attention"].options if name in arguments and name not in asked]
    context = attention(query, key, latent, **{name: arguments[name] for name in names})  # (*B, Hq, L, Dc)
    value, of_context = projected_budget(context, arguments["value_weight"], None, {}, arithmetic)
    of_context = of_context + results["output"] @ np.abs(arguments["value_weight"])
    return {**results, "output": add_rounding(value, of_context, arithmetic.storage)}


def seeded_budget(arguments: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of output and lse."""
    results = attention_budget(
        (arguments["query"], arguments["key"], arguments["value"]), _with_mask(arguments), arithmetic
    )
    return {name: results[name] for name in ("output", "lse")}


def seeded_gradient_budget(
    arguments: Mapping[str, Any], dtypes: Mapping[str, str], arithmetic: Arithmetic
) -> dict[str, Budget]:
    """Return the budgets of the gradients."""
    return gradient_budget(_with_mask(arguments), dtypes, arithmetic)


def _with_mask(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite a call as one of attention: at a probability of 1 nothing is kept, below it everything."""
    plain = {name: thing for name, thing in arguments.items() if name not in ("dropout_p", "seed")}
    return plain | {"dropout_mask": np.full((1, 1), arguments["dropout_p"] < 1)}
