"""Error budgets of packed attention: those of attention over the whole row, with the pairs as a mask."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.reference.budget.arithmetic import Arithmetic
from attnspec.reference.budget.attention import attention_budget
from attnspec.reference.budget.formats import Budget
from attnspec.reference.budget.gradients import gradient_budget
from attnspec.reference.masking import allowed_keys

_MASKING = ("is_causal", "window")
_FORM = ("query_starts", "key_starts", "query_offset")


def packed_budget(given: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Budget]:
    """Return the budgets of output and lse. Rows of no sequence are 0 and minus infinity, without error."""
    found = attention_budget((given["query"], given["key"], given["value"]), _plain(given), arithmetic)
    inside = _rows(given)
    return {
        "output": np.where(inside[:, None], found["output"], 0),
        "lse": np.where(inside, found["lse"], 0),
    }


def packed_gradient_budget(
    given: Mapping[str, Any], dtypes: Mapping[str, str], arithmetic: Arithmetic
) -> dict[str, Budget]:
    """Return the budgets of the gradients."""
    inside = _rows(given)
    plain = _plain(given) | {"d_output": np.where(inside[:, None], given["d_output"], 0)}
    if "d_lse" in given:
        plain["d_lse"] = np.where(inside, given["d_lse"], 0)
    return gradient_budget(plain, dtypes, arithmetic)


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite a call as one of attention: the pairs of a sequence are those that a mask allows."""
    queries, keys = given["query"].shape[-2], given["key"].shape[-2]
    allowed, own = np.zeros((queries, keys), bool), np.zeros((queries, keys), bool)
    masking = {name: given[name] for name in _MASKING if name in given}
    starts, ends = (given[f"{of}_starts"].tolist() for of in ("query", "key"))
    count = len(starts) - 1
    offsets = np.broadcast_to(given.get("query_offset", 0), (count,)).tolist()
    for g in range(count):
        block = slice(starts[g], starts[g + 1]), slice(ends[g], ends[g + 1])
        shape = allowed[block].shape
        allowed[block] = allowed_keys(shape, query_offset=offsets[g], **masking)
        own[block] = True
    plain = {name: thing for name, thing in given.items() if name not in (*_MASKING, *_FORM)}
    # In the variant `uniform`, a row is the mean over the keys of its sequence.
    return {**plain, "mask": allowed, "uniform_rows": np.any(given["uniform_rows"]) & own}


def _rows(given: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Whether each row of queries belongs to a sequence, ``(L,)``."""
    rows: NDArray[np.bool_] = np.arange(given["query"].shape[-2]) < given["query_starts"][-1]
    return rows
