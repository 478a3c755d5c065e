"""The cause of a failure: the rule that a difference breaks, and what the result resembles."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS, Case, find_rule
from attnspec.backends import Backend
from attnspec.conformance.judge.budget import budgets_of, in_plain_words, without_overflow
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import LSES, Outputs, accepted_dtypes, is_real
from attnspec.conformance.judge.expected import are_within, differ, expected, value_variants, with_open_lse
from attnspec.conformance.judge.lists import broken_rule, count_places
from attnspec.conformance.verdict import LISTS, Difference
from attnspec.operations.operation import primal
from attnspec.reference import attention, attention_vjp
from attnspec.reference.budget.attention import budgeted_keys
from attnspec.reference.budget.budget import Budget
from attnspec.reference.rational.scores import SHOWN

#: A variant changes nothing unless all of these arguments are given.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "SCORE-5": ("softcap", "bias"),
    "MASK-2": ("bias",),
    "MASK-8": ("window",),
}
#: Variants of one operation.
_OF_OPERATION: Mapping[str, str] = {
    "POS-8": "alibi_bias",
    "POS-15": "rotary",
    "POS-21": "rotary_frequencies",
    "POS-22": "rotary_frequencies",
}
#: Variants that change only the lse.
_OF_LSE = ("SOFT-6", "SOFT-7")


def possible_variants(case: Case, values: Mapping[str, Any], off: str) -> Iterator[tuple[str, str]]:
    """List the variants, with their rules, that may explain the output that differs."""
    for rule, variants in SHOWN.items():
        if _changes(rule, case, values, off):
            yield from ((rule, variant) for variant in variants)


def _changes(rule: str, case: Case, values: Mapping[str, Any], off: str) -> bool:
    if rule.startswith("GRAD-"):
        return case.operation == "attention_vjp" and (rule != "GRAD-6" or "d_lse" in case.arguments)
    if rule == "SCORE-2":
        return "scale" in OPERATIONS[case.operation].arguments and case.arguments.get("scale") is None
    if rule == "MASK-3":
        return "is_causal" in case.arguments or "window" in case.arguments
    if rule in _NEEDS:
        return all(name in case.arguments for name in _NEEDS[rule])
    if rule in _OF_OPERATION:
        return case.operation == _OF_OPERATION[rule]
    if rule == "PACK-5":
        return "key_starts" in case.arguments
    if rule == "HEAD-1":
        shapes = [case.arguments[name].shape[:-2] for name in ("query", "key") if name in case.arguments]
        return len(shapes) < 2 or shapes[0] != shapes[1]
    if OPERATIONS[case.operation].differentiates:
        return False  # the gradients of the other rules' rows are named by GRAD-10
    lse, weights = values.get("lse"), values.get("weights")
    if rule in _OF_LSE:
        return off == "lse" and (rule == "SOFT-6" or lse is None or bool((lse == -np.inf).any()))
    return weights is None or bool((weights == 0).all(axis=-1).any())


#: The rule about an empty row, by output with an axis of queries.
_RULES: Mapping[str, str] = {"output": "MASK-6", "weights": "MASK-6", "lse": "SOFT-7", "d_query": "GRAD-10"}
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
    others = compare(
        name, outputs[name], inside, budgets[name], *accepted_dtypes(name, case.dtype), where=where
    )
    return "" if isinstance(others, Difference) else _RULES[name]


def _empty(arguments: Mapping[str, Any], dialect: Mapping[str, str]) -> NDArray[np.bool_]:
    """Find the rows without an allowed key in a dialect."""
    shape = (*arguments["query"].shape[:-1], arguments["key"].shape[-2])  # (*B, Hq, L, S)
    capped = dialect.get("SCORE-5") == "after-bias" and dialect.get("MASK-2") == "added"
    plain = in_plain_words(arguments, dialect) | {"capped_infinity": capped}
    return ~np.asarray(budgeted_keys(shape, plain).any(axis=-1))  # (*B, Hq, L)


#: Rules about the lse's dtype. In cases about other rules, an lse of too short a dtype is not judged.
_RULES_OF_LSE_DTYPE = ("NUM-7", "SHAPE-8", "SOFT-6", "SOFT-7", "DROP-3", "CACHE-6", "CACHE-7")
#: A rounding to float32 is 2^29 times as large as one to float64. Smaller errors have other causes.
_OF_FLOAT32 = 2.0**10
#: The share of a number by which the reference in float64 may be off where nothing may be off.
_TINY = 1e-12
#: Budgets are derived for the softmax of the standard. A variant may round in other places.
_SLACK = 8


#: The rule that a wrong shape of an output of attention breaks.
SHAPE_RULES = {output.name: output.rule for output in OPERATIONS["attention"].results}
#: The rules about dtypes of outputs; that of the others is NUM-1.
_DTYPES: Mapping[str, str] = {"lse": "NUM-7", "max": "SOFT-8", "index_scores": "NUM-7"}


@dataclass(frozen=True)
class Cause:
    """The rule that is broken, and what the result resembles, as in a `Verdict`."""

    rule: str
    variant: str = ""
    ignored: str = ""
    precision: str = ""


def outputs_to_judge(outputs: Outputs, case: Case) -> Outputs:
    """Count lists, and leave out an lse of a dtype that is too short, unless the case is about that dtype."""
    every = outputs if LISTS.isdisjoint(outputs) else count_places(case, outputs)
    found = {name: x for name, x in every.items() if not case.outputs or name in case.outputs}
    lse = found.get("lse")
    if (
        lse is None
        or str(lse.dtype) in accepted_dtypes("lse", case.dtype)
        or set(case.rules) & set(_RULES_OF_LSE_DTYPE)
    ):
        return found
    return {name: array for name, array in found.items() if name != "lse"}


def cause_of(
    backend: Backend, case: Case, difference: Difference, outputs: Outputs, values: Mapping[str, Any]
) -> Cause:
    """Determine which rule a difference breaks, and what the outputs resemble."""
    rule = case.rules[0]
    if difference.kind == "shape" and case.operation == "attention" and case.misuse is None:
        return Cause(SHAPE_RULES[difference.output])
    computed = case.misuse is None or case.misuse.allowed
    if difference.kind in ("shape", "dtype") and _differentiates(case) and computed:
        return Cause("GRAD-2")
    if difference.kind == "dtype":
        return Cause(_DTYPES.get(difference.output, "NUM-1"))
    of_list = broken_rule(case, outputs[difference.output]) if difference.output in LISTS else ""
    if of_list and not find_rule(rule).level == find_rule(of_list).level == "MUST":
        return Cause(of_list)
    if find_rule(rule).level != "MUST":  # what this rule leaves open breaks no other rule
        return Cause(rule)
    if not case.group:
        return _cause_of_golden(backend, case, difference, outputs, values)
    if difference.kind == "shape":
        return Cause(rule)
    for name in ignored_options(backend, case, outputs):
        if name == "d_lse":
            return Cause("GRAD-6", "ignored", name)
        return Cause("ERR-3" if "ERR-3" in case.rules else rule, ignored=name)
    return (
        _variant(
            backend,
            case,
            _apart(outputs, difference.output),
            possible_variants(case, values, difference.output),
        )
        or _cause_of_emptied_rows(backend, case, difference, outputs, values)
        or _precision(backend, case, outputs, values)
        or _silent_zero(case, outputs[difference.output], values[difference.output])
        or Cause(_rule_of_output(case, difference))
    )


def _apart(outputs: Outputs, name: str) -> Outputs:
    """Return the lse alone, or the other outputs: each may show a variant of its own."""
    return {output: array for output, array in outputs.items() if (output == "lse") == (name == "lse")}


def _rule_of_output(case: Case, difference: Difference) -> str:
    """Return the rule about the output that differs, or the first rule of the case."""
    if case.operation != "attention":
        return case.rules[0]
    if difference.output != "lse":
        # The output of an empty row has a rule of its own, and only of such a row.
        first, *others = case.rules
        first = "MASK-6" if first == "SOFT-7" and "MASK-6" in others else first
        return _rule_of_row(case, difference) if first == "MASK-6" else first
    if difference.expected == -np.inf:
        return "SOFT-7"
    return next((rule for rule in case.rules if rule in ("NUM-7", "SOFT-6")), case.rules[0])


def _rule_of_row(case: Case, difference: Difference) -> str:
    """Return the rule about empty rows, or that of the masks if another row differs."""
    empty, row = _empty(case.arguments, {}), difference.element[:-1]
    if len(row) != empty.ndim or empty[row]:
        return "MASK-6"
    form = OPERATIONS["attention"]
    masks = (name for name in form.names("masks") if name in case.arguments and name != "query_offset")
    rules = list(dict.fromkeys(form.arguments[name].rule for name in masks))
    return "MASK-4" if len(rules) > 1 else (*rules, "SOFT-1")[0]


def ignored_options(backend: Backend, case: Case, outputs: Outputs) -> list[str]:
    """List the options that the implementation may have ignored.

    The exact result of the call without such an option is the result that the backend returned.
    """
    dialect = value_variants(backend.dialect)
    found = []
    for name in case.arguments:
        # Without some options, such as the number of heads, there is no valid call.
        if name not in OPERATIONS[case.operation].arrays and primal(case.operation) == "attention":
            left_out = OPERATIONS[case.operation].together(name)
            less = {key: x for key, x in case.arguments.items() if key not in left_out}
            other = replace(case, arguments=less, expected={})
            near = dialect or _is_near(backend, other, less, outputs, 1)
            if near and _gave(backend, other, dialect, (case, dialect), outputs, 1):
                found.append(name)
    return found


def _cause_of_emptied_rows(
    backend: Backend, case: Case, difference: Difference, outputs: Outputs, values: Mapping[str, Any]
) -> Cause | None:
    """Return the rule about empty rows if only empty rows that a declared variant changes differ."""
    dialect = value_variants(backend.dialect)
    plain = _values(case, {}) if dialect else None
    if plain is None:
        return None
    both, budgets = (values, plain), budgets_of(backend, case)
    rule = rule_of_emptied_rows(case, dialect, difference, outputs, both, budgets)
    if not rule:
        return None
    variants = [(rule, variant) for variant in SHOWN[rule]]
    return _variant(backend, case, _apart(outputs, difference.output), variants) or Cause(rule)


def _silent_zero(case: Case, got: NDArray[Any], expected: NDArray[Any]) -> Cause | None:
    """Whether a gradient is 0 everywhere, although most of its elements should not be."""
    zero = _differentiates(case) and not got.any()
    return Cause("GRAD-17") if zero and 2 * np.count_nonzero(expected) > expected.size else None


def _differentiates(case: Case) -> bool:
    return OPERATIONS[case.operation].differentiates


def _is_near(backend: Backend, other: Case, plain: Mapping[str, Any], outputs: Outputs, slack: float) -> bool:
    """Whether the outputs may be the exact result of another call, which `plain` says without a dialect.

    The reference tells, because the oracle is much slower. It is itself within the budget, so twice the
    budget is allowed.
    """
    name = OPERATIONS[other.operation].outputs[0]
    if name not in outputs:
        return True
    wide = {argument: x.astype(np.float64) if is_real(x) else x for argument, x in plain.items()}
    try:
        near = attention(**wide) if other.operation == "attention" else attention_vjp(**wide)[0]
        allowed = 2 * slack * budgets_of(backend, other)[name] + _TINY * np.abs(near)
        with np.errstate(invalid="ignore"):  # infinities of one sign, which are not compared
            off = np.abs(outputs[name].astype(np.float64) - near)
    except (ValueError, TypeError):
        return True
    return not (off[np.isfinite(off)] > allowed[np.isfinite(off)]).any()


def _cause_of_golden(
    backend: Backend, case: Case, difference: Difference, outputs: Outputs, values: Mapping[str, Any]
) -> Cause:
    """Determine the cause for a golden vector, from its stored values of variants or from the precision."""
    name = difference.output
    for other in case.alternatives:
        if name in other.expected:
            showing = replace(backend, dialect={**backend.dialect, other.rule: other.variant})
            allowed = _SLACK * budgets_of(showing, case)[name]
            compared = compare(
                name, outputs[name], other.expected[name], allowed, *accepted_dtypes(name, case.dtype)
            )
            # Values that are equally close to those of the standard do not show a variant.
            apart = differ(other.expected, case.expected, {name: allowed}, {name: outputs[name]})
            if apart and not isinstance(compared, Difference):
                return Cause(other.rule, other.variant)
    if emptied := _cause_of_emptied_rows(backend, case, difference, outputs, values):
        return emptied
    own = Cause(_rule_of_output(case, difference))
    small = case.dtype == "float64" and difference.share < _OF_FLOAT32
    if own.rule == "NUM-7" or difference.kind != "value" or small:  # NUM-7 is about a precision itself
        return own
    return _precision(backend, case, outputs, values) or own


#: A rule about precision that allows less than the storage dtype has.
_OF_SHORT_WEIGHTS = ("QUANT-11",)


def _precision(backend: Backend, case: Case, outputs: Outputs, values: Mapping[str, Any]) -> Cause | None:
    """Return the cause if the errors match a computation in a lower precision."""
    dtype = case.dtype
    if any(is_real(x) and x.dtype != dtype for name, x in case.arguments.items() if name not in LSES):
        return None  # ERR-14 is itself about precision
    if dtype == "float32" or case.rules[0] in _OF_SHORT_WEIGHTS:
        return None
    if dtype == "float64":
        low = budgets_of(replace(backend, dialect={**backend.dialect, "NUM-2": "float32"}), case)
        found = Cause("NUM-2", "float32", precision="float32")
    else:
        low = budgets_of(backend, case, "storage")
        storing = replace(backend, dialect={**backend.dialect, "NUM-5": "storage"})
        values = without_overflow(storing, case, values, outputs)
        found = Cause("NUM-5", "storage", precision=dtype)
    return found if are_within(outputs, values, low, dtype) else None


def _variant(
    backend: Backend, case: Case, outputs: Outputs, variants: Iterable[tuple[str, str]]
) -> Cause | None:
    """Return the cause if the values are those of a variant that is not declared."""
    dialect = value_variants(backend.dialect)
    for rule, variant in variants:
        showing = replace(backend, dialect={**backend.dialect, rule: variant})
        if not dialect and _is_excluded(showing, case, rule, variant, outputs):
            continue
        if _gave(showing, case, {**dialect, rule: variant}, (case, dialect), outputs, _SLACK):
            return Cause(rule, variant)
    return None


#: The variants that `in_plain_words` rewrites.
_REWRITTEN = ("MASK-3", "MASK-8", "HEAD-1")


def _is_excluded(showing: Backend, case: Case, rule: str, variant: str, outputs: Outputs) -> bool:
    """Whether it is clear, without the slow oracle, that the outputs are not those of a variant."""
    if variant == "nan":  # which differs from the standard in a NaN
        return not any(np.isnan(array).any() for array in outputs.values())
    if case.operation != "attention":
        return False
    if rule in ("MASK-6", "SOFT-7"):
        return not _empty(case.arguments, {}).any()
    if rule == "SCORE-2":
        return not _is_near(showing, case, {**case.arguments, "scale": 1.0}, outputs, _SLACK)
    if rule in _REWRITTEN:
        plain = in_plain_words(case.arguments, {rule: variant})
        return not _is_near(showing, case, plain, outputs, _SLACK)
    return False


def _gave(
    backend: Backend,
    other: Case,
    dialect: Mapping[str, str],
    asked: tuple[Case, Mapping[str, str]],
    outputs: Outputs,
    slack: float,
) -> bool:
    """Whether the outputs are the exact result of another call, and not of the call that was made."""
    values, whole = _values(other, dialect), _values(*asked)
    if values is None or whole is None:
        return False
    values = with_open_lse(values, whole, dialect, outputs)
    budgets = budgets_of(backend, other)
    outputs = {name: x for name, x in outputs.items() if name in budgets}  # no gradient of what it lacks
    allowed = {name: slack * budgets[name] for name in outputs}
    return are_within(outputs, values, allowed, other.dtype) and differ(values, whole, allowed, outputs)


def _values(case: Case, dialect: Mapping[str, str]) -> Mapping[str, Any] | None:
    """Return the exact values of a call, or None if the standard does not define them."""
    try:
        return expected(replace(case, expected={}), dialect)
    except ValueError:
        return None
