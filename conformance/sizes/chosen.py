"""Judges calls with any numbers and masks in rows and heads that are chosen after the result came.

The gradients are compared with float64, which is exact enough: this is a correct algorithm, so what it is off
by is at most the budget of float64, which is 2^-29 of that of float32.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import Outputs, accepted_dtypes
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.sizes.codebook.gradients import Part
from attnspec.conformance.verdict import Difference
from attnspec.reference.budget.budget import Accuracy, budget

#: The number of rows that are chosen by chance, besides the last one.
ROWS = 3


def chosen_rows(shape: tuple[int, ...], seed: int) -> list[tuple[int, ...]]:
    """Choose the last row and some others."""
    random = np.random.default_rng(seed)
    last = tuple(size - 1 for size in shape)
    others = (tuple(int(random.integers(size)) for size in shape) for _ in range(ROWS))
    return list(dict.fromkeys((last, *others)))


def row_of(arguments: Mapping[str, Any], index: tuple[int, ...]) -> dict[str, Any]:
    """Return the call of one row of one head, without the axes of batch entries and heads."""
    query, key = arguments["query"], arguments["key"]
    *entry, head, i = index
    batch, heads = query.shape[:-3], query.shape[-3]
    shared = (*entry, head // (heads // key.shape[-3]))
    shape = (*query.shape[:-1], key.shape[-2])
    found: dict[str, Any] = {
        "query": query[(*entry, head)][i : i + 1],
        "key": key[shared],
        "value": arguments["value"][shared],
    }
    for name, thing in arguments.items():
        if name in ("mask", "bias", "dropout_mask"):
            found[name] = np.broadcast_to(thing, shape)[(*entry, head)][i : i + 1]
        elif name == "sinks":
            found[name] = thing[head : head + 1]
        elif name in ("query_segment_ids", "query_positions"):
            found[name] = thing[tuple(entry)][i : i + 1]
        elif name in ("key_segment_ids", "key_positions"):
            found[name] = thing[tuple(entry)]
        elif name == "query_lengths":
            found[name] = int(np.broadcast_to(thing, batch)[tuple(entry)] > i)
        elif name == "key_lengths":
            found[name] = int(np.broadcast_to(thing, batch)[tuple(entry)])
        elif name not in (*found, "query_offset"):
            found[name] = thing
    if {"is_causal", "window"} & set(found) and "query_positions" not in found:
        found["query_offset"] = i + int(
            np.broadcast_to(arguments.get("query_offset", 0), batch)[tuple(entry)]
        )
    return found


def exact_row(
    arguments: Mapping[str, Any], index: tuple[int, ...], dialect: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Compute the exact values of one row by the second oracle, without the axes before it."""
    row = row_of(arguments, index)
    return {name: values[0] for name, values in exact("attention", row, dialect).items()}


def compare_rows(
    arguments: Mapping[str, Any],
    outputs: Outputs,
    dtype: str,
    rows: Sequence[tuple[int, ...]],
    *,
    accuracy: Accuracy = "full",
    working: str | None = None,
    profile: str = "",
    unit: float = 1.0,
    empty: bool = True,
    rounding: float = 0.0,
    dialect: Mapping[str, str] | None = None,
) -> Difference | float:
    """Compare some rows with their exact values by the second oracle, which are rounded once more."""
    largest = 0.0
    options: dict[str, Any] = {"accuracy": accuracy, "working": working, "profile": profile}
    for index in rows:
        try:
            values = exact_row(arguments, index, dialect)
        except ValueError:  # the standard does not define the row (NUM-14)
            continue
        if not empty and values["lse"] == -np.inf:
            continue
        allowed = budget("attention", row_of(arguments, index), dtype, **options)
        for name in outputs:
            got, unit_of = np.asarray(outputs[name][index]), unit if name == "lse" else 1.0
            value = values[name] / unit_of
            if name == "lse" and value == np.inf and np.isnan(got) and np.isnan(values["output"]).all():
                continue  # NUM-11 permits it
            own = allowed[name][0] / unit_of + (rounding * np.abs(value) if rounding else 0.0)
            found = compare(name, got, value, own, *accepted_dtypes(name, dtype))
            if isinstance(found, Difference):
                return replace(found, element=(*index, *found.element))
            largest = max(largest, found)
    return largest


#: Options that have a number for each batch entry.
_OF_ENTRIES = ("query_offset", "key_lengths", "query_lengths")
_OF_PAIRS = ("mask", "bias", "dropout_mask")
Numbers = NDArray[np.float64]


def chosen_heads(shape: tuple[int, ...], seed: int) -> list[tuple[int, ...]]:
    """Choose the last key head and another one, if there is one."""
    count = int(np.prod(shape))
    places = [count - 1]
    if count > 1:
        places.append(int(np.random.default_rng(seed).integers(count - 1)))
    return [tuple(int(i) for i in np.unravel_index(place, shape)) for place in places]


def head_call(arguments: Mapping[str, Any], head: tuple[int, ...]) -> dict[str, Any]:
    """Return the call of one key head and its query heads, without the axes of batch entries."""
    query, key = arguments["query"], arguments["key"]
    *entry, shared = head
    batch, group = query.shape[:-3], query.shape[-3] // key.shape[-3]
    own = slice(shared * group, (shared + 1) * group)
    shape = (*query.shape[:-1], key.shape[-2])
    found: dict[str, Any] = {}
    for name, thing in arguments.items():
        if name in ("query", "d_output", "d_lse"):
            found[name] = thing[tuple(entry)][own]
        elif name in ("key", "value"):
            found[name] = thing[tuple(entry)][shared : shared + 1]
        elif name in _OF_PAIRS:
            found[name] = np.broadcast_to(thing, shape)[tuple(entry)][own]
        elif name == "sinks":
            found[name] = thing[own]
        elif name in _OF_ENTRIES:
            found[name] = int(np.broadcast_to(thing, batch)[tuple(entry)])
        elif name.endswith("_segment_ids"):
            found[name] = thing[tuple(entry)]
        else:
            found[name] = thing
    return found


def gradients_of_heads(
    arguments: Mapping[str, Any],
    dtype: str,
    heads: list[tuple[int, ...]],
    *,
    accuracy: Accuracy = "full",
    working: str | None = None,
    profile: str = "",
) -> Iterator[Part]:
    """Yield the gradients of some key heads and of their query heads."""
    options: dict[str, Any] = {"accuracy": accuracy, "working": working, "profile": profile}
    # A result in float64 and these values may both be off by the budget.
    times = 2.0 if dtype == "float64" else 1.0
    group = arguments["query"].shape[-3] // arguments["key"].shape[-3]
    for head in heads:
        call = head_call(arguments, head)
        allowed = budget("attention_vjp", call, dtype, **options)
        values = gradients_in_float64(call)
        for h in range(group):
            query_head = (*head[:-1], head[-1] * group + h)
            yield Part("d_query", query_head, values["d_query"][h], times * allowed["d_query"][h])
        for name in ("d_key", "d_value"):
            yield Part(name, head, values[name], times * allowed[name][0])
        for name in ("bias", "sinks"):
            if arguments.get(name) is not None:
                yield from _gradients_of_shared(name, arguments, dtype, head, times, options)


def _gradients_of_shared(
    name: str,
    arguments: Mapping[str, Any],
    dtype: str,
    head: tuple[int, ...],
    times: float,
    options: Mapping[str, Any],
) -> Iterator[Part]:
    """Yield the gradients of the bias or the sinks of a key head, summed over what shares them."""
    *entry, shared = head
    given, batch, key_heads = arguments[name], arguments["query"].shape[:-3], arguments["key"].shape[-3]
    group = arguments["query"].shape[-3] // key_heads
    axes = given.shape[:-2] if name == "bias" else given.shape
    axes = (1,) * (len(head) - len(axes)) + axes  # of (*B, Hq)
    apart = axes[-1] > 1
    entries = [
        other
        for other in np.ndindex(batch)
        if all(size == 1 or i == j for size, i, j in zip(axes, other, entry, strict=False))
    ]
    heads = [shared] if apart else range(key_heads)
    calls = ([head_call(arguments, (*other, own)) for own in heads] for other in entries)
    found = np.sum([[gradients_in_float64(call)[f"d_{name}"] for call in each] for each in calls], axis=0)
    found = found.reshape(-1, *found.shape[2:])  # (Hq, ...)
    call = _key_head_call(arguments, shared) if apart else arguments
    allowed = budget("attention_vjp", call, dtype, **options)[f"d_{name}"]
    first = tuple(i if size > 1 else 0 for size, i in zip(axes, entry, strict=False))
    missing = len(axes) - (given.ndim - 2 if name == "bias" else given.ndim)
    for h, values in enumerate(found if apart else [found.sum(axis=0)]):
        place = (*first, shared * group + h if apart else 0)[missing:]
        yield Part(f"d_{name}", place, values, times * allowed[(*first, h)[missing:]])


def _key_head_call(arguments: Mapping[str, Any], shared: int) -> dict[str, Any]:
    """Return the call of one key head and its query heads for all batch entries."""
    group = arguments["query"].shape[-3] // arguments["key"].shape[-3]
    own, other = slice(shared * group, (shared + 1) * group), slice(shared, shared + 1)
    cut = {"query": own, "d_output": own, "key": other, "value": other}
    found = dict(arguments)
    for name, x in arguments.items():
        if name in cut or (name in _OF_PAIRS and np.ndim(x) > 2 and x.shape[-3] > 1):
            found[name] = x[..., cut.get(name, own), :, :]
        elif name == "d_lse":
            found[name] = x[..., own, :]
        elif name == "sinks":
            found[name] = x[own]
    return found


def gradients_in_float64(call: Mapping[str, Any]) -> dict[str, Numbers]:
    """Compute the gradients of one key head and its query heads by the formulas of the chapter."""
    query, key, value, g = (call[name].astype(np.float64) for name in ("query", "key", "value", "d_output"))
    key, value = key[0], value[0]
    h = call.get("d_lse")
    h = np.zeros(g.shape[:-1]) if h is None else h.astype(np.float64)
    scale = call.get("scale")
    scale = 1 / np.sqrt(query.shape[-1]) if scale is None else float(scale)
    found = {"d_query": np.zeros(query.shape), "d_key": np.zeros(key.shape), "d_value": np.zeros(value.shape)}
    found |= {"d_bias": np.zeros((*query.shape[:-1], len(key))), "d_sinks": np.zeros(len(query))}
    for head, rows in enumerate(query):
        s, slope = scale * (rows @ key.T), np.ones((len(rows), len(key)))
        if call.get("softcap") is not None:
            bent = np.tanh(s / call["softcap"])
            s, slope = call["softcap"] * bent, 1 - bent * bent
        if call.get("bias") is not None:
            s = s + call["bias"][head].astype(np.float64)
        s = np.where(_allowed_pairs(call, head, s.shape), s, -np.inf)
        sink = float(call["sinks"][head]) if call.get("sinks") is not None else -np.inf
        top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), sink)
        top = np.where(np.isfinite(top), top, 0)
        e = np.exp(s - top)
        of_sink = np.exp(sink - top)
        whole = e.sum(axis=-1, keepdims=True) + of_sink
        whole = np.where(whole > 0, whole, 1)
        p = e / whole
        kept = np.ones(p.shape)
        if call.get("dropout_mask") is not None:
            kept = call["dropout_mask"][head] / (1 - call["dropout_rate"])
        r = kept * (g[head] @ value.T)
        level = h[head][:, None] - (p * r).sum(axis=-1, keepdims=True)
        found["d_sinks"][head] = (of_sink / whole * level).sum()
        found["d_bias"][head] = t = p * (r + level)
        t = t * slope
        found["d_query"][head] = scale * (t @ key)
        found["d_key"] += scale * (t.T @ rows)
        found["d_value"] += (p * kept).T @ g[head]
    return {name: x for name, x in found.items() if call.get(name.removeprefix("d_")) is not None}


def _allowed_pairs(call: Mapping[str, Any], head: int, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which keys each query of a head may attend to; a bias of minus infinity is in the scores."""
    i, j = np.arange(shape[0])[:, None], np.arange(shape[1])
    place = i + call.get("query_offset", 0)
    found = np.ones(shape, dtype=bool)
    if call.get("is_causal"):
        found &= j <= place
    left, right = call.get("window") or (None, None)
    if left is not None:
        found &= j >= place - left
    if right is not None:
        found &= j <= place + right
    if call.get("key_lengths") is not None:
        found &= j < call["key_lengths"]
    if call.get("query_lengths") is not None:
        found &= i < call["query_lengths"]
    if call.get("query_segment_ids") is not None:
        found &= call["query_segment_ids"][:, None] == call["key_segment_ids"]
    if call.get("mask") is not None:
        found &= call["mask"][head]
    return found
