"""What more calls show of a function of attention whose options are known."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.backends.user.calls import B, Calls
from attnspec.backends.user.convention import OF_FOUR_AXES, OTHER, Convention
from attnspec.backends.user.description import dtypes_to_try
from attnspec.backends.user.signature import required_parameters
from attnspec.backends.user.slopes import linear_bias
from attnspec.backends.user.trials import UNCONFIRMED

#: A tolerance that results of float32 keep, and one that they exceed.
PRECISIONS = (1e-4, 1e-10)
IN_FLOAT32 = "float64 is computed in float32"


def confirm_slopes(calls: Calls, convention: Convention) -> Convention:
    """Find out from where a function with slopes counts distances."""
    if not convention.slopes or "bias" in convention.names:
        return replace(convention, slopes="")
    arrays = calls.drop_batch(convention, calls.arrays)
    for end in (False, True) if calls.at_end is None else (calls.at_end,):
        trial = replace(convention, from_end=end)
        bias: dict[str, Any] = {"bias": linear_bias(arrays, from_end=end)}
        bias |= {"is_causal": True} if convention.signed_slopes else {}
        placed = {"query_offset": calls.lengths[1] - calls.lengths[0]} if end and len(bias) > 1 else {}
        if calls.confirms(trial, arrays, bias, bias | placed):
            calls.variants |= {"MASK-3": "bottom-right"} if end else {}
            calls.why["slopes"] = "distances are counted from the " + ("end" if end else "beginning")
            return trial
    if "is_causal" in convention.names and not convention.signed_slopes:
        signed = confirm_slopes(calls, replace(convention, signed_slopes=True))
        if signed.signed_slopes and calls.why["slopes"] != UNCONFIRMED:
            calls.why["signed_slopes"] = "the bias is right in causal calls alone"
            return signed
    calls.why["slopes"] = UNCONFIRMED
    return convention


def confirm_past(calls: Calls, convention: Convention) -> Convention:
    """Leave out parameters for the keys before the others that a function can do without, if none shows."""
    needed = {*required_parameters(calls.function), *calls.known.convention.past}
    if not convention.past or convention.past[0] in needed:
        return convention
    queries, keys = calls.lengths
    options = {"query_offset": keys - queries}
    shown = keys > queries and calls.confirms(
        convention, calls.drop_batch(convention, calls.arrays), options, {}
    )
    return convention if shown else replace(convention, past=())


def confirm_length(calls: Calls, convention: Convention) -> Convention:
    """Find out whether the last query of a causal call is at the last key of the length."""
    causal = "is_causal" in {*convention.names, *convention.always}
    one_query = convention.one_query and "window" in convention.names
    if "key_lengths" not in convention.names or not (causal or one_query):
        return convention
    arrays, (queries, keys) = calls.drop_batch(convention, calls.arrays), calls.lengths
    placing = {"is_causal": True} if causal else {"window": (2, 0)}
    trial = replace(convention, at_length=True)

    def holds(lengths: Any) -> bool:
        given = {**placing, "key_lengths": lengths}
        at_length = given | {"query_offset": lengths - queries}
        shown = (convention, arrays, given) if convention.one_query else (trial, arrays, at_length)
        return calls.confirms(*shown, at_length)

    unequal = holds(keys - 1 + np.arange(B) % 2)
    if not unequal and not holds(np.full(B, keys - 1)):
        return convention
    but = "" if unequal else ", by calls with equal lengths alone"
    calls.why["at_length"] = f"its last query is at the last key of the length{but}"
    if unequal and calls.why.get("key_lengths") == UNCONFIRMED:
        del calls.why["key_lengths"]
    # Calls without an offset are declined, unless all are causal, and those with one have its place.
    if not (convention.one_query or convention.always):
        calls.variants.pop("MASK-3", None)
    return trial


def confirm_axes_of_masks(calls: Calls, convention: Convention) -> Convention:
    """Find out whether a mask or a bias needs as many axes as the arrays, or an entry for each pair too."""
    inputs = {"mask": calls.inputs.mask, "bias": calls.inputs.bias}
    arrays = calls.drop_batch(convention, calls.arrays)
    axes = 4 if convention.layout in OF_FOUR_AXES else convention.axes
    taken = {*convention.names, *inspect.signature(calls.function).parameters}
    whole, of_keys = replace(convention, mask_axes=axes), convention.mask_of_keys
    for name in (name for name in inputs if name in taken):
        fewer = [{name: inputs[name][place]} for place in (0, (0, 0), (0, 0, 0))]
        rows = replace(convention, least_mask_axes=2)
        every = convention, rows, whole, replace(whole, mask_pairs=True)
        count = 1 if of_keys and name == "mask" else 4 if axes else 2
        trials = every[:count]
        trial = next((x for x in trials if all(calls.confirms(x, arrays, y, y) for y in fewer)), convention)
        if trial == rows:
            calls.why["least_mask_axes"] = f"with a {name} of one axis it did not compute attention"
            return rows
        if trial != convention:
            calls.why["mask_axes"] = f"with a {name} of fewer axes it did not compute attention"
            if trial.mask_pairs:
                calls.why["mask_pairs"] = f"with a {name} of one query it did not compute attention"
            return trial
    return convention


def confirm_masks_of_entries(calls: Calls, convention: Convention) -> Convention:
    """Find out whether a mask or a bias of three axes has those of batch entries."""
    inputs = {"mask": calls.inputs.mask, "bias": calls.inputs.bias}
    whole = {*inputs} - {"mask"} if convention.mask_of_keys else {*inputs}
    shown = [name for name in inputs if name in whole & convention.names.keys()]
    if convention.mask_axes != 4 or not shown:
        return convention
    trial, loose = replace(convention, mask_of_entries=True), replace(convention, mask_axes=None)
    for name in shown:
        of_entries, of_heads = {name: inputs[name][:, :1]}, {name: inputs[name][0]}
        got = calls.run(trial, calls.arrays, of_entries)
        if got is None or calls.run(loose, calls.arrays, of_heads) is not None:
            return convention
        if got["output"].shape[:-1] != calls.arrays["query"].shape[:-1]:
            return convention
    calls.why["mask_of_entries"] = "it took (B, L, S) and raised an error with (H, L, S)"
    return trial


def confirm_masks_of_keys(calls: Calls, convention: Convention) -> Convention:
    """Find out whether a function of whole masks also takes one of keys alone, ``(B, S)``."""
    whole = "mask" in convention.names and not convention.mask_of_keys and convention.axes == 4
    if not whole or convention.mask == "add":
        return convention
    trial, given = replace(convention, mask_of_keys="also"), {"mask": calls.inputs.mask[:, :1, :1]}
    if not calls.confirms(trial, calls.arrays, given, given):
        return convention
    calls.why["mask_of_keys"] = "a mask of two axes has a boolean for each batch entry and key"
    return trial


def confirm_causality_in_masks(calls: Calls, convention: Convention) -> Convention:
    """Find out whether a mask or a bias takes the place of causality, or excludes it."""
    inputs = {"mask": calls.inputs.mask, "bias": calls.inputs.bias}
    shown = {name: inputs[name] for name in inputs if name in convention.names}
    if "is_causal" not in convention.names or not shown or convention.mask_of_keys:
        return convention
    arrays, causal = calls.drop_batch(convention, calls.arrays), {"is_causal": True}
    options = {name: calls.drop_batch(convention, {name: x}) for name, x in shown.items()}
    for alone in options.values():
        got = calls.run(convention, arrays, alone | causal)
        if got is not None and not calls.agrees(got, arrays, alone):
            return convention
    why = "causality changes nothing or raises an error: these must have it"
    calls.why["causal_in_mask"] = f"beside {' or '.join(shown)}, {why}"
    return replace(convention, causal_in_mask=True)


def with_lse(calls: Calls, convention: Convention) -> Convention:
    """Take another result for the lse if it has its shape, so that its wrong numbers are judged."""
    if OTHER not in convention.returns or "lse" in convention.returns:
        return convention
    at = convention.returns.index(OTHER)
    returns = (*convention.returns[:at], "lse", *convention.returns[at + 1 :])
    arrays = calls.drop_batch(convention, calls.arrays)
    named = replace(convention, returns=returns)
    for trial in (named, replace(named, lse_layout="BSHD")):
        got = calls.run(trial, arrays)
        if got is not None and got["lse"].shape == arrays["query"].shape[:-1]:
            seen = "" if calls.agrees(got, arrays, calls.base) else ", and other numbers"
            calls.why["returns"] = f"result {at + 1} has the shape of an lse{seen}"
            calls.why |= {"lse_layout": "the lse has heads after positions"} if trial.lse_layout else {}
            return trial
    return convention


def confirm_layout_of_lse(calls: Calls, convention: Convention) -> Convention:
    """Find out whether an lse, which a flag of an own name may ask for, has heads after positions."""
    if "lse_layout" in calls.known.keys or convention.one_query is True:
        return convention
    arrays, always = calls.drop_batch(convention, calls.arrays), "lse" in convention.returns
    right = arrays["query"].shape[:-1]
    taken = (own for own, ours in calls.guesses.items() if "return_lse" in ours)
    for own in (convention.names.get("return_lse", "return_lse"), *taken):
        trial = replace(convention, lse_layout="BSHD")
        if not always and own not in inspect.signature(calls.function).parameters:
            continue
        trial = trial if always else replace(trial, names={**convention.names, "return_lse": own})
        results = [calls.run(x, arrays, {"return_lse": True}) for x in (replace(trial, lse_layout=""), trial)]
        shapes = [x["lse"].shape for x in results if x]
        if len(shapes) == 2 and shapes[0] != right == shapes[1]:
            calls.why["lse_layout"] = "the lse has heads after positions"
            return trial
    return convention


def note_precision(calls: Calls, convention: Convention, limits: Mapping[str, Any]) -> Mapping[str, Any]:
    """Record that float64 is computed in float32; with an lse of float32 too, float64 is no dtype of it."""
    if "float64" not in calls.backend.dtypes or "dtypes" in calls.known.keys:
        return limits
    arrays = {x: y.astype(np.float64) for x, y in calls.drop_batch(convention, calls.arrays).items()}
    got = calls.run(convention, arrays)
    if got is None or got["output"].dtype != np.float64:
        return limits
    own = {"output": got["output"]}
    if [calls.agrees(own, arrays, tolerance=tolerance) for tolerance in PRECISIONS] != [True, False]:
        return limits
    more = got if "lse" in got else calls.run(convention, arrays, {"return_lse": True})
    if more and more["lse"].dtype == np.float32:
        calls.why["dtypes"] = f"{IN_FLOAT32}, and its lse is of float32"
        dtypes = limits.get("dtypes", dtypes_to_try(calls.backend.dtypes, ()))
        return {**limits, "dtypes": [name for name in dtypes if name != "float64"]}
    calls.variants["NUM-2"] = "float32"
    calls.why["NUM-2"] = IN_FLOAT32
    return limits


def confirm_int32(calls: Calls, convention: Convention) -> Convention:
    """Find out whether it takes lengths, which no call of int64 confirmed, as int32 alone."""
    lengths = {"key_lengths": [1, 3], "query_lengths": [2, 1]}
    for own, ours in calls.guesses.items():
        name = ours[0] if ours else ""
        if name in lengths and name not in convention.names and not convention.integers:
            names = {**convention.names, name: own}
            trial = replace(convention, names=names, per_entry=True, integers="int32")
            given = {name: np.array(lengths[name])}
            if calls.confirms(trial, calls.arrays, given, given):
                calls.why["integers"] = f"it raised an error with {own} of int64"
                return trial
    return convention


def note_one_offset(calls: Calls, convention: Convention, limits: Mapping[str, Any]) -> Mapping[str, Any]:
    """Record that a function raises an error for an offset of each batch entry, and takes one for all."""
    taken = {*convention.names, *inspect.signature(calls.function).parameters}
    left_out = {"requires", "per_entry"} & calls.known.keys or convention.per_entry or convention.at_length
    if left_out or convention.axes == 3 or not {"query_offset", "is_causal"} <= taken:
        return limits
    results = [
        calls.run(convention, calls.arrays, {"is_causal": True, "query_offset": offset})
        for offset in (1, np.arange(1, B + 1))
    ]
    if results[0] is None or results[1] is not None:
        return limits
    calls.why["requires"] = "it raised an error with a query offset for each batch entry"
    return {**limits, "requires": ["offset"]}


#: What is confirmed of a function whose parameters are known, in this order.
def note_wrong_bias(calls: Calls, convention: Convention) -> Convention:
    """Take the parameter of a mask for a bias too if numbers in it do what no mask does, right or wrong."""
    own, arrays = convention.names.get("mask", ""), calls.drop_batch(convention, calls.arrays)
    if "bias" in convention.names or "bias" not in calls.guesses.get(own, ()) or convention.mask_of_keys:
        return convention
    trial = replace(convention, names={**convention.names, "bias": own})
    bias = calls.inputs.bias
    masks: list[dict[str, Any]] = [{}, *({"mask": mask} for mask in (bias > 0, bias != 0, bias <= 0))]
    results = [calls.run(trial, arrays, calls.drop_batch(trial, x)) for x in ({"bias": bias}, *masks)]
    outputs = [result["output"] for result in results if result is not None]
    alike = [np.allclose(outputs[0], other, equal_nan=True) for other in outputs[1:]]
    if len(outputs) < len(results) or any(alike):
        return convention
    calls.why["bias"] = UNCONFIRMED
    return trial


CONFIRMATIONS = (
    note_wrong_bias,
    confirm_int32,
    confirm_length,
    confirm_slopes,
    with_lse,
    confirm_layout_of_lse,
    confirm_axes_of_masks,
    confirm_masks_of_entries,
    confirm_causality_in_masks,
    confirm_masks_of_keys,
)
