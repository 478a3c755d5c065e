"""Error budgets of the gradients of latent attention: the larger ones of the two forms (LATENT-6)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.dtypes import FORMATS
from attnspec.operations import OPERATIONS
from attnspec.reference.budget.arithmetic import Arithmetic, Budget, Pair, add_rounding, transpose
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.forms import join, scale_of_latent
from attnspec.reference.budget.gradients import Inherited, gradient_budget
from attnspec.reference.budget.gradients_of_companions import add_gradients, multiply

#: What the budget of attention reads besides the options.
_WORDS = ("uniform_rows", "capped_bias", "capped_infinity")


def latent_gradient_budget(
    arguments: Mapping[str, Any], dtypes: Mapping[str, str], arithmetic: Arithmetic
) -> dict[str, Budget]:
    """Return the larger budgets of the two forms, whose products with a weight may be stored."""
    arguments = {**arguments, "scale": scale_of_latent(arguments)}
    projected, absorbed = (form(arguments, dtypes, arithmetic) for form in (_projected_form, _absorbed_form))
    return {name: np.maximum(own, absorbed[name]) for name, own in projected.items()}


def _exact(array: Budget) -> Pair:
    return array, np.zeros(array.shape)


def _cut(pair: Pair, *columns: int | None) -> Pair:
    return pair[0][..., slice(*columns)], pair[1][..., slice(*columns)]


def _through(pair: Pair, weight: Budget, arithmetic: Arithmetic) -> Pair:
    """Multiply by a weight. The product may be stored."""
    product = multiply(pair, _exact(weight), arithmetic)
    return product[0], add_rounding(*product, arithmetic.storage)


def _over(axis: int, pair: Pair, arithmetic: Arithmetic) -> Pair:
    """Add up the parts of an axis."""
    value, error = (np.moveaxis(array, axis, 0) for array in pair)
    if not len(value):
        return value.sum(axis=0), error.sum(axis=0)
    return add_gradients(list(zip(value, error, strict=True)), arithmetic)


def _weight_gradient(left: Pair, right: Pair, arithmetic: Arithmetic) -> Pair:
    """Return the gradient of a weight: a product over positions, which may be stored for each batch entry."""
    product = multiply(transpose(left), right, arithmetic)
    value, error = product[0], add_rounding(*product, arithmetic.storage)
    flat = (-1, *value.shape[-3:])
    return _over(0, (value.reshape(flat), error.reshape(flat)), arithmetic)


def _attention_gradients(
    arrays: Mapping[str, Budget],
    arguments: Mapping[str, Any],
    dtypes: Mapping[str, str],
    arithmetic: Arithmetic,
    inherited: Inherited,
) -> tuple[dict[str, Pair], dict[str, Budget]]:
    """Return the gradients of attention over some arrays, and the budgets of all that it gives."""
    from attnspec.reference.gradients import attention_vjp

    names = [name for name in OPERATIONS["attention_vjp"].options if arguments.get(name) is not None]
    options = {name: arguments[name] for name in names}
    words = {name: arguments[name] for name in _WORDS}
    budgets = gradient_budget({**arrays, **options, **words}, dtypes, arithmetic, inherited)
    exact = attention_vjp(**arrays, **options)
    ds = {name: (d, budgets[f"d_{name}"]) for name, d in zip(("query", "key", "value"), exact, strict=False)}
    rest = {name: budget for name, budget in budgets.items() if name.removeprefix("d_") not in ds}
    return ds, rest


def _round(
    results: Mapping[str, Pair], rest: Mapping[str, Budget], dtypes: Mapping[str, str]
) -> dict[str, Budget]:
    own = {f"d_{name}": add_rounding(*pair, FORMATS[dtypes[name]]) for name, pair in results.items()}
    return own | dict(rest)


def _projected_form(
    arguments: Mapping[str, Any], dtypes: Mapping[str, str], arithmetic: Arithmetic
) -> dict[str, Budget]:
    """Pass on the gradients of keys and values that are projected for each head."""
    depth, latent = arguments["query"].shape[-1], arguments["latent"][..., None, :, :]
    weights = {name: arguments[f"{name}_weight"] for name in ("key", "value")}
    keys, values = (_through(_exact(latent), weight, arithmetic) for weight in weights.values())
    rotary = arguments["key_rotary"][..., None, :, :]
    arrays = {
        "query": join(arguments["query"], arguments["query_rotary"]),
        "key": join(keys[0], rotary),
        "value": values[0],
        "d_output": arguments["d_output"],
    }
    errors = np.zeros(arrays["query"].shape), join(keys[1], 0 * rotary), values[1], 0 * arrays["d_output"]
    ds, rest = _attention_gradients(arrays, arguments, dtypes, arithmetic, errors)
    own = _cut(ds["key"], depth)
    back = [
        _through(d, np.swapaxes(weight, -1, -2), arithmetic)
        for d, weight in zip((own, ds["value"]), weights.values(), strict=True)
    ]
    results = {
        "query": _cut(ds["query"], depth),
        "query_rotary": _cut(ds["query"], depth, None),
        "latent": _over(-3, add_gradients(back, arithmetic), arithmetic),
        "key_rotary": _over(-3, _cut(ds["key"], depth, None), arithmetic),
        "key_weight": _weight_gradient(_exact(latent), own, arithmetic),
        "value_weight": _weight_gradient(_exact(latent), ds["value"], arithmetic),
    }
    return _round(results, rest, dtypes)


def _absorbed_form(
    arguments: Mapping[str, Any], dtypes: Mapping[str, str], arithmetic: Arithmetic
) -> dict[str, Budget]:
    """Pass on the gradients of attention over the latent, of absorbed queries and cotangents."""
    from attnspec.reference.attention import attention

    latent, g = arguments["latent"][..., None, :, :], _exact(arguments["d_output"])
    inner = latent.shape[-1]
    turned = {name: np.swapaxes(arguments[f"{name}_weight"], -1, -2) for name in ("key", "value")}
    queries = _through(_exact(arguments["query"]), turned["key"], arithmetic)
    cotangents = _through(g, turned["value"], arithmetic)
    arrays = {
        "query": join(queries[0], arguments["query_rotary"]),
        "key": join(latent, arguments["key_rotary"][..., None, :, :]),
        "value": latent,
        "d_output": cotangents[0],
    }
    errors = join(queries[1], 0 * arguments["query_rotary"]), 0 * arrays["key"], 0 * latent, cotangents[1]
    ds, rest = _attention_gradients(arrays, arguments, dtypes, arithmetic, errors)
    names = [name for name in OPERATIONS["attention"].options if arguments.get(name) is not None]
    options = {name: arguments[name] for name in names}
    triple = arrays["query"], arrays["key"], latent
    words = {name: arguments[name] for name in _WORDS}
    forward = attention_budget(triple, {**options, **words}, arithmetic, errors[:3])
    context = attention(*triple, **options), forward["output"]
    own = _cut(ds["query"], inner)
    results = {
        "query": multiply(own, _exact(arguments["key_weight"]), arithmetic),
        "query_rotary": _cut(ds["query"], inner, None),
        "latent": _over(-3, add_gradients([_cut(ds["key"], inner), ds["value"]], arithmetic), arithmetic),
        "key_rotary": _over(-3, _cut(ds["key"], inner, None), arithmetic),
        "key_weight": _weight_gradient(own, _exact(arguments["query"]), arithmetic),
        "value_weight": _weight_gradient(context, g, arithmetic),
    }
    return _round(results, rest, dtypes)
