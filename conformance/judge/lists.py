"""Lists, which stand for sets: an output is judged by how often it holds each place."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case
from attnspec.conformance.judge.dtypes import Outputs
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.verdict import Difference
from attnspec.dtypes import name_of
from attnspec.reference import allowed_keys
from attnspec.sizes import output_shapes

#: The dtypes that a list may have (SELECT-8).
_DTYPES = ("int32", "int64")


def require_lists(case: Case, outputs: Outputs) -> Outputs:
    """Refuse a list of another shape or dtype than it has to have, which cannot be counted."""
    for name, got, shape, _ in _lists(case, outputs):
        if got.shape != shape:
            wrong = Difference("shape", name, (), str(got.shape), str(shape))
            raise Failure(case.rules[0], difference=wrong)
        if name_of(got.dtype) not in _DTYPES:
            wrong = Difference("dtype", name, (), str(got.dtype), " or ".join(_DTYPES))
            raise Failure("SELECT-8", difference=wrong)
    return outputs


def count_places(case: Case, outputs: Outputs) -> Outputs:
    """Replace each list by how often it holds each place, and how many of its entries are -1.

    An entry that is neither a place nor -1 makes the last count infinite.
    """
    found = dict(outputs)
    for name, got, _, places in _lists(case, outputs):
        entries = got.reshape(-1, got.shape[-1]).astype(np.int64)
        known = (entries >= -1) & (entries < places)
        counts = np.zeros((len(entries), places + 1))
        rows = np.broadcast_to(np.arange(len(entries))[:, None], entries.shape)
        np.add.at(counts, (rows, np.where(known & (entries >= 0), entries, places)), 1)
        counts[~known.all(axis=-1), places] = np.inf
        found[name] = counts.reshape((*got.shape[:-1], places + 1))
    return found


def broken_rule(case: Case, counts: NDArray[np.float64]) -> str:
    """Return the first rule that a list breaks, a MUST if it breaks one. The list is given by its counts."""
    scores, *_ = (case.arguments[name] for name in OPERATIONS[case.operation].arrays)
    masks = {name: x for name, x in case.arguments.items() if name not in ("scores", "top_k")}
    *batch, queries, keys = scores.shape
    allowed = allowed_keys((*batch, 1, queries, keys), **masks)[..., 0, :, :]
    counts, filled = counts[..., :keys], counts[..., keys]
    listed, wrong = counts > 0, np.isnan(scores)
    candidates = allowed & (scores > -np.inf)
    worst = np.where(listed & ~wrong, scores, np.inf).min(axis=-1, initial=np.inf)
    best = np.where(candidates & ~listed, scores, -np.inf).max(axis=-1, initial=-np.inf)
    held = (listed & (candidates | wrong)).sum(axis=-1)
    broken = {
        "SELECT-8": np.isinf(filled),
        "SELECT-2": (listed & ~allowed).any(axis=-1),
        "SELECT-4": (counts > 1).any(axis=-1),
        "SELECT-1": (best > worst) & ~(listed & wrong).any(axis=-1),
        "SELECT-3": held < np.minimum(case.arguments["top_k"], candidates.sum(axis=-1)),
        "SELECT-6": (listed & wrong).any(axis=-1),
        "SELECT-5": (listed & ~candidates).any(axis=-1),
    }
    return next((rule for rule, rows in broken.items() if rows.any()), "")


def _lists(case: Case, outputs: Outputs) -> Iterator[tuple[str, NDArray[np.generic], tuple[int, ...], int]]:
    """Yield the name of each list, the list, its shape, and the number of places that it may name."""
    if not any(output.lists for output in OPERATIONS[case.operation].results):
        return
    shapes, wide = (output_shapes(case.operation, case.arguments, counted=flag) for flag in (False, True))
    for output in OPERATIONS[case.operation].results:
        if output.lists and output.name in outputs:
            yield output.name, outputs[output.name], shapes[output.name], wide[output.name][-1] - 1
