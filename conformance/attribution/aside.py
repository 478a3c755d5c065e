"""Finds failures that say little about the logic: a precision that is too low, and traces of weights.

They are set aside before other failures are divided by their common traits. Otherwise a call whose float16
result is slightly beyond its budget belongs to the same cause as one that ignores a mask.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from attnspec.conformance import traits
from attnspec.conformance.attribution.blame import is_few_budgets, is_gross
from attnspec.conformance.verdict import Verdict
from attnspec.dtypes import SHORT

#: The kinds of causes of failures that are set aside.
PRECISE, TRACES = "precise", "traces"
#: Weights are at most 1. An error of a weight that is smaller than this does not show in any sum.
_TRACE = 2.0**-60
#: With fewer failures than this, no cause is "traces".
_FEW = 5
#: And with less than this share of all wrong values.
_SHARE = 0.1
#: If the error in float32 is between these multiples of the error, the shorter dtype is not its reason.
_AS_LARGE = 0.125, 2.0


def set_aside(failures: Iterable[Verdict]) -> dict[Verdict, tuple[str, ...]]:
    """Return the kind of cause for each failure that is due to the precision, or leaves a trace only.

    Examples
    --------
    >>> from attnspec.conformance.attribution.aside import set_aside
    >>> from attnspec.conformance.verdict import Difference, Verdict
    >>> off = Difference("value", "output", got=1.01, expected=1.0, share=1.2)
    >>> half = {"dtype": "float16", "difference": off, "rule": "NUM-5", "precision": "float16"}
    >>> short = Verdict("b", "masking-causal-1-float16", "g", ("MASK-3",), "fail", **half)
    >>> wrong = Verdict("b", "masking-causal-2-float32", "g", ("MASK-3",), "fail", "float32")
    >>> list(set_aside([short, wrong]).values())
    [('precise', 'NUM-5')]
    """
    found = [one for one in failures if one.raised is None and traits.REFUSED not in one.traits]
    traces = _of_traces(found)
    return _of_precision([one for one in found if one not in traces]) | dict.fromkeys(traces, (TRACES,))


def error_of(one: Verdict) -> float:
    """Return the absolute error of a wrong value, infinity for any other difference."""
    off = one.difference
    if off is None or off.kind != "value" or isinstance(off.got, str) or isinstance(off.expected, str):
        return float("inf")
    return abs(off.got - off.expected)


def _of_precision(failures: Sequence[Verdict]) -> dict[Verdict, tuple[str, ...]]:
    """Find the failures that match a lower precision, by the rule about it.

    A failure does not count if the same call is as wrong in a longer dtype.
    """
    longer = _errors(one for one in failures if one.dtype == "float32")
    found: dict[Verdict, tuple[str, ...]] = {}
    for rule, dtypes in (("NUM-5", (*SHORT,)), ("NUM-2", ("float64",))):
        own = [one for one in failures if one.dtype in dtypes]
        named = [one for one in own if one.precision and one.rule == rule]
        of_short = {one for one in named if not _is_as_large(one, longer)}
        # Some errors of any bug are small by chance.
        others = [one for one in own if one not in of_short and _is_other(one, longer)]
        if not of_short or len(of_short) < len(others):
            continue
        few = [one for one in own if rule == "NUM-5" and _is_small(one) and not _is_as_large(one, longer)]
        past = _past_the_range(own, failures) if rule == "NUM-5" else []
        found |= dict.fromkeys((*of_short, *few, *past), (PRECISE, rule))
    return found


def _errors(failures: Iterable[Verdict]) -> dict[str, float]:
    errors: dict[str, float] = defaultdict(float)
    for one in failures:
        errors[_stem(one)] = max(errors[_stem(one)], error_of(one))
    return errors


def _is_as_large(one: Verdict, longer: Mapping[str, float]) -> bool:
    """Whether the same call in float32 has an error of the same size, so that the dtype is not its reason."""
    error, (least, most) = longer.get(_stem(one), 0.0), _AS_LARGE
    return bool(error) and least * error_of(one) <= error <= most * error_of(one)


def _is_other(one: Verdict, longer: Mapping[str, float]) -> bool:
    """Whether a failure in a short dtype is not explained by the precision, nor by a failure in float32."""
    if one.precision:
        return True  # the same call is as wrong in float32
    return _stem(one) not in longer and is_gross(one) and traits.LARGE not in one.traits


def _is_small(one: Verdict) -> bool:
    """Whether an error resembles nothing, and is a few budgets, or is that of a sum of errors (NUM-6)."""
    few = is_few_budgets(one) and not is_gross(one)
    return one.rule == "NUM-6" or (few and not (one.variant or one.ignored))


def _past_the_range(own: Sequence[Verdict], failures: Iterable[Verdict]) -> list[Verdict]:
    """Find calls with large scores that fail in half precision, if such calls pass in float32."""
    large = [one for one in failures if traits.LARGE in one.traits and traits.RELATED not in one.traits]
    wide = {frozenset(one.traits) for one in large if one.dtype not in SHORT}
    short = set(own) & set(large)
    return [one for one in own if one in short and not any(kinds <= set(one.traits) for kinds in wide)]


def _of_traces(failures: Sequence[Verdict]) -> set[Verdict]:
    """Find failures in which weights that should be 0, or nearly 0, are larger."""
    found = {one for one in failures if _is_trace(one)}
    # In half precision a small weight is inaccurate, because its score is.
    wide = [one for one in failures if one.dtype not in SHORT and _is_value(one)]
    enough = sum(one in found for one in wide) >= max(_FEW, _SHARE * len(wide))
    return found if enough else set()


def _is_value(one: Verdict) -> bool:
    return one.difference is not None and one.difference.kind in ("value", "pattern")


def _is_trace(one: Verdict) -> bool:
    off = one.difference
    if off is None or off.output not in ("weights", "output") or not error_of(one) <= _TRACE:
        return False
    got, expected = abs(float(off.got)), abs(float(off.expected))
    # A relation compares two results, both of which may have the trace.
    return 2 * expected <= got or (traits.RELATED in one.traits and max(got, expected) <= _TRACE)


def _stem(one: Verdict) -> str:
    return one.case.removesuffix(f"-{one.dtype}")
