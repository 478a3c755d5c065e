"""The companions of attention for the second oracle: heads, caches, partial results, projections."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.attention import Arguments, Dialect, Index, head, indices
from attnspec.reference.rational.numbers import Matrix, Number, combine, dot, exact, quotient, sign, to_float
from attnspec.reference.rational.scores import Key, Scale, Scores, entry_number, sources
from attnspec.reference.rational.softmax import Kept, attend

Arrays = dict[str, NDArray[np.float64]]


def split_heads(arguments: Arguments) -> Arrays:
    """Split features into blocks, one for each head."""
    features, heads = _read(arguments["features"]), arguments["heads"]
    *batch, tokens, width = features.shape
    depth = width // heads
    result = np.zeros((*batch, heads, tokens, depth))
    for h, n, d in itertools.product(range(heads), range(tokens), range(depth)):
        result[..., h, n, d] = features[..., n, h * depth + d]
    return {"split": result}


def merge_heads(arguments: Arguments) -> Arrays:
    """Put the features of the heads side by side."""
    split = _read(arguments["split"])
    *batch, heads, tokens, depth = split.shape
    result = np.zeros((*batch, tokens, heads * depth))
    for h, n, d in itertools.product(range(heads), range(tokens), range(depth)):
        result[..., n, h * depth + d] = split[..., h, n, d]
    return {"merged": result}


def append_cache(arguments: Arguments) -> Arrays:
    """Write new positions after those that the cache holds."""
    cache, new = _read(arguments["cache"]), _read(arguments["new"])
    result = cache.copy()
    batch = cache.shape[:-3]
    for index in np.ndindex(batch):
        length = entry_number(arguments["lengths"], batch, index) or 0
        if length < 0 or length + new.shape[-2] > cache.shape[-2]:
            raise ValueError(f"lengths: expected {new.shape[-2]} free places, got {length} taken [CACHE-2]")
        for n in range(new.shape[-2]):
            result[(*index, ..., length + n, slice(None))] = new[(*index, ..., n, slice(None))]
    return {"appended": result}


def gather_pages(arguments: Arguments) -> Arrays:
    """Put the pages of each sequence one after the other."""
    pages, table = _read(arguments["pages"]), np.asarray(arguments["block_table"])
    _, heads, positions, depth = pages.shape
    result = np.zeros((*table.shape[:-1], heads, table.shape[-1] * positions, depth))
    for (*index, t), page in np.ndenumerate(table):
        for k in range(positions) if page >= 0 else ():  # what stands for an entry of -1 is not defined
            result[(*index, slice(None), t * positions + k)] = pages[page, :, k]
    return {"gathered": result}


def merge_partials(arguments: Arguments) -> Arrays:
    """Merge partial results by a softmax over the parts, whose scores are the lses."""
    outputs, lses = np.asarray(arguments["outputs"]), np.asarray(arguments["lses"])
    output, lse = np.zeros(outputs.shape[1:]), np.zeros(lses.shape[1:])
    for index in np.ndindex(lse.shape):
        levels = exact(lses[(slice(None), *index)][np.newaxis])
        unit = 1 << levels.exponent
        scores: list[Key | float] = [x if isinstance(x, float) else (x, 0, 0) for x in levels.rows[0]]
        present = [n for n, x in enumerate(scores) if x != -math.inf]
        scale = Scale(unit, Decimal(unit), Decimal(unit))
        parts = exact(outputs[(slice(None), *index)])  # (N, Dv)
        row = attend(Scores(scale, [scores], None), 0, present, parts, Kept(), {})
        output[index], lse[index] = [to_float(x) for x in row.output], to_float(row.lse)
    return {"output": output, "lse": lse}


def indexer_scores(arguments: Arguments) -> Arrays:
    """Score each pair of a query and a key, one head after the other."""
    query, key, weights = (_read(arguments[f"index_{name}"]) for name in ("query", "key", "weights"))
    *batch, heads, queries, _ = query.shape
    result = np.zeros((*batch, queries, key.shape[-2]))
    for *index, i, j in np.ndindex(*result.shape):
        total, entry = Fraction(0), tuple(index)
        row = [Fraction(x) for x in key[(*entry, j)].tolist()]
        for h in range(heads):
            product = sum(Fraction(x) * y for x, y in zip(query[(*entry, h, i)].tolist(), row, strict=True))
            total += Fraction(float(weights[(*entry, h, i)])) * product if product > 0 else 0
        result[(*entry, i, j)] = float(total)
    return {"index_scores": result}


def select_keys(arguments: Arguments, dialect: Dialect) -> Arrays:
    """Count for each key how many others are above it, and how many beside it, whether all fit or not."""
    scores, places = _read(arguments["scores"]), arguments["top_k"]
    *batch, queries, keys = scores.shape
    result = np.zeros((*batch, queries, keys + 1))
    shape = (*batch, 1, queries, keys)
    for index in indices(shape):
        allowed = sources(arguments, dialect, shape, index)
        for i in range(queries):
            place, row = (*index[:-1], i), scores[(*index[:-1], i)].tolist()
            known = [(j, x) for j, x in enumerate(row) if allowed.allow(i, j) and x > -math.inf]
            for j, x in known:
                above, beside = sum(y > x for _, y in known), sum(y == x for _, y in known)
                result[(*place, j)] = (above < places) / (2 if above + beside > places else 1)
            result[(*place, keys)] = max(places - len(known), 0)
    return {"key_indices": result}


def _read(array: Any) -> NDArray[np.float64]:
    return np.asarray(array).astype(np.float64)


def projection(arguments: Arguments) -> dict[str, NDArray[np.float64]]:
    """Compute the projection of the tokens of every batch entry."""
    tokens, weight = np.asarray(arguments["tokens"]), np.asarray(arguments["weight"])
    columns = arguments.get("convention") == "column"
    tokens = tokens.swapaxes(-1, -2) if columns else tokens
    weight = _as_rows(weight, arguments)
    result = np.zeros((*tokens.shape[:-1], weight.shape[-1]))  # (*B, N, F)
    for index in indices(tokens.shape):
        projected = _project(tokens[index], weight, arguments.get("bias"))
        unit = 1 << projected.exponent
        for n, row in enumerate(projected.rows):
            result[(*index, n)] = [x if isinstance(x, float) else quotient(x, unit) for x in row]
    return {"projected": result.swapaxes(-1, -2) if columns else result}


def self_attention(arguments: Arguments, dialect: Dialect) -> dict[str, NDArray[np.float64]]:
    """Compute attention for three projections of the same tokens."""
    columns = arguments.get("convention") == "column"
    tokens = np.asarray(arguments["tokens"])
    tokens = tokens.swapaxes(-1, -2) if columns else tokens
    weights = {name: _as_rows(arguments[f"{name}_weight"], arguments) for name in ("query", "key", "value")}
    result = np.zeros((*tokens.shape[:-1], weights["value"].shape[-1]))  # (*B, N, Dv)
    shape = (*tokens.shape[:-1], tokens.shape[-2])
    given = {name: arguments.get(name) for name in ("scale", "mask", "is_causal")}
    for index in indices(shape):
        query, key, value = (
            _project(tokens[index], weight, arguments.get(f"{name}_bias")) for name, weight in weights.items()
        )
        _, rows = head(query, key, value, given, dialect, shape, index)
        for n, row in enumerate(rows):
            result[(*index, n)] = [to_float(x) for x in row.output]
    return {"output": result.swapaxes(-1, -2) if columns else result}


def multi_head_attention(arguments: Arguments, dialect: Dialect) -> dict[str, NDArray[np.float64]]:
    """Compute attention for projections that are split into heads, then merge and project again."""
    tokens, weight = np.asarray(arguments["tokens"]), _as_rows(arguments["output_weight"], arguments)
    memory = arguments.get("memory")
    memory = tokens if memory is None else np.asarray(memory)
    result = np.zeros((*tokens.shape[:-1], weight.shape[-1]))  # (*B, L, F)
    for index in indices(tokens.shape):
        merged = _merge_heads(tokens, memory, arguments, dialect, index)
        for i, row in enumerate(_project_output(merged, weight, arguments.get("output_bias"))):
            result[(*index, i)] = row
    return {"output": result}


def _merge_heads(
    tokens: NDArray[Any], memory: NDArray[Any], arguments: Arguments, dialect: Dialect, index: Index
) -> list[list[Number]]:
    """Compute all heads of one batch entry, concatenated in each row."""
    count = arguments["heads"]
    shared = arguments.get("key_heads") or count
    shape = (*tokens.shape[:-2], count, tokens.shape[-2], memory.shape[-2])  # (*B, heads, L, S)
    given = {name: arguments.get(name) for name in ("scale", "mask", "is_causal")}
    sources = {"query": (tokens, count), "key": (memory, shared), "value": (memory, shared)}
    query, key, value = (
        _split(
            _project(
                source[index], _as_rows(arguments[f"{name}_weight"], arguments), arguments.get(f"{name}_bias")
            ),
            heads,
        )
        for name, (source, heads) in sources.items()
    )
    merged: list[list[Number]] = [[] for _ in range(tokens.shape[-2])]
    for h in range(count):
        read = h % shared if dialect.get("HEAD-1") == "tiled" else h // (count // shared)
        _, rows = head(query[h], key[read], value[read], given, dialect, shape, (*index, h))
        for i, row in enumerate(rows):
            merged[i] += row.output
    return merged


def _as_rows(weight: Any, arguments: Arguments) -> NDArray[Any]:
    """Convert a weight of the column or linear convention to the row convention."""
    array = np.asarray(weight)
    return array.T if arguments.get("convention") in ("column", "linear") else array


def _project_output(merged: list[list[Number]], weight: NDArray[Any], bias: Any) -> list[list[float]]:
    factors = exact(weight)
    columns = list(zip(*factors.rows, strict=True))
    shift = [0.0] * factors.depth if bias is None else np.asarray(bias).astype(np.float64).tolist()
    pairs = list(zip(columns, shift, strict=True))
    return [[to_float(combine(row, column, factors.exponent, b)) for column, b in pairs] for row in merged]


def _split(matrix: Matrix, heads: int) -> list[Matrix]:
    depth = matrix.depth // heads
    return [matrix.columns(h * depth, (h + 1) * depth) for h in range(heads)]


def _project(tokens: NDArray[Any], weight: NDArray[Any], bias: Any) -> Matrix:
    """Multiply rows of tokens by the weight, exactly, and add the bias."""
    left, right = exact(tokens), exact(weight)
    added = exact(np.zeros((1, right.depth)) if bias is None else np.asarray(bias)[np.newaxis])
    exponent = max(left.exponent + right.exponent, added.exponent)
    unit, shift = 1 << (exponent - left.exponent - right.exponent), 1 << (exponent - added.exponent)
    finite = left.finite and right.finite and added.finite
    rows = []
    for token in left.rows:
        products = [dot(token, column, finite=finite) for column in zip(*right.rows, strict=True)]
        if finite:
            rows.append([x * unit + y * shift for x, y in zip(products, added.rows[0], strict=True)])
        else:
            rows.append(
                [
                    sign(x) + sign(y)
                    if isinstance(x, float) or isinstance(y, float)
                    else x * unit + y * shift
                    for x, y in zip(products, added.rows[0], strict=True)
                ]
            )
    finite = finite or not any(isinstance(x, float) for row in rows for x in row)
    return Matrix(rows, right.depth, exponent, finite)
