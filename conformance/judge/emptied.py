"""Empty rows that a declared variant changes. What is in them is a matter of the rules about empty rows."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from attnspec.conformance.judge.budget import in_plain_words
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import Outputs, accepted
from attnspec.conformance.verdict import Difference
from attnspec.reference.budget.attention import budgeted_keys
from attnspec.reference.budget.budget import Budget

#: The rule about an empty row, by output with an axis of queries.
_RULES: Mapping[str, str] = MappingProxyType(
    {"output": "MASK-6", "weights": "MASK-6", "lse": "SOFT-7", "d_query": "GRAD-10"}
)
#: The operations that have these rows and no others.
_OPERATIONS = ("attention", "attention_vjp")


def rule_of_emptied_rows(
    case: Case,
    dialect: Mapping[str, str],
    difference: Difference,
    outputs: Outputs,
    values: tuple[Mapping[str, Any], Mapping[str, Any]],
    budgets: Mapping[str, Budget],
) -> str:
    """Return the rule about empty rows if a result differs only in empty rows that the dialect changes.

    Such a row has an allowed key without the dialect, or other values. In any other empty row the rules of
    the case apply: an implementation that gives a key a weight there may break any of them.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec import find_case
    >>> from attnspec.conformance.judge.emptied import rule_of_emptied_rows
    >>> from attnspec.conformance.verdict import Difference
    >>> case, dialect = find_case("masking-causal-more-queries"), {"MASK-3": "bottom-right"}
    >>> values = {"lse": np.array([-np.inf, -np.inf, -np.inf, 1.0, 2.0])}
    >>> outputs, off = {"lse": np.array([0.0, 0.0, 0.0, 1.0, 2.0])}, Difference("pattern", "lse")
    >>> rule_of_emptied_rows(case, dialect, off, outputs, (values, case.expected), {"lse": np.zeros(5)})
    'SOFT-7'
    """
    name = difference.output
    if case.operation not in _OPERATIONS or difference.kind not in ("value", "pattern"):
        return ""
    if name not in _RULES or any(name not in of for of in values):
        return ""
    inside, outside = (of[name] for of in values)
    other = (inside != outside) & ~(np.isnan(inside) & np.isnan(outside))
    other = other if name == "lse" else other.any(axis=-1)
    changed = _empty(case.arguments, dialect) & (other | ~_empty(case.arguments, {}))
    where = ~changed if name == "lse" else ~changed[..., None]
    others = compare(name, outputs[name], inside, budgets[name], *accepted(name, case.dtype), where=where)
    return "" if isinstance(others, Difference) else _RULES[name]


def _empty(arguments: Mapping[str, Any], dialect: Mapping[str, str]) -> NDArray[np.bool_]:
    """Find the rows without an allowed key in a dialect."""
    shape = (*arguments["query"].shape[:-1], arguments["key"].shape[-2])  # (*B, Hq, L, S)
    capped = dialect.get("SCORE-5") == "after-bias" and dialect.get("MASK-2") == "added"
    plain = in_plain_words(arguments, dialect) | {"capped_infinity": capped}
    return ~np.asarray(budgeted_keys(shape, plain).any(axis=-1))  # (*B, Hq, L)
