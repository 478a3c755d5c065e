"""The companions of attention for the exact oracle: projections, heads, caches, partial results."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, fmpq, fmpq_mat
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.reference.exact.balls import Settled, nearest, settle
from attnspec.reference.exact.head import allowed_pairs, matrix, rational
from attnspec.reference.exact.positions import (
    alibi_bias,
    alibi_bias_vjp,
    rotary,
    rotary_frequencies,
    rotary_vjp,
)


def block(features: fmpq_mat, head: int, count: int) -> fmpq_mat:
    """Return the columns of one head."""
    depth = features.ncols() // count
    rows = range(features.nrows())
    return fmpq_mat(
        features.nrows(), depth, [features[n, head * depth + d] for n in rows for d in range(depth)]
    )


def project(arguments: Mapping[str, Any], tokens: NDArray[Any], name: str = "") -> fmpq_mat:
    """Project by the weight and bias of a name."""
    prefix = f"{name}_" if name else ""
    given, weight = matrix(tokens), matrix(arguments[f"{prefix}weight"])
    convention = arguments.get("convention", "row")
    columns = convention == "column"
    if convention == "linear":
        weight = weight.transpose()
    projected = weight * given if columns else given * weight
    bias = arguments.get(f"{prefix}bias")
    if bias is not None:
        for i in range(projected.nrows()):
            for j in range(projected.ncols()):
                projected[i, j] = projected[i, j] + rational(np.asarray(bias)[i if columns else j])
    return projected


Evaluate = Callable[[Mapping[str, Any], str | None, str], dict[str, Settled]]


def _split_heads(arguments: Mapping[str, Any], _variant: str | None, _dtype: str) -> dict[str, Settled]:
    features, heads = np.asarray(arguments["features"]), arguments["heads"]
    *batch, positions, width = features.shape
    depth = width // heads
    split = np.empty((*batch, heads, positions, depth))
    for *b, h, n, d in np.ndindex(*split.shape):
        split[(*b, h, n, d)] = features[(*b, n, h * depth + d)]
    return {"split": _copy(split)}


def _merge_heads(arguments: Mapping[str, Any], _variant: str | None, _dtype: str) -> dict[str, Settled]:
    split = np.asarray(arguments["split"])
    *batch, heads, positions, depth = split.shape
    merged = np.empty((*batch, positions, heads * depth))
    for *b, h, n, d in np.ndindex(*split.shape):
        merged[(*b, n, h * depth + d)] = split[(*b, h, n, d)]
    return {"merged": _copy(merged)}


def _append_cache(arguments: Mapping[str, Any], _variant: str | None, _dtype: str) -> dict[str, Settled]:
    cache, new = np.asarray(arguments["cache"]), np.asarray(arguments["new"])
    lengths = np.broadcast_to(arguments["lengths"], cache.shape[:-3])
    appended = np.array(cache, dtype=np.float64)
    for place in np.ndindex(*new.shape):
        length = int(lengths[place[:-3]]) if new.ndim > 2 else int(lengths)
        appended[(*place[:-2], length + place[-2], place[-1])] = new[place]
    return {"appended": _copy(appended)}


def _gather_pages(arguments: Mapping[str, Any], _variant: str | None, _dtype: str) -> dict[str, Settled]:
    pages, table = np.asarray(arguments["pages"]), np.asarray(arguments["block_table"])
    _, heads, size, depth = pages.shape
    gathered = np.zeros((*table.shape[:-1], heads, table.shape[-1] * size, depth))
    for *b, h, position, d in np.ndindex(*gathered.shape):
        page, k = divmod(position, size)
        if table[(*b, page)] >= 0:  # the standard defines no numbers for another entry
            gathered[(*b, h, position, d)] = pages[table[(*b, page)], h, k, d]
    return {"gathered": _copy(gathered)}


def _copy(values: NDArray[Any]) -> Settled:
    return Settled(np.asarray(values, dtype=np.float64), 53, None)


def _merge_partials(arguments: Mapping[str, Any], _variant: str | None, dtype: str) -> dict[str, Settled]:
    outputs, lses = (np.asarray(arguments[name], np.float64) for name in ("outputs", "lses"))
    special = np.where(np.isnan(lses) | (lses == np.inf), lses, 0).sum(axis=0)  # NaN, infinity or 0
    merged = _merge_finite(outputs, np.where(special == 0, lses, -np.inf), dtype)
    merged["lse"].values[special != 0] = special[special != 0]
    merged["output"].values[special != 0] = np.nan  # (CACHE-9)
    return merged


def _merge_finite(outputs: NDArray[np.float64], lses: NDArray[np.float64], dtype: str) -> dict[str, Settled]:
    shape = outputs.shape[1:]
    rows = list(np.ndindex(*shape[:-1]))
    parts = {row: [n for n in range(len(lses)) if lses[(n, *row)] != -np.inf] for row in rows}

    def rates(row: tuple[int, ...]) -> tuple[list[arb], arb]:
        """Return the shifted exponentials of the lses of a row, and the shift."""
        exponents = [arb(rational(lses[(n, *row)])) for n in parts[row]]
        top = max((exponent.mid() for exponent in exponents), default=arb(0))
        return [(exponent - top).exp() for exponent in exponents], top

    def output_ball(row: tuple[int, ...], c: int) -> arb:
        results, _ = rates(row)
        values = [arb(rational(outputs[(n, *row, c)])) for n in parts[row]]
        weighted = sum((rate * x for rate, x in zip(results, values, strict=True)), arb(0))
        return weighted / sum(results, arb(0)) if results else arb(0)

    def lse_ball(row: tuple[int, ...]) -> arb:
        results, top = rates(row)
        return top + sum(results, arb(0)).log() if results else arb(0)

    def exact_output(flat: int) -> fmpq | None:
        row, c = rows[flat // shape[-1]], flat % shape[-1]
        groups: dict[float, list[fmpq]] = {}
        for n in parts[row]:
            groups.setdefault(float(lses[(n, *row)]), []).append(rational(outputs[(n, *row, c)]))
        means = {sum(group, fmpq(0)) / len(group) for group in groups.values()} or {fmpq(0)}
        return means.pop() if len(means) == 1 else None

    def exact_lse(flat: int) -> fmpq | None:
        results = [rational(lses[(n, *rows[flat])]) for n in parts[rows[flat]]]
        return results[0] if len(results) == 1 else None if results else fmpq(0)

    lse = settle(shape[:-1], lambda: [lse_ball(row) for row in rows], exact_lse, FORMATS[dtype].lse)
    for row in rows:
        if not parts[row]:
            lse.values[row] = -np.inf
    places = [(row, c) for row in rows for c in range(shape[-1])]
    output = settle(shape, lambda: [output_ball(row, c) for row, c in places], exact_output, dtype)
    return {"output": output, "lse": lse}


def _select_keys(arguments: Mapping[str, Any], variant: str | None, _dtype: str) -> dict[str, Settled]:
    """Fill the places of each list, from the largest score down. Keys that do not all fit count one half."""
    scores = np.asarray(arguments["scores"], np.float64)
    keys = scores.shape[-1]
    listed = np.zeros((*scores.shape[:-1], keys + 1))
    for index in np.ndindex(*scores.shape[:-2]):
        allowed = allowed_pairs(arguments, scores.shape, (*index, 0), variant)
        for i, row in enumerate(scores[index]):
            alike: dict[float, list[int]] = defaultdict(list)
            for j in range(keys):
                if allowed[i, j] and row[j] > -np.inf:
                    alike[float(row[j])].append(j)
            left = int(arguments["top_k"])
            for score in sorted(alike, reverse=True):
                fits = len(alike[score]) <= left
                listed[(*index, i, alike[score])] = 1 if fits else 0.5 if left else 0
                left = left - len(alike[score]) if fits else 0
            listed[(*index, i, keys)] = left
    return {"key_indices": _copy(listed)}


def _indexer_scores(arguments: Mapping[str, Any], _variant: str | None, dtype: str) -> dict[str, Settled]:
    """Add up the weighted products of the heads. All values are rational."""
    query, key, weights = (np.asarray(arguments[f"index_{name}"]) for name in ("query", "key", "weights"))
    scores = np.zeros((*key.shape[:-2], query.shape[-2], key.shape[-2]))
    for index in np.ndindex(*key.shape[:-2]):
        keys = matrix(key[index]).transpose()
        products = [matrix(head) * keys for head in query[index]]
        for i, j in np.ndindex(*scores.shape[-2:]):
            kept = (max(product[i, j], fmpq(0)) for product in products)
            parts = (x * rational(w) for x, w in zip(kept, weights[(*index, slice(None), i)], strict=True))
            total = sum(parts, fmpq(0))
            scores[(*index, i, j)] = nearest(Fraction(int(total.p), int(total.q)), FORMATS[dtype].lse)
    return {"index_scores": _copy(scores)}


#: The operations that do not contain attention.
COMPANIONS: Mapping[str, Evaluate] = {
    "split_heads": _split_heads,
    "merge_heads": _merge_heads,
    "append_cache": _append_cache,
    "gather_pages": _gather_pages,
    "merge_partials": _merge_partials,
    "indexer_scores": _indexer_scores,
    "select_keys": _select_keys,
    "rotary": rotary,
    "rotary_vjp": rotary_vjp,
    "rotary_frequencies": rotary_frequencies,
    "alibi_bias": alibi_bias,
    "alibi_bias_vjp": alibi_bias_vjp,
}
