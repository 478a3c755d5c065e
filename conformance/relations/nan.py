"""NaN in one array of a call: which results it reaches, and which stay as they are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.call import call, observe
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.expected import values_in_dialect
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.judge.judge import judge_outputs
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.verdict import Difference
from attnspec.operations.letters import BATCH


def beyond_the_head(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the gradients that do not depend on the first head of the first batch entry.

    The gradient of a query that holds NaN, or attends to a key that does, is not finite.
    """
    if "HEAD-1" in backend.dialect:
        raise Missing(f"{backend.name} shares key heads otherwise, by its declared variant of HEAD-1")
    form, given = OPERATIONS[calls[1].operation], calls[1].arguments
    none = {name for name in form.arrays if name in given and not np.isfinite(given[name]).all()}
    nan = {name for name in none if np.isnan(given[name]).any()}
    of_key = bool(none & {"key", "value"})
    heads = np.shape(given["query"])[-3] // np.shape(given["key"])[-3] if of_key else 1
    firsts = {BATCH: 0, "Hq": slice(heads), "Hkv": slice(1)}
    places = {}
    for output in (output for output in form.results if output.of in given):
        rows = {"L": slice(1)} if output.of.startswith("query") and not of_key else {}
        letters = form.arguments[output.of].shape
        places[output.name] = tuple((firsts | rows).get(letter, slice(None)) for letter in letters)
    lost = next(iter(places)) if nan & {"query", "key", "tokens"} else ""
    return compare_except(backend, calls, places, lost)


def judge_elsewhere(places: Mapping[str, Any], backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Judge the results of a call with NaN except at some places, where those of the clean call stand in."""
    clean, spoiled = (observe(backend, case) for case in calls)
    if judge_outputs(backend, calls[0], clean).status == "fail":
        raise Missing(f"{backend.name} is wrong without the NaN too")
    mixed = {name: array.copy() for name, array in spoiled.items()}
    for name, place in places.items():
        if name in mixed:
            mixed[name][place] = clean[name][place]
    return judge_outputs(backend, calls[0], mixed)


def spoil(array: Any, number: float = np.nan) -> Any:
    """Put NaN or infinity into the first row of the first head of the first batch entry."""
    spoiled = array.copy()
    spoiled[(0,) * array.ndim] = number
    return spoiled


def compare_except(
    backend: Backend, calls: tuple[Case, ...], depends: Mapping[str, tuple[Any, ...]], lost: str = ""
) -> Found:
    """Compare the gradients of a call with NaN with those of the clean call, except at some places.

    One of the gradients is not finite at its place.
    """
    clean, spoiled = calls
    got = call(backend, spoiled.operation, spoiled.arguments)
    budgets = budgets_of(backend, clean)
    values, _ = values_in_dialect(backend, clean, budgets, got)
    for name, place in depends.items():
        if got[name].shape == values[name].shape:
            rows = values[name][place].any(axis=-1)
            if name == lost and np.isfinite(got[name][place][rows].astype(np.float64)).any():
                return f"{name}: expected NaN or infinity where it depends on NaN, got a number"
            got[name] = got[name].copy()
            got[name][place] = values[name][place].astype(got[name].dtype)
            budgets[name][place] = np.inf
    found = (compare(name, x, values[name], budgets[name], clean.dtype) for name, x in got.items())
    return next((difference for difference in found if isinstance(difference, Difference)), None)
