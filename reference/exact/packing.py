"""Packed attention for the exact oracle: a call of attention for each sequence, put in its place."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnspec.dtypes import FORMATS
from attnspec.reference.exact.attention import evaluate_attention
from attnspec.reference.exact.backward import parts_of
from attnspec.reference.exact.balls import Settled
from attnspec.reference.exact.gradients import evaluate_gradients, settled

_QUERIES = ("query", "d_output", "d_lse")
_KEYS = ("key", "value")


def evaluate_packed(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    """Compute output and lse of a call. Rows of no sequence are 0 and minus infinity."""
    query, value = np.asarray(arguments["query"]), np.asarray(arguments["value"])
    found = {
        "output": np.zeros((*query.shape[:2], value.shape[-1])),
        "lse": np.full(query.shape[:2], -np.inf),
    }
    proofs = []
    for rows, _, plain in _sequences(arguments, variant):
        own = evaluate_attention(plain, None if variant == "bottom-right" else variant, dtype)
        for name, array in found.items():
            array[:, rows] = own[name].values
            proofs.append(own[name])
    return {name: _settled(array, proofs) for name, array in found.items()}


def evaluate_packed_gradients(
    arguments: Mapping[str, Any], variant: str | None, dtype: str
) -> dict[str, Settled]:
    """Compute the gradients of a call. Those of the sinks are sums over all sequences, rounded once."""
    found = {f"d_{name}": np.zeros(np.shape(arguments[name])) for name in ("query", "key", "value")}
    inner = None if variant == "bottom-right" else variant
    proofs, parts = [], []
    for rows, keys, plain in _sequences(arguments, variant):
        own = evaluate_gradients(plain, inner, dtype)
        for name, array in found.items():
            array[:, rows if name == "d_query" else keys] = own[name].values
            proofs.append(own[name])
        parts += parts_of(plain, inner)
    results = {name: _settled(array, proofs) for name, array in found.items()}
    if arguments.get("sinks") is None:
        return results
    shape = np.shape(arguments["sinks"])
    of_sinks = settled(parts, {"d_sinks": shape}, inner, {"d_sinks": dtype})
    return results | of_sinks


def _sequences(
    arguments: Mapping[str, Any], variant: str | None
) -> Iterator[tuple[slice, slice, dict[str, Any]]]:
    """Yield the rows and the keys of each sequence, and its call of attention."""
    starts, ends = (np.asarray(arguments[f"{of}_starts"]).tolist() for of in ("query", "key"))
    offsets = arguments.get("query_offset", 0)
    options = {
        name: thing
        for name, thing in arguments.items()
        if name not in (*_QUERIES, *_KEYS, "query_starts", "key_starts", "query_offset")
    }
    for g in range(len(starts) - 1):
        rows, keys = slice(starts[g], starts[g + 1]), slice(ends[g], ends[g + 1])
        plain = {name: np.asarray(arguments[name])[:, rows] for name in _QUERIES if name in arguments}
        plain |= {name: np.asarray(arguments[name])[:, keys] for name in _KEYS}
        moved = int(offsets) if np.ndim(offsets) == 0 else int(np.asarray(offsets)[g])
        if variant == "bottom-right" and np.ndim(offsets) == 0 and moved == 0:
            moved = (keys.stop - keys.start) - (rows.stop - rows.start)
        yield rows, keys, {**plain, **options, "query_offset": moved}


def _settled(values: Any, proofs: list[Settled]) -> Settled:
    radii = [one.radius for one in proofs if one.radius is not None]
    bits = max((one.bits for one in proofs), default=FORMATS["float64"].digits)
    return Settled(values, bits, max(radii, default=None))
