"""Problems by formula in the dialect of a backend: other problems, other budgets."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log, prod
from typing import Any

import numpy as np

from attnspec.backends import Backend
from attnspec.backends.attention_of_form import LOW_PRECISION
from attnspec.conformance.judge.budget import required_accuracy
from attnspec.conformance.judge.expected import value_variants
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.sizes.codebook.words import intervals
from attnspec.dtypes import SHORT
from attnspec.formula import Formula
from attnspec.reference.budget.arithmetic import Accuracy

#: Variants about rows without an allowed key. These rows are not compared in such a dialect.
_OF_EMPTY_ROWS = ("MASK-6", "SOFT-7")


@dataclass(frozen=True)
class Dialect:
    """A problem in the dialect of a backend: the formula whose exact values the backend has to give.

    `rule` is the rule whose declared variant makes a difference, if there is one, and `unit` that of the lse.
    Rows without an allowed key are compared if `empty` is true.
    """

    formula: Formula
    rule: str = ""
    unit: float = 1.0
    empty: bool = True


def in_dialect(formula: Formula, dialect: Mapping[str, str], *, lse: bool = True) -> Dialect:
    """Translate a problem into the dialect of a backend."""
    options, found = dict(formula.options), Dialect(formula)
    for rule, variant in value_variants(dialect).items():
        if rule in _OF_EMPTY_ROWS:
            found = replace(found, empty=False)
        elif rule == "MASK-3" and {"is_causal", "window"} & {*options} and not options.get("query_offset"):
            if formula.queries == formula.keys:
                continue
            options["query_offset"] = formula.keys - formula.queries
            found = replace(found, rule=rule)
        elif rule == "MASK-8" and options.get("window", (None,))[0] is not None:
            left, right = options["window"]
            options["window"] = left - 1, right
            found = replace(found, rule=rule)
        elif rule == "SOFT-6":
            found = replace(found, unit=log(2), rule=rule) if lse else found
        elif rule == "SCORE-2" and "scale" not in options:
            options["scale"] = 1.0
            found = replace(found, rule=rule)
        elif _bears(rule, formula):
            raise Missing(f"a problem by formula is not translated to {rule} {variant}")
    return replace(found, formula=replace(formula, options=options))


def gradients_in_dialect(formula: Formula, dialect: Mapping[str, str]) -> Dialect:
    """Translate a problem of gradients into the dialect of a backend."""
    shown, of_lse = value_variants(dialect), "d_lse" in formula.options
    if of_lse and "SOFT-6" in shown:
        raise Missing(f"a cotangent of the lse is not translated to SOFT-6 {shown['SOFT-6']}")
    if "GRAD-10" in shown and _has_empty_rows(formula):
        raise Missing(f"a problem by formula is not translated to GRAD-10 {shown['GRAD-10']}")
    found = in_dialect(formula, {rule: dialect[rule] for rule in dialect if rule != "SOFT-6"})
    if not of_lse or "GRAD-6" not in shown:
        return found
    options = {name: thing for name, thing in found.formula.options.items() if name != "d_lse"}
    return replace(found, formula=replace(found.formula, options=options), rule=found.rule or "GRAD-6")


def _has_empty_rows(formula: Formula) -> bool:
    """Whether some row has no allowed key."""
    given = formula.given("float32")
    pairs = np.asarray(given.get("mask", True)) & (np.asarray(given.get("bias", 0.0)) > -np.inf)
    shape = (*formula.batch, formula.heads, formula.queries, formula.keys)
    several = np.broadcast_to(pairs, shape).reshape(-1, *shape[-3:]) if pairs.ndim else None
    j = np.arange(formula.keys)
    for entry in range(prod(formula.batch)):
        low, high = intervals(formula.options, formula.queries, formula.keys, entry)
        if (low >= high).any():
            return True
        if several is not None:
            inside = (j >= low[:, None]) & (j < high[:, None])
            if not (inside & several[entry]).any(axis=-1).all():
                return True
    return False


def _bears(rule: str, formula: Formula) -> bool:
    """Whether a rule about options bears on a problem."""
    options = formula.options
    return {
        "SCORE-5": "softcap" in options and "bias" in options,
        "MASK-2": "bias" in options,
        "HEAD-1": formula.heads != formula.key_heads and formula.key_heads > 1,
    }.get(rule, False)


@dataclass(frozen=True)
class Precision:
    """A precision whose budgets a result may stay within.

    `working` is a working precision other than that of the standard, `rule` that of a declared variant.
    """

    accuracy: Accuracy
    working: str | None = None
    profile: str = ""
    rule: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of functions that compute budgets."""
        return {"accuracy": self.accuracy, "working": self.working, "profile": self.profile}


def precisions(backend: Backend, dtype: str) -> tuple[Precision, ...]:
    """Return the precision of the standard, then that of a variant that a backend declares."""
    profile, plain = backend.profile, replace(backend, dialect={})
    standard = Precision(required_accuracy(plain, dtype), None, profile)
    if getattr(backend.attention, "form", "") == LOW_PRECISION and standard.accuracy == "cast":
        profile = profile if "fp8" in profile else "fp8"  # its weights may have 8 bits (QUANT-11)
        standard = replace(standard, profile=profile)
    if dtype == "float64" and "NUM-2" in backend.dialect:
        return standard, Precision("full", backend.dialect["NUM-2"], profile, "NUM-2")
    if dtype in SHORT and backend.dialect.get("NUM-5") == "storage":
        return standard, Precision("storage", None, profile, "NUM-5")
    return (standard,)
