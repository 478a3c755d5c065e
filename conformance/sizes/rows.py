"""Judges some rows of a result: rows of any numbers and masks, chosen after the result was delivered."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import Outputs, accepted
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.sizes.sized import OUTPUTS
from attnspec.conformance.verdict import Difference
from attnspec.reference.budget.budget import Accuracy, budget

#: The number of rows that are chosen by chance, besides the last one.
ROWS = 3


def chosen_rows(shape: tuple[int, ...], seed: int) -> list[tuple[int, ...]]:
    """Choose the last row and some others.

    Examples
    --------
    >>> from attnspec.conformance.sizes.rows import chosen_rows
    >>> chosen_rows((1, 1, 1), 7)
    [(0, 0, 0)]
    """
    random = np.random.default_rng(seed)
    last = tuple(size - 1 for size in shape)
    others = (tuple(int(random.integers(size)) for size in shape) for _ in range(ROWS))
    return list(dict.fromkeys((last, *others)))


def row_of(arguments: Mapping[str, Any], index: tuple[int, ...]) -> dict[str, Any]:
    """Return the call of one row of one head, without the axes of batch entries and heads.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.sizes.rows import row_of
    >>> query, key = np.ones((1, 2, 5, 4)), np.ones((1, 1, 3, 4))
    >>> row = row_of({"query": query, "key": key, "value": key, "is_causal": True}, (0, 1, 2))
    >>> row["query"].shape, row["query_offset"]
    ((1, 4), 2)
    """
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
        elif name == "query_segment_ids":
            found[name] = thing[tuple(entry)][i : i + 1]
        elif name == "key_segment_ids":
            found[name] = thing[tuple(entry)]
        elif name == "query_lengths":
            found[name] = int(np.broadcast_to(thing, batch)[tuple(entry)] > i)
        elif name == "key_lengths":
            found[name] = int(np.broadcast_to(thing, batch)[tuple(entry)])
        elif name not in (*found, "query_offset"):
            found[name] = thing
    if {"is_causal", "window"} & set(found):
        found["query_offset"] = i + int(
            np.broadcast_to(arguments.get("query_offset", 0), batch)[tuple(entry)]
        )
    return found


def exact_row(arguments: Mapping[str, Any], index: tuple[int, ...]) -> dict[str, Any]:
    """Compute the exact values of one row by the second oracle, without the axes before it.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.sizes.rows import exact_row
    >>> query, key = np.ones((1, 2, 5, 1)), np.ones((1, 1, 3, 1))
    >>> value = np.array([[[[1.0], [2.0], [6.0]]]])
    >>> exact_row({"query": query, "key": key, "value": value}, (0, 1, 2))["output"].tolist()
    [3.0]
    """
    return {name: values[0] for name, values in exact("attention", row_of(arguments, index)).items()}


def compared_rows(
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
) -> Difference | float:
    """Compare some rows with their exact values by the second oracle."""
    largest = 0.0
    options: dict[str, Any] = {"accuracy": accuracy, "working": working, "profile": profile}
    for index in rows:
        values = exact_row(arguments, index)
        if not empty and values["lse"] == -np.inf:
            continue
        allowed = budget("attention", row_of(arguments, index), dtype, **options)
        for name in (one for one in OUTPUTS if one in outputs):
            got, unit_of = np.asarray(outputs[name][index]), unit if name == "lse" else 1.0
            value, own = values[name] / unit_of, allowed[name][0] / unit_of
            found = compare(name, got, value, own, *accepted(name, dtype))
            if isinstance(found, Difference):
                return replace(found, element=(*index, *found.element))
            largest = max(largest, found)
    return largest
