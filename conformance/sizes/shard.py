"""The shard of a rank at real sizes: it makes its inputs by the formula, and judges its own rows.

No array is moved between ranks, so that a cluster can judge itself. A rank needs the words and the values of
all keys to judge its rows, which it makes by the formula, too.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import SpecError
from attnspec.conformance.judge.dtypes import Outputs
from attnspec.conformance.sizes.codebook.rows import Block, tasks
from attnspec.conformance.sizes.dialect import Dialect
from attnspec.conformance.sizes.judge import compare_block, map_in_threads, worst
from attnspec.conformance.verdict import Difference
from attnspec.formula import STREAMS, Formula, octets
from attnspec.reference.budget.arithmetic import Accuracy

#: The options of a problem that a rank takes as they are, or whose positions it states.
_OPTIONS = ("scale", "softcap", "is_causal", "window", "sinks", "query_offset")


def arguments_of_shard(formula: Formula, dtype: str, queries: range, keys: range) -> dict[str, Any]:
    """Make the arguments of a rank: of some queries and of some keys, with their positions in the whole.

    Parameters
    ----------
    formula : Formula
        The problem of all ranks.
    dtype : str
    queries, keys : range
        The rows of the rank among all queries, and among all keys.

    Raises
    ------
    SpecError
        If the problem has an option that is not that of a row.

    Examples
    --------
    >>> from attnspec.conformance.sizes.shard import arguments_of_shard
    >>> from attnspec.formula import Formula
    >>> whole = Formula(2**20, 2**20, 64, 64, options={"is_causal": True})
    >>> arguments = arguments_of_shard(whole, "float32", range(2**19, 2**19 + 8), range(16, 32))
    >>> arguments["query"].shape, arguments["value"].shape, int(arguments["query_positions"][0, 0])
    ((1, 1, 8, 64), (1, 1, 16, 64), 524288)
    """
    _check(formula)
    drawn = {
        "query": _draw(formula, "query", formula.heads, formula.queries, queries),
        "key": _draw(formula, "key", formula.key_heads, formula.keys, keys),
    }
    words = {name: (x % np.uint16(formula.words))[..., 0] for name, x in drawn.items()}
    value = _draw(formula, "value", formula.key_heads, formula.keys, keys, formula.value_depth)
    codes, given = formula.codes, formula.given(dtype)
    offset = given.pop("query_offset", 0)
    places = {"query_positions": np.asarray(offset)[..., None] + np.arange(queries.start, queries.stop)}
    places["key_positions"] = np.arange(keys.start, keys.stop)
    return {
        "query": (codes * np.float32(0.5)).astype(dtype)[words["query"]],
        "key": codes.astype(dtype)[words["key"]],
        "value": (value.view(np.int8) * np.float32(1 / 64)).astype(dtype),
        **given,
        **{name: np.broadcast_to(x, (*formula.batch, x.shape[-1])) for name, x in places.items()},
    }


def judge_shard(
    formula: Formula, dtype: str, rows: range, outputs: Outputs, accuracy: Accuracy = "cast"
) -> Difference | float:
    """Compare the results of a rank, `output` and `lse`, with the exact values of its rows.

    Returns
    -------
    Difference or float
        The largest difference, whose element is one of the whole result, or the share of the budget.
    """
    _check(formula)
    dialect = Dialect(formula)

    def compare_task(task: Callable[[], Block]) -> list[Difference | float]:
        block = task()
        block = replace(block, rows=block.rows - rows.start)
        return [compare_block(got, name, block, dialect) for name, got in outputs.items()]

    several = map_in_threads(compare_task, tasks(formula, dtype, accuracy=accuracy, part=rows))
    result = worst((each for results in several for each in results), outputs)
    if not isinstance(result, Difference):
        return result
    axis = len(formula.batch) + 1  # after those of the batch and the heads
    element = (*result.element[:axis], result.element[axis] + rows.start, *result.element[axis + 1 :])
    return replace(result, element=element)


def _check(formula: Formula) -> None:
    others = [name for name in formula.options if name not in _OPTIONS]
    if others or not formula.words:
        got = ", ".join(others) or "rows that are all different"
        raise SpecError(f"formula: expected words, and some of {', '.join(_OPTIONS)}, got {got}")


def _draw(
    formula: Formula, name: str, heads: int, size: int, rows: range, width: int = 1
) -> NDArray[np.uint8]:
    """Return the octets of some rows of an array ``(*B, heads, size, width)``."""
    shape = (*formula.batch, heads)
    count = len(rows) * width
    parts = [
        octets(formula.seed, STREAMS[name], count, (head * size + rows.start) * width)
        for head in range(int(np.prod(shape)))
    ]
    return np.stack(parts).reshape(*shape, len(rows), width)
