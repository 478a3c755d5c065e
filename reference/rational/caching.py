"""Heads, caches and partial results of the second oracle."""

import itertools
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.rational.masking import of_entry
from attnspec.reference.rational.numbers import exact, rounded
from attnspec.reference.rational.scores import Key, Scale, Scores
from attnspec.reference.rational.softmax import Kept, attend

Arguments = Mapping[str, Any]
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
        length = of_entry(arguments["lengths"], batch, index) or 0
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
        for k in range(positions):
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
        output[index], lse[index] = [rounded(x) for x in row.output], rounded(row.lse)
    return {"output": output, "lse": lse}


def _read(array: Any) -> NDArray[np.float64]:
    return np.asarray(array).astype(np.float64)
