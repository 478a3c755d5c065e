"""What a call must give: the second oracle asked, with the variants that a backend declares."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend
from attnspec.case import fingerprint
from attnspec.conformance.judge import store
from attnspec.conformance.judge.call import Outputs
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import accepted
from attnspec.conformance.verdict import Difference
from attnspec.reference.budget.budget import Budget
from attnspec.reference.rational.dialect import SHOWN
from attnspec.reference.rational.evaluate import evaluate

#: Values that are in no file and were asked for before: one problem is put in several dtypes.
_KNOWN: dict[tuple[str, tuple[tuple[str, str], ...]], Outputs] = {}
_MOST_KNOWN = 3000
#: Below this an lse of nothing is the fill of a library, by the variant `finite` of SOFT-7.
_FILL = -1e4


def exact(
    operation: str, arguments: Mapping[str, Any], dialect: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Compute the exact values of a call, rounded to float64; from no implementation.

    Parameters
    ----------
    operation : str
    arguments : mapping
    dialect : mapping of str to str, optional
        Variants that are to show, by rule id.

    Returns
    -------
    dict of str to float64 array
        By output name; the arrays are read-only.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.conformance.judge.expected import exact
    >>> one = np.ones((1, 1))
    >>> exact("scores", {"query": 2 * one, "key": one})["scores"].tolist()
    [[2.0]]
    """
    shown = of_values(dialect or {})
    key = (fingerprint(operation, arguments), tuple(sorted(shown.items())))
    stored = None if shown else store.find(key[0])
    if stored is not None:
        return stored
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        values = evaluate(operation, arguments, dialect=shown)
        for array in values.values():
            array.flags.writeable = False
        _KNOWN[key] = {name: values[name] for name in OPERATIONS[operation].outputs}
    return dict(_KNOWN[key])


def expected(case: Case, dialect: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    """Give the exact values of a case: those that it holds, or the second oracle's.

    Parameters
    ----------
    case : Case
    dialect : mapping of str to str, optional
        Variants that are to show, by rule id.

    Raises
    ------
    ValueError
        When the standard does not say what the values are.

    Examples
    --------
    >>> from attnspec import find_case
    >>> from attnspec.conformance.judge.expected import expected
    >>> list(expected(find_case("masking-empty-last")))
    ['output', 'lse', 'weights']
    """
    shown = of_values(dialect or {}, case)
    if not shown:
        return case.expected or store.find(case.fingerprint) or exact(case.operation, case.arguments)
    for other in case.alternatives:
        if shown == {other.rule: other.variant}:
            return other.expected
    return exact(case.operation, case.arguments, shown)


def of_values(dialect: Mapping[str, str], case: Case | None = None) -> dict[str, str]:
    """Take of a dialect those variants that show in exact values, not in rounding or in what is refused.

    Among them are those that the second oracle does not compute, and a golden vector has the values of.

    Examples
    --------
    >>> from attnspec.conformance.judge.expected import of_values
    >>> of_values({"NUM-2": "float32", "MASK-6": "nan"})
    {'MASK-6': 'nan'}
    """
    held = {(other.rule, other.variant) for other in case.alternatives} if case is not None else ()
    return {rule: variant for rule, variant in dialect.items() if rule in SHOWN or (rule, variant) in held}


def declared(
    backend: Backend, case: Case, budgets: Mapping[str, Budget], outputs: Outputs
) -> tuple[Mapping[str, Any], str]:
    """Compute what a backend must give, with the variants that it declares.

    Parameters
    ----------
    backend : Backend
    case : Case
    budgets : mapping of str to array
    outputs : mapping of str to array
        What it gave: only what it shows can show a variant.

    Returns
    -------
    values : mapping of str to array
    rule : str
        That whose declared variant shows in this call; empty where none does.
    """
    plain, dialect = expected(case), of_values(backend.dialect, case)
    if not dialect:
        return plain, ""
    values = _left_open(expected(case, dialect), plain, dialect, outputs)
    if not differ(values, plain, budgets, outputs):
        return values, ""
    for rule, variant in dialect.items():
        alone = _left_open(expected(case, {rule: variant}), plain, {rule: variant}, outputs)
        if differ(alone, plain, budgets, outputs):
            return values, rule
    return values, next(iter(dialect))


def _left_open(
    values: Mapping[str, Any], plain: Mapping[str, Any], dialect: Mapping[str, str], outputs: Outputs
) -> Mapping[str, Any]:
    """Take the lse of a row of nothing as it was given, where a variant of SOFT-7 leaves it open."""
    variant = dialect.get("SOFT-7")
    if variant is None or not {"lse"} <= set(values) & set(plain) & set(outputs):
        return values
    expected, got = values["lse"], outputs["lse"].astype(np.float64)
    if got.shape != expected.shape:
        return values
    taken = got < _FILL if variant == "finite" else got == -np.inf
    return {**values, "lse": np.where((plain["lse"] == -np.inf) & taken, got, expected)}


def differ(
    values: Mapping[str, Any], plain: Mapping[str, Any], budgets: Mapping[str, Budget], outputs: Outputs
) -> bool:
    """Whether two sets of exact values can be told apart by what is shown."""
    return any(
        isinstance(compare(name, values[name], plain[name], 2 * budgets[name], "float64"), Difference)
        for name in outputs
        if name in values and name in plain
    )


def differences(
    outputs: Outputs, values: Mapping[str, Any], budgets: Mapping[str, Budget], dtype: str
) -> Iterator[Difference | float]:
    """Compare every output that was given with its value, in the dtypes that it may have.

    The weights of a row with a score of NaN or plus infinity are not defined, and its lse may be
    NaN (NUM-11).

    Yields
    ------
    Difference or float
        As `compare` gives it.
    """
    for name, got in outputs.items():
        if name in values:
            where = ~_undefined(values)[..., None] if name == "weights" and "lse" in values else None
            value = _or_nan(values, got) if name == "lse" else values[name]
            yield compare(name, got, value, budgets[name], *accepted(name, dtype), where=where)


def _undefined(values: Mapping[str, Any]) -> Any:
    """Find rows whose lse says that a score is NaN or plus infinity, and not that there are no keys."""
    lse, weights = values["lse"], values["weights"]
    return np.isnan(lse) | ((lse == np.inf) & np.isnan(weights).all(axis=-1))


def _or_nan(values: Mapping[str, Any], got: Any) -> Any:
    """Take NaN for right where the lse is plus infinity because a score is (NUM-11, CACHE-9)."""
    lse = values["lse"]
    if got.shape != lse.shape:
        return lse
    may_be = (lse == np.inf) & (_undefined(values) if "weights" in values else True)
    return np.where(may_be & np.isnan(got.astype(np.float64)), np.nan, lse)
