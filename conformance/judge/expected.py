"""The expected values of a call: from the second oracle, with the variants that a backend declares."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend
from attnspec.backends.backend import in_one_dtype
from attnspec.case import fingerprint
from attnspec.conformance.judge import store
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import Outputs, accepted_dtypes, in_dtype, lse_dtype
from attnspec.conformance.verdict import LISTS, Difference
from attnspec.dtypes import DTYPES
from attnspec.operations.operation import primal
from attnspec.reference.budget.budget import Budget
from attnspec.reference.rational.scores import SHOWN
from attnspec.sizes import misfits

#: Values that are not in a file and were computed before. One problem is judged in several dtypes.
_KNOWN: dict[tuple[str, tuple[tuple[str, str], ...]], Outputs] = {}
_MOST_KNOWN = 3000
#: Below this, the lse of an empty row is a fill value (variant `finite` of SOFT-7).
_FILL = -1e4


def exact(
    operation: str, arguments: Mapping[str, Any], dialect: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Compute the exact values of a call, rounded to float64, with the second oracle."""
    shown = value_variants(dialect or {})
    key = (fingerprint(operation, arguments), tuple(sorted(shown.items())))
    stored = None if shown else store.find(key[0])
    if stored is not None and not _missing(stored, operation, arguments):
        return stored
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        from attnspec.reference.rational.evaluate import evaluate  # a clone has most values

        try:
            values = evaluate(operation, arguments, dialect=shown)
        except ArithmeticError as error:
            raise ValueError(
                f"arguments: expected those of a defined result, got {error!r} [unspecified]"
            ) from error
        if not shown:
            store.check(key[0], values)
        for array in values.values():
            array.flags.writeable = False
        _KNOWN[key] = {name: values[name] for name in OPERATIONS[operation].outputs if name in values}
    return dict(_KNOWN[key])


def expected(case: Case, dialect: Mapping[str, str] | Backend | None = None) -> Mapping[str, Any]:
    """Return the exact values of a case: its stored values, or those of the second oracle.

    Parameters
    ----------
    case : Case
    dialect : mapping of str to str, or Backend, optional
        The variants to apply, by rule id, or the backend that declares them.

    Raises
    ------
    ValueError
        If the standard does not define the values.

    Examples
    --------
    >>> from attnspec import find_case
    >>> from attnspec.conformance.judge.expected import expected
    >>> list(expected(find_case("masking-empty-last")))
    ['output', 'lse', 'weights']
    """
    declared = in_one_dtype(dialect, case.dtype).dialect if isinstance(dialect, Backend) else dialect or {}
    shown = value_variants(declared, case)
    alternatives = {(other.rule, other.variant): other.expected for other in case.alternatives}
    values: Mapping[str, Any] | None
    if shown:
        values = alternatives.get(next(iter(shown.items()))) if len(shown) == 1 else None
    else:
        values = case.expected or store.find(case.fingerprint)
        # Large weights that no case judges are not stored.
        if values and not case.expected and _missing(values, case.operation, case.arguments, case.outputs):
            values = None
    values = values or exact(case.operation, case.arguments, shown)
    missing = _missing(values, case.operation, case.arguments, case.outputs)
    unused = {*values} - {*OPERATIONS[case.operation].judged(case.arguments)}
    if missing or unused:
        raise AssertionError(
            f"{case.name}: expected the value of each output and no others, got {', '.join(values)}"
        )
    return values


def _missing(
    values: Mapping[str, Any], operation: str, arguments: Mapping[str, Any], only: Sequence[str] = ()
) -> list[str]:
    return [name for name in OPERATIONS[operation].judged(arguments, only) if name not in values]


def value_variants(dialect: Mapping[str, str], case: Case | None = None) -> dict[str, str]:
    """Select the variants of a dialect that change exact values, not only rounding or refusals.

    They include variants that only golden vectors have values for.
    """
    held = {(other.rule, other.variant) for other in case.alternatives} if case is not None else ()
    return {rule: variant for rule, variant in dialect.items() if rule in SHOWN or (rule, variant) in held}


def values_in_dialect(
    backend: Backend, case: Case, budgets: Mapping[str, Budget], outputs: Outputs
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Compute the expected values for a backend, with the variants that it declares."""
    plain, dialect = expected(case), value_variants(backend.dialect, case)
    if not dialect:
        return plain, ()
    values = with_open_lse(expected(case, dialect), _with_empty_rows(case, plain, dialect), dialect, outputs)
    if not differ(values, plain, budgets, outputs):
        return values, ()
    shown = []
    for rule, variant in dialect.items():
        alone = with_open_lse(expected(case, {rule: variant}), plain, {rule: variant}, outputs)
        if differ(alone, plain, budgets, outputs):
            shown.append(rule)
    return values, tuple(shown) or (next(iter(dialect)),)


def _with_empty_rows(case: Case, plain: Mapping[str, Any], dialect: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the values by which rows are empty: those with the other variants, which may place the mask."""
    others = {rule: variant for rule, variant in dialect.items() if rule != "SOFT-7"}
    return expected(case, others) if others and "SOFT-7" in dialect else plain


def with_open_lse(
    values: Mapping[str, Any], plain: Mapping[str, Any], dialect: Mapping[str, str], outputs: Outputs
) -> Mapping[str, Any]:
    """Accept the returned lse of an empty row if a variant of SOFT-7 does not define it."""
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
    """Whether the given outputs distinguish two sets of exact values."""
    return any(
        isinstance(compare(name, values[name], plain[name], 2 * budgets[name], "float64"), Difference)
        for name in outputs
    )


def differences(
    outputs: Outputs,
    values: Mapping[str, Any],
    budgets: Mapping[str, Budget],
    dtype: str,
    own: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Difference | float]:
    """Compare every returned output with its expected value, and check its dtype, some of which are given.

    If a row has a score of NaN or plus infinity, its weights are not defined and its lse may be
    NaN (NUM-11). A maximum of a score of NaN is not defined either (SOFT-8).
    """
    for name, got in outputs.items():
        if name not in values or name not in budgets:
            raise AssertionError(f"{name}: expected a value and a budget, got {name in values=}")
        where = ~_undefined_rows(values)[..., None] if name == "weights" and "lse" in values else None
        where = ~np.isnan(values["max"]) if name == "max" else where
        value = _or_nan(values, got) if name == "lse" else values[name]
        dtypes = accepted_dtypes(name, own.get(name, dtype))
        compared = compare(name, got, value, budgets[name], *dtypes, where=where)
        # A list has no error: it is right or wrong.
        yield 0.0 if name in LISTS and isinstance(compared, float) else compared


def are_within(
    outputs: Outputs, values: Mapping[str, Any], budgets: Mapping[str, Budget], dtype: str
) -> bool:
    """Whether each output is within its budget."""
    compared = differences(outputs, values, budgets, dtype)
    return not any(isinstance(result, Difference) for result in compared)


def _undefined_rows(values: Mapping[str, Any]) -> Any:
    """Find rows with an lse of NaN or plus infinity that is due to a score and not to an empty row."""
    lse, weights = values["lse"], values["weights"]
    return np.isnan(lse) | ((lse == np.inf) & np.isnan(weights).all(axis=-1))


def _or_nan(values: Mapping[str, Any], got: Any) -> Any:
    """Accept NaN if the lse is plus infinity because a score is (NUM-11, CACHE-9)."""
    lse = values["lse"]
    if got.shape != lse.shape:
        return lse
    may_be = (lse == np.inf) & (_undefined_rows(values) if "weights" in values else True)
    return np.where(may_be & np.isnan(got.astype(np.float64)), np.nan, lse)


def forward_results(backend: Backend, operation: str, arguments: Mapping[str, Any]) -> Outputs:
    """Compute the results of the forward pass that a backend takes in a call of gradients.

    They are the exact values in the dialect of the backend, rounded to the dtypes of output and lse. For a
    malformed call, which has no exact values, they are 0. Arrays of several dtypes have exact values (ERR-1).
    """
    forward = OPERATIONS[operation].forward
    missing = [
        argument
        for argument in forward
        if backend.has(operation, argument.name) and argument.name not in arguments
    ]
    if not missing:
        return {}
    of = primal(operation)
    given = {name: thing for name, thing in arguments.items() if name in OPERATIONS[of].arguments}
    dialect = {rule: variant for rule, variant in backend.dialect.items() if not rule.startswith("GRAD")}
    query, value = given["query"], given["value"]
    values: Mapping[str, Any]
    if misfits(of, in_dtype(given, "float64")):
        outer = query.shape[:-1]
        values = {"output": np.zeros((*outer, *value.shape[-1:])), "lse": np.zeros(outer)}
    else:
        values = exact(of, given, dialect)
    dtype = given["query"].dtype.name
    dtypes = {"output": dtype, "lse": lse_dtype(dtype)} if dtype in DTYPES else {}
    with np.errstate(over="ignore"):
        return {
            argument.name: values[argument.name].astype(dtypes.get(argument.name, dtype))
            for argument in missing
        }
