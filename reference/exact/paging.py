"""Attention over pages for the exact oracle: a call of attention for each sequence, over its keys alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnspec.reference.exact.attention import evaluate_attention
from attnspec.reference.exact.balls import Settled

_OWN = ("query", "key_pages", "value_pages", "block_table", "key_lengths", "new_key", "new_value")
_POSITIONS = ("left_padding", "query_offset")


def evaluate_paged(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Compute output and lse of a call."""
    query = np.asarray(arguments["query"])
    depth = np.shape(arguments["value_pages"])[-1]
    found = {"output": np.zeros((*query.shape[:-1], depth)), "lse": np.zeros(query.shape[:-1])}
    proofs = []
    options = {name: x for name, x in arguments.items() if name not in (*_OWN, *_POSITIONS)}
    for entry in np.ndindex(*query.shape[:-3]):
        first = _of(arguments.get("left_padding", 0), entry)
        keys, end = _positions(arguments, "key", entry, first)
        values, _ = _positions(arguments, "value", entry, first)
        offset = arguments.get("query_offset")
        at = end - query.shape[-2] if offset is None else _of(offset, entry)
        plain = {"query": query[entry], "key": keys, "value": values, **options, "query_offset": at - first}
        own = evaluate_attention(plain, None if variant == "bottom-right" else variant, dtype)
        for name, array in found.items():
            array[entry] = own[name].values
            proofs.append(own[name])
    radii = [one.radius for one in proofs if one.radius is not None]
    bits = max((one.bits for one in proofs), default=53)
    return {name: Settled(array, bits, max(radii, default=None)) for name, array in found.items()}


def _positions(
    arguments: Mapping[str, Any], name: str, entry: tuple[int, ...], first: int
) -> tuple[Any, int]:
    """Return the keys or values of a sequence after its left padding, and the end of its positions."""
    pages, new = np.asarray(arguments[f"{name}_pages"]), arguments.get(f"new_{name}")
    length = _of(arguments["key_lengths"], entry)
    table = np.asarray(arguments["block_table"])[entry]
    end = length + (0 if new is None else np.shape(new)[-2])
    rows = np.zeros((pages.shape[1], max(end - first, 0), pages.shape[3]))
    for j in range(first, end):
        if j < length:
            rows[:, j - first] = pages[int(table[j // pages.shape[2]]), :, j % pages.shape[2]]
        else:
            rows[:, j - first] = np.asarray(new)[entry][:, j - length]
    return rows, end


def _of(given: Any, entry: tuple[int, ...]) -> int:
    array = np.asarray(given)
    return int(array) if array.ndim == 0 else int(array[entry])
