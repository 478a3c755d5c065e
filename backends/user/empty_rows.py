"""What a function gives for rows without a key to attend to, where a dialect can describe it."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from attnspec import Operation
from attnspec.backends.user.calls import B, Calls
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.signature import required_parameters
from attnspec.reference import function

#: What such a row may be: the rule, and the variants of MASK-6.
_WORDS = {"": "0", "nan": "NaN", "uniform": "the mean of all values"}
#: An lse below this stands for minus infinity (SOFT-7).
_FILL = -10000
#: An argument, and the arrays, the options and their meaning of a call in which it leaves rows without keys.
_Call = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]


def note_empty_rows(
    calls: Calls, convention: Convention, limits: Mapping[str, Any], dtypes: Sequence[str]
) -> Mapping[str, Any]:
    """Record the variants of MASK-2, MASK-6 and SOFT-7 that rows without a key show.

    A variant is about all arguments of a route. Of a route whose arguments differ nothing is recorded. There
    is none if such rows are right beside sinks, which the function needs: it may require finite ones.
    """
    if "requires" not in calls.known.keys and _is_right_beside_sinks(calls, convention):
        seen = "a row left without keys was right beside sinks, which it needs, and NaN beside minus infinity"
        calls.why["requires"] = "; ".join(filter(None, (calls.why.get("requires"), seen)))
        return {**limits, "requires": [*limits.get("requires", ()), "sinks"]}
    shown = {dtype: _shown(calls, convention, dtype) for dtype in dtypes}
    for rule in {rule: 0 for variants in shown.values() for rule in variants}:
        of = {dtype: variants[rule] for dtype, variants in shown.items() if rule in variants}
        of_why: dict[str, list[str]] = {}
        for dtype, (_, why) in of.items():
            of_why.setdefault(why, []).append(dtype)
        variants = {dtype: variant for dtype, (variant, _) in of.items()}
        first, *others = variants.values()
        if len(of) == len(dtypes) and others.count(first) == len(others):
            calls.variants[rule] = first
            calls.why[rule] = next(iter(of_why))
        elif all(isinstance(variant, str) for variant in variants.values()):
            calls.variants[rule] = variants
            calls.why[rule] = "; ".join(f"in {', '.join(those)} {why}" for why, those in of_why.items())
    return limits


def _is_right_beside_sinks(calls: Calls, convention: Convention) -> bool:
    """Whether rows without a key are NaN in calls without the sinks that it needs, and right with some."""
    if convention.names.get("sinks", "sinks") not in required_parameters(calls.function):
        return False
    right, wrong = [], False
    for _, arrays, options, meaning in calls_with_empty_rows(calls, convention, "float32"):
        sinks = {"sinks": np.linspace(-1, 1, calls.heads, dtype=np.float32)}
        got, own = (calls.run(convention, arrays, options | each) for each in ({}, sinks))
        if got is not None and own is not None:
            wrong |= bool(np.isnan(got["output"]).any())
            right.append(
                np.allclose(own["output"], calls.expected(arrays, meaning | sinks)["output"], 0.02, 0.02)
            )
    return wrong and bool(right) and all(right)


def calls_with_empty_rows(calls: Calls, convention: Convention, dtype: str) -> Iterator[_Call]:
    """Yield a call for each argument that may leave rows without keys."""
    if calls.by_distance:
        return
    mask, bias = calls.inputs.mask.copy(), calls.inputs.bias.astype(dtype)
    row = min(1, calls.lengths[0] - 1)
    mask[..., row, :], bias[..., row, :] = False, -np.inf
    if convention.mask_of_keys is True:
        mask = np.arange(B)[:, None, None, None] != np.zeros((1, 1, 1, calls.lengths[1]))
    lengths = np.arange(B) * calls.lengths[1]
    arrays = {name: x.astype(dtype) for name, x in calls.drop_batch(convention, calls.arrays).items()}
    for name, given in {"mask": mask, "bias": bias, "key_lengths": lengths}.items():
        call = calls.drop_batch(convention, {name: given})
        yield name, arrays, call, call
    if convention.one_query:
        return
    # With fewer keys than queries some queries have none, with either alignment.
    fewer = arrays | {name: arrays[name][..., : calls.lengths[0] - 2, :] for name in ("key", "value")}
    end = {"query_offset": -2} if calls.at_end else {}
    for name, option in {"is_causal": True, "window": (1, 0)}.items():
        yield name, fewer, {name: option}, {name: option} | end


def _shown(calls: Calls, convention: Convention, dtype: str) -> dict[str, tuple[Any, str]]:
    """Return the variants that rows of one dtype show, by rule, and what was seen."""
    rows: dict[str, dict[str, str]] = {"mask": {}, "bias": {}}
    lse: list[float] = []
    taken = {*convention.names, *inspect.signature(calls.function).parameters}
    always = "lse" in convention.returns and "return_lse" not in convention.flags
    asked = {"return_lse": True} if "return_lse" in taken and not always else {}
    for name, arrays, options, meaning in calls_with_empty_rows(calls, convention, dtype):
        got, expected = calls.run(convention, arrays, options | asked), calls.expected(arrays, meaning)
        empty, output = expected["lse"] == -np.inf, expected["output"]
        if got is None or got["output"].shape != output.shape or not empty.any():
            continue
        own = got["output"].astype(np.float64)
        if np.allclose(own[~empty], output[~empty], 0.02, 0.02):
            rows["bias" if name == "bias" else "mask"][name] = _row(own, arrays["value"], empty)
            fits = "lse" in got and got["lse"].shape == empty.shape
            lse += np.ravel(got["lse"][empty]).tolist() if fits else []
    return _variants(rows) | _variant_of_lse(lse)


def _variant_of_lse(lse: Sequence[float]) -> dict[str, tuple[str, str]]:
    """Return the variant that the lse of rows without keys shows, and what was seen."""
    if not len(lse) or np.isnan(lse).any() or (most := max(lse)) == -np.inf or _FILL <= most < np.inf:
        return {}
    kind = "plus-infinity" if most == np.inf else "finite"
    return {"SOFT-7": (kind, f"the lse of a row without keys was {most:.2g}")}


class _CallsOfForm(Protocol):
    """Calls of one function of an operation."""

    operation: str
    form: Operation
    by_distance: bool

    def results(self, convention: Convention, call: Mapping[str, Any]) -> list[Any] | None: ...


def variants_of_empty_rows(
    calls: _CallsOfForm, convention: Convention, call: Mapping[str, Any], why: dict[str, str]
) -> dict[str, str]:
    """Return the variants of MASK-6 and SOFT-7 that a sequence without keys shows in a form of attention."""
    if calls.by_distance or convention.always or "return_lse" not in calls.form.arguments:
        return {}
    optional = np.ones(2, np.int32) if "key_lengths" in convention.names and not convention.past else None
    lengths = call.get("key_lengths", optional)
    if "key_starts" in call:
        emptied = {**call, "key_starts": call["key_starts"] * [1, 0, 1]}
    elif lengths is not None:
        emptied = {**call, "key_lengths": lengths * [0, 1]}
    else:
        return {}
    named = "return_lse" in convention.names or "lse" in convention.returns
    own = calls.results(convention, emptied | ({"return_lse": True} if named else {}))
    output, lse = function(calls.operation)(**emptied, return_lse=True)
    empty = np.isneginf(lse)
    if own is None or own[0].shape != output.shape:
        return {}
    if not np.allclose(own[0][~empty], output[~empty], 0.02, 0.02):
        return {}
    variants = {"MASK-6": ("nan", "a sequence without keys was NaN")} if np.isnan(own[0][empty]).all() else {}
    variants |= _variant_of_lse(np.ravel(own[1][empty]).tolist() if named else [])
    why |= {rule: seen for rule, (_, seen) in variants.items()}
    return {rule: variant for rule, (variant, _) in variants.items()}


def _row(output: Any, value: Any, empty: Any) -> str:
    """Return the word for the rows of an output, in `_WORDS`, or another one."""
    rows = output[empty]
    mean = np.broadcast_to(value.astype(np.float64).mean(axis=-2, keepdims=True), output.shape)[empty]
    if np.isnan(rows).all():
        return "nan"
    return "" if not rows.any() else "uniform" if np.allclose(rows, mean, 0.02, 0.02) else "other"


def _variants(rows: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[Any, str]]:
    """Return the variants that describe the rows of each route; a bias with NaN is one that is added."""
    alike = {route: {*every.values()} for route, every in rows.items()}
    seen = {route: min(words) for route, words in alike.items() if len(words) == 1 and words <= _WORDS.keys()}
    said = {x: f"{' or '.join(rows[x])} was {_WORDS[row]}" for x, row in seen.items() if row}
    left, mask = "a row left without keys by ", seen.get("mask", "")
    added = seen.get("bias") == "nan" and mask != "nan"
    found = {"MASK-2": ("added", left + said.pop("bias"))} if added else {}
    of = {route: seen[route] for route in said}
    whole = (
        len({of.get(route) for route, every in rows.items() if every and not (added and route == "bias")})
        == 1
    )
    why = left + " and by ".join(said.values())
    return found | ({"MASK-6": (min(of.values()) if whole else of, why)} if of else {})
