"""The companions of attention for the exact oracle: heads, caches, partial results, positions.

Splitting, merging, appending and paging copy numbers and compute none, so their values are
those of the inputs.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from attnspec.dtypes import FORMATS
from attnspec.reference.exact.balls import Settled, settle
from attnspec.reference.exact.head import rational

Evaluate = Callable[[Mapping[str, Any], str | None, str], dict[str, Settled]]


def _split_heads(arguments: Mapping[str, Any], _variant: str | None, _dtype: str) -> dict[str, Settled]:
    features, heads = np.asarray(arguments["features"]), arguments["heads"]
    *batch, positions, width = features.shape
    depth = width // heads
    split = np.empty((*batch, heads, positions, depth))
    for *b, h, n, d in np.ndindex(*split.shape):
        split[(*b, h, n, d)] = features[(*b, n, h * depth + d)]
    return {"split": _copied(split)}


def _merge_heads(arguments: Mapping[str, Any], _variant: str | None, _dtype: str) -> dict[str, Settled]:
    split = np.asarray(arguments["split"])
    *batch, heads, positions, depth = split.shape
    merged = np.empty((*batch, positions, heads * depth))
    for *b, h, n, d in np.ndindex(*split.shape):
        merged[(*b, n, h * depth + d)] = split[(*b, h, n, d)]
    return {"merged": _copied(merged)}


def _append_cache(arguments: Mapping[str, Any], _variant: str | None, _dtype: str) -> dict[str, Settled]:
    cache, new = np.asarray(arguments["cache"]), np.asarray(arguments["new"])
    lengths = np.broadcast_to(arguments["lengths"], cache.shape[:-3])
    appended = np.array(cache, dtype=np.float64)
    for place in np.ndindex(*new.shape):
        length = int(lengths[place[:-3]]) if new.ndim > 2 else int(lengths)
        appended[(*place[:-2], length + place[-2], place[-1])] = new[place]
    return {"appended": _copied(appended)}


def _gather_pages(arguments: Mapping[str, Any], _variant: str | None, _dtype: str) -> dict[str, Settled]:
    pages, table = np.asarray(arguments["pages"]), np.asarray(arguments["block_table"])
    _, heads, size, depth = pages.shape
    gathered = np.empty((*table.shape[:-1], heads, table.shape[-1] * size, depth))
    for *b, h, position, d in np.ndindex(*gathered.shape):
        page, k = divmod(position, size)
        gathered[(*b, h, position, d)] = pages[table[(*b, page)], h, k, d]
    return {"gathered": _copied(gathered)}


def _copied(values: NDArray[Any]) -> Settled:
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
        found, _ = rates(row)
        values = [arb(rational(outputs[(n, *row, c)])) for n in parts[row]]
        weighted = sum((rate * x for rate, x in zip(found, values, strict=True)), arb(0))
        return weighted / sum(found, arb(0)) if found else arb(0)

    def lse_ball(row: tuple[int, ...]) -> arb:
        found, top = rates(row)
        return top + sum(found, arb(0)).log() if found else arb(0)

    def exact_output(flat: int) -> fmpq | None:
        row, c = rows[flat // shape[-1]], flat % shape[-1]
        groups: dict[float, list[fmpq]] = {}
        for n in parts[row]:
            groups.setdefault(float(lses[(n, *row)]), []).append(rational(outputs[(n, *row, c)]))
        means = {sum(group, fmpq(0)) / len(group) for group in groups.values()} or {fmpq(0)}
        return means.pop() if len(means) == 1 else None

    def exact_lse(flat: int) -> fmpq | None:
        found = [rational(lses[(n, *rows[flat])]) for n in parts[rows[flat]]]
        return found[0] if len(found) == 1 else None if found else fmpq(0)

    lse = settle(shape[:-1], lambda: [lse_ball(row) for row in rows], exact_lse, FORMATS[dtype].lse)
    for row in rows:
        if not parts[row]:
            lse.values[row] = -np.inf
    places = [(row, c) for row in rows for c in range(shape[-1])]
    output = settle(shape, lambda: [output_ball(row, c) for row, c in places], exact_output, dtype)
    return {"output": output, "lse": lse}


def _rotary(arguments: Mapping[str, Any], _variant: str | None, dtype: str) -> dict[str, Settled]:
    return {"rotated": _rotated(np.asarray(arguments["features"], np.float64), arguments, 1, dtype)}


def _rotary_vjp(arguments: Mapping[str, Any], _variant: str | None, dtype: str) -> dict[str, Settled]:
    """Turn back: the transpose of a rotation is its inverse (GRAD-22)."""
    return {"d_features": _rotated(np.asarray(arguments["d_rotated"], np.float64), arguments, -1, dtype)}


def _rotated(
    features: NDArray[np.float64], arguments: Mapping[str, Any], direction: int, dtype: str
) -> Settled:
    depth = arguments.get("rotary_depth") or features.shape[-1]
    starts = np.broadcast_to(arguments.get("offset", 0), features.shape[:-3])
    base = rational(arguments.get("base", 10000.0))

    def turn(place: tuple[int, ...]) -> tuple[fmpq, fmpq, int, int, bool] | None:
        """Return the pair of an element: its two numbers, position, index, and whether it is the second."""
        *outer, n, d = place
        if d >= depth:
            return None
        if arguments.get("interleaved", False):
            k, second = divmod(d, 2)
            left, right = 2 * k, 2 * k + 1
        else:
            second, k = divmod(d, depth // 2)
            left, right = k, k + depth // 2
        start = int(starts[tuple(outer[:-1])]) if outer else int(starts)
        a, b = (rational(features[(*outer, n, x)]) for x in (left, right))
        return a, b, n + start, k, bool(second)

    places = list(np.ndindex(*features.shape))

    def balls() -> list[arb]:
        found = []
        for place in places:
            pair = turn(place)
            if pair is None:
                found.append(arb(rational(features[place])))
                continue
            a, b, position, k, second = pair
            angle = arb(position) * (arb(fmpq(-2 * k, depth)) * arb(base).log()).exp()
            cosine, sine = angle.cos(), direction * angle.sin()
            found.append(arb(a) * sine + arb(b) * cosine if second else arb(a) * cosine - arb(b) * sine)
        return found

    def exactly(flat: int) -> fmpq | None:
        pair = turn(places[flat])
        if pair is None:
            return rational(features[places[flat]])
        a, b, position, _, second = pair
        if position == 0:
            return b if second else a
        return fmpq(0) if a == b == 0 else None

    return settle(features.shape, balls, exactly, dtype)


def _alibi_bias(arguments: Mapping[str, Any], variant: str | None, dtype: str) -> dict[str, Settled]:
    query, key = np.asarray(arguments["query"]), np.asarray(arguments["key"])
    heads = query.shape[-3] if query.ndim > 2 else 1
    starts = np.broadcast_to(arguments.get("query_offset", 0), query.shape[:-3])
    shape = (*query.shape[:-1], key.shape[-2])
    exponents = _exponents(heads)
    places = list(np.ndindex(*shape))

    def factor(place: tuple[int, ...]) -> tuple[fmpq, int]:
        *outer, i, j = place
        start = int(starts[tuple(outer[:-1])]) if outer else int(starts)
        ahead = j - (i + start)
        factors = {"signed": ahead, "key-position": j}
        return exponents[outer[-1] if outer else 0], factors.get(variant or "", -abs(ahead))

    def balls() -> list[arb]:
        return [arb(2) ** arb(exponent) * times for exponent, times in map(factor, places)]

    def exactly(flat: int) -> fmpq | None:
        exponent, times = factor(places[flat])
        if times == 0:
            return fmpq(0)
        return fmpq(times) * fmpq(2) ** int(exponent.p) if exponent.q == 1 else None

    return {"bias": settle(shape, balls, exactly, dtype)}


def _exponents(heads: int) -> list[fmpq]:
    """Return the exponents of 2 of the slopes (POS-7)."""
    lower = 1
    while 2 * lower <= heads:
        lower *= 2
    first = [fmpq(-8 * (h + 1), lower) for h in range(lower)]
    rest = [fmpq(-8 * (2 * h + 1), 2 * lower) for h in range(heads - lower)]
    return first + rest


#: The operations that do not contain attention.
COMPANIONS: Mapping[str, Evaluate] = MappingProxyType(
    {
        "split_heads": _split_heads,
        "merge_heads": _merge_heads,
        "append_cache": _append_cache,
        "gather_pages": _gather_pages,
        "merge_partials": _merge_partials,
        "rotary": _rotary,
        "rotary_vjp": _rotary_vjp,
        "alibi_bias": _alibi_bias,
    }
)
