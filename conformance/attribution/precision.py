"""Finds failures that say little about the logic: a precision that is too low, roundings, traces of weights.

They are kept apart before other failures are divided by their common traits. Otherwise a call whose float16
result is slightly beyond its budget belongs to the same cause as one that ignores a mask.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from attnspec.conformance import traits
from attnspec.conformance.traits import SIZED_GROUPS
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import SHORT

#: The kinds of findings whose failures are kept apart.
PRECISE, TRACES = "precise", "traces"
#: Weights are at most 1. An error of a weight that is smaller than this does not show in any sum.
_TRACE = 2.0**-60
#: With fewer failures than this, or less than this share of all wrong values, no finding is "traces".
_FEW_TRACES, _SHARE = 5, 0.1
#: If the error in float32 is between these multiples of the error, the shorter dtype is not its reason.
_AS_LARGE = 0.125, 2.0
#: The largest error, in budgets, of a result that was computed in half precision, by its dtype.
_HALF = {"float32": 2.0**13, "float64": 2.0**42}
#: If the cause is half precision, the error of some result in float32 is at least this many budgets.
_COARSE = 200.0
#: And the error of half of the results in float32 is at least this many budgets.
_MIDDLE = 10.0
#: Of the calls whose rows past the end are not written, at most this share passes.
_ZEROS = 0.2
#: An error larger than this share of the number is not due to rounding.
_GROSS = 0.05
#: An error of fewer budgets than this may be due to wrong rounding.
_FEW_BUDGETS = 100.0
#: And one of so few says least of a cause.
_SLIGHT_BUDGETS = 10.0
#: The largest share of the other failures that may be NaN, where NaN shows empty rows.
_FEW_NAN = 0.1
#: With fewer failures than this, no precision is named. Nearly all of them must show it.
_FEW, _NEARLY = 5, 0.8


def imprecise(failures: Iterable[Verdict]) -> dict[Verdict, tuple[str, ...]]:
    """Return the failures that are due to the precision, with its rule, or that leave only a trace."""
    wrong = [
        verdict for verdict in failures if verdict.raised is None and traits.REFUSED not in verdict.traits
    ]
    traces = _traces(wrong)
    return _by_precision([verdict for verdict in wrong if verdict not in traces]) | dict.fromkeys(
        traces, (TRACES,)
    )


def absolute_error(verdict: Verdict) -> float:
    """Return the absolute error of a wrong value, infinity for any other difference."""
    off = verdict.difference
    if off is None or off.kind != "value" or isinstance(off.got, str) or isinstance(off.expected, str):
        return float("inf")
    return abs(off.got - off.expected)


def rows_past(failures: Sequence[Verdict], passing: Sequence[Verdict]) -> list[Verdict]:
    """Return the calls with rows after the last sequence if nearly all fail: nothing may be written there.

    Memory may hold zeros by chance, so that some pass.
    """
    past, right = ([x for x in each if traits.ROWS_PAST in x.traits] for each in (failures, passing))
    little = {traits.GRADIENT, traits.NOTHING}
    passed = sum(little.isdisjoint(verdict.traits) for verdict in right)
    return past if passed <= _ZEROS * len(past) else []


def empty_rows(failures: Sequence[Verdict]) -> list[Verdict]:
    """Return the calls in which a row with nothing to attend to is NaN, if hardly any other result is."""
    nans = [verdict for verdict in failures if _is_nan(verdict)]
    empty = [verdict for verdict in nans if traits.EMPTY in verdict.traits]
    others = [verdict for verdict in failures if traits.EMPTY not in verdict.traits]
    return empty if len(nans) - len(empty) <= _FEW_NAN * len(others) else []


def _is_nan(verdict: Verdict) -> bool:
    """Whether NaN was got and a number was expected, from a call without NaN and infinity."""
    off = verdict.difference
    wrong = off is not None and off.kind == "pattern" and off.got != off.got and off.expected == off.expected
    return wrong and traits.SPECIAL not in verdict.traits


def is_half_precision(failures: Sequence[Verdict]) -> bool:
    """Whether nearly all errors, also in float32, match a computation in half precision."""
    # The budgets of sized cases grow with the number of keys, so their shares do not tell.
    differences = [
        (verdict.dtype, verdict.difference)
        for verdict in failures
        if verdict.difference and not verdict.group.startswith(SIZED_GROUPS)
    ]
    within = [off for dtype, off in differences if off.kind == "value" and off.share <= _HALF.get(dtype, 0.0)]
    shares = sorted(off.share for dtype, off in differences if dtype == "float32")
    coarse = bool(shares) and shares[-1] >= _COARSE and shares[len(shares) // 2] >= _MIDDLE
    # Outside the range of half precision there is no budget. Smaller errors have other causes.
    return len(failures) >= _FEW and coarse and len(within) >= _NEARLY * len(failures)


def is_rounding(failures: Sequence[Verdict]) -> bool:
    """Whether nearly all errors are a few budgets, and none is large."""
    few = sum(map(is_few_budgets, failures))
    if 2 * sum(bool(verdict.ignored or verdict.variant) for verdict in failures) > len(failures):
        return False  # it resembles something else
    return bool(failures) and few >= _NEARLY * len(failures) and not any(map(is_gross, failures))


def is_gross(verdict: Verdict) -> bool:
    """Whether the error is a large share of the result, so that it is not due to rounding."""
    off = verdict.difference
    if off is None or not isinstance(off.got, float) or not isinstance(off.expected, float):
        return off is not None and off.kind == "pattern"
    return off.kind == "pattern" or not abs(off.got - off.expected) <= _GROSS * max(1.0, abs(off.expected))


def is_few_budgets(verdict: Verdict) -> bool:
    """Whether the error of a value is only a few budgets."""
    off = verdict.difference
    return off is not None and off.kind == "value" and off.share <= _FEW_BUDGETS


def is_slight(verdict: Verdict) -> bool:
    """Whether the error of a value is so few budgets that it says least of a cause."""
    off = verdict.difference
    return off is not None and off.kind == "value" and 0 < off.share <= _SLIGHT_BUDGETS


def _by_precision(failures: Sequence[Verdict]) -> dict[Verdict, tuple[str, ...]]:
    """Find the failures that match a lower precision, by the rule about it.

    A failure does not count if the same call is as wrong in a longer dtype.
    """
    longer = _errors(verdict for verdict in failures if verdict.dtype == "float32")
    kinds: dict[Verdict, tuple[str, ...]] = {}
    for rule, dtypes in (("NUM-5", (*SHORT,)), ("NUM-2", ("float64",))):
        own = [verdict for verdict in failures if verdict.dtype in dtypes]
        named = [verdict for verdict in own if verdict.precision and verdict.rule == rule]
        short = {verdict for verdict in named if not _is_as_large(verdict, longer)}
        # Some errors of any bug are small by chance.
        others = [verdict for verdict in own if verdict not in short and _is_unexplained(verdict, longer)]
        if not short or len(short) < len(others):
            continue
        if rule == "NUM-5":
            small = [verdict for verdict in own if _is_small(verdict) and not _is_as_large(verdict, longer)]
            kinds |= dict.fromkeys((*short, *small, *_overflows(own, failures)), (PRECISE, rule))
        else:
            # Errors that no variant of float32 has may be larger, such as those of a cancellation.
            small = [verdict for verdict in own if not is_gross(verdict) and verdict.stem not in longer]
            kinds |= dict.fromkeys((*short, *small), (PRECISE, rule))
    return kinds


def _errors(failures: Iterable[Verdict]) -> dict[str, float]:
    """Return the largest error of each case."""
    errors: dict[str, float] = defaultdict(float)
    for verdict in failures:
        errors[verdict.stem] = max(errors[verdict.stem], absolute_error(verdict))
    return errors


def _is_as_large(verdict: Verdict, longer: Mapping[str, float]) -> bool:
    """Whether the same call in float32 has an error of the same size, so that the dtype is not its reason."""
    error, (least, most) = longer.get(verdict.stem, 0.0), _AS_LARGE
    return bool(error) and least * absolute_error(verdict) <= error <= most * absolute_error(verdict)


def _is_unexplained(verdict: Verdict, longer: Mapping[str, float]) -> bool:
    """Whether a failure in a short dtype is not explained by the precision, nor by a failure in float32."""
    if verdict.precision:
        return True  # the same call is as wrong in float32
    return verdict.stem not in longer and is_gross(verdict) and traits.LARGE not in verdict.traits


def _is_small(verdict: Verdict) -> bool:
    """Whether an error resembles nothing, and is a few budgets, or is that of a sum of errors (NUM-6)."""
    few = is_few_budgets(verdict) and not is_gross(verdict)
    return verdict.rule == "NUM-6" or (few and not (verdict.variant or verdict.ignored))


def _overflows(own: Sequence[Verdict], failures: Iterable[Verdict]) -> list[Verdict]:
    """Find calls with large scores that fail in half precision, if such calls pass in float32."""
    large = [
        verdict
        for verdict in failures
        if traits.LARGE in verdict.traits and traits.RELATED not in verdict.traits
    ]
    wide = {frozenset(verdict.traits) for verdict in large if verdict.dtype not in SHORT}
    short = set(own) & set(large)
    return [
        verdict
        for verdict in own
        if verdict in short and not any(kinds <= set(verdict.traits) for kinds in wide)
    ]


def _traces(failures: Sequence[Verdict]) -> set[Verdict]:
    """Find failures in which weights that should be 0, or nearly 0, are larger."""
    traces = {verdict for verdict in failures if _is_trace(verdict)}
    # In half precision a small weight is inaccurate, because its score is.
    wide = [verdict for verdict in failures if verdict.dtype not in SHORT and _is_value(verdict)]
    enough = sum(verdict in traces for verdict in wide) >= max(_FEW_TRACES, _SHARE * len(wide))
    return traces if enough else set()


def _is_value(verdict: Verdict) -> bool:
    return verdict.difference is not None and verdict.difference.kind in ("value", "pattern")


def _is_trace(verdict: Verdict) -> bool:
    off = verdict.difference
    if off is None or off.output not in ("weights", "output") or not absolute_error(verdict) <= _TRACE:
        return False
    got, expected = abs(float(off.got)), abs(float(off.expected))
    # A relation compares two results, both of which may have the trace.
    return 2 * expected <= got or (traits.RELATED in verdict.traits and max(got, expected) <= _TRACE)
