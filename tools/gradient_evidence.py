"""Evidence for the budget of a gradient: the algorithms that stay within it and the faults that exceed it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
from rich.table import Table

from attnspec.dtypes import DTYPES, FORMATS, SHORT
from attnspec.operations import OPERATIONS
from attnspec.reference.budget.budget import Accuracy, budget
from tools.algorithms import Array
from tools.gradient_algorithms import BACKWARDS, Backward, run
from tools.gradient_calls import SIZES, Problem, exact, problems
from tools.gradient_faults import GRADIENT_FAULTS, IN_USE
from tools.libraries import NAMES, gradient_libraries, takes

#: The unit of the format of the exact gradients, relative to that of float64. Their error is this share of a
#: budget of float64.
_LONGER = float(np.finfo(np.longdouble).eps) / float(np.finfo(np.float64).eps)
#: Absolute and relative tolerances that are compared.
FIXED: Mapping[str, float] = {"1e-2": 1e-2, "1e-3": 1e-3}
#: The rules that are compared, by the heading of their column.
RULES = ("full", "cast", *FIXED)
#: The classes and profiles of the table by gradient.
KINDS = ("full", "cast", "storage", "matrix", "bf16x3", "tf32", "bf16")
GRADIENTS = OPERATIONS["attention_vjp"].outputs
#: Algorithms in use that round more often than the budget assumes.
EXCEEDING = (*IN_USE, NAMES[1])


@dataclass(frozen=True)
class Trial:
    """One backward pass on one problem."""

    name: str
    backward_pass: Backward
    problem: Problem
    #: By rule and by gradient: the largest error divided by the error that the rule allows. The rule
    #: ``own`` is the budget of its class or profile.
    shares: Mapping[str, Mapping[str, float]]

    def most(self, rule: str = "own") -> float:
        """Return the largest share of all gradients. Above 1, the rule rejects the backward pass."""
        return max(self.shares[rule].values())


def subjects() -> dict[str, Backward]:
    """List the correct algorithms, the installed libraries, and the faults."""
    return {**BACKWARDS, **gradient_libraries(), **IN_USE, **GRADIENT_FAULTS}


def trials(some: Iterable[Problem], of: Mapping[str, Backward]) -> Iterator[Trial]:
    """Run every backward pass on every problem."""
    for each in some:
        judge = _judge(each)
        batch, heads, _, queries, keys, depth, _ = each.size
        products = prod((batch, heads, queries, keys, depth))
        for name, backward_pass in of.items():
            if each.dtype not in backward_pass.dtypes or products > backward_pass.products:
                continue
            if backward_pass.accuracy == "storage" and _overflows(each):
                continue
            if name not in NAMES or takes(each.arguments):
                yield Trial(
                    name, backward_pass, each, judge(run(backward_pass, each.arguments), backward_pass)
                )


def survey(*, quick: bool = False) -> list[Trial]:
    """Run everything: some seeds of every data set in every size and dtype."""
    sizes = SIZES[1:4] if quick else SIZES
    of = subjects()
    return [
        trial
        for dtype in DTYPES
        for trial in trials(problems(dtype, seeds=range(1 if quick else 2), sizes=sizes), of)
    ]


def _judge(given: Problem) -> Callable[[Mapping[str, Array], Backward], dict[str, dict[str, float]]]:
    """Compute the values of a problem that the rules need, once for all backward passes."""
    expected = exact(given.arguments, given.dtype)
    slack = {name: _LONGER * x for name, x in budget("attention_vjp", given.arguments, "float64").items()}

    @cache
    def budget_of(accuracy: Accuracy, profile: str = "") -> dict[str, Any]:
        found = budget("attention_vjp", given.arguments, given.dtype, accuracy=accuracy, profile=profile)
        return {name: x + slack[name] for name, x in found.items()}

    def judge(got: Mapping[str, Array], backward_pass: Backward) -> dict[str, dict[str, float]]:
        rules = {"own": budget_of(backward_pass.accuracy or "full", backward_pass.profile)}
        if backward_pass.accuracy is None:
            rules |= {"full": budget_of("full"), "cast": budget_of("cast")}
            for name, tolerance in FIXED.items():
                rules[name] = {of: tolerance * (1 + np.abs(x)) for of, x in expected.items()}
        return {
            rule: {name: share_of(x, expected[name], most[name]) for name, x in got.items()}
            for rule, most in rules.items()
        }

    return judge


def share_of(got: Array, expected: Array, allowed: Array) -> float:
    """Divide the errors by the allowed errors, and return the largest share."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(got == expected, 0, np.abs(got - expected) / allowed)
    return float(np.where(np.isnan(shares), np.inf, shares).max(initial=0))


def largest(shares: Sequence[float]) -> str:
    """Write the largest share of a correct algorithm, and how many are rejected."""
    wrong = sum(share > 1 for share in shares)
    most = f"{max(shares):.2f}" if shares else ""
    return f"{most}, {wrong} TOO LARGE" if wrong else most


def describe_excess(shares: Sequence[float]) -> str:
    """Write how many shares of an algorithm in use are rejected, and the largest."""
    return f"{sum(share > 1 for share in shares)}, {max(shares, default=0):.3g} budgets"


def _overflows(given: Problem) -> bool:
    """Whether a score may be too large for the storage dtype, which is not a rounding error."""
    query, key = (np.abs(given.arguments[name].astype(np.float64)) for name in ("query", "key"))
    most = query.max(axis=-2, keepdims=True) @ np.swapaxes(key.max(axis=-2, keepdims=True), -1, -2).max(
        axis=1, keepdims=True
    )
    return bool(most.max() > FORMATS[given.dtype].largest)


def passes(done: Sequence[Trial]) -> Table:
    """Tabulate the largest share of its budget that every correct backward pass used."""
    table = Table("correct algorithm", "class", "problems", *DTYPES, "where most, (B, Hq, Hkv, L, S, D, Dv)")
    for name, backward_pass in {t.name: t.backward_pass for t in done if t.backward_pass.accuracy}.items():
        own = [t for t in done if t.name == name]
        cells = [largest([t.most() for t in own if t.problem.dtype == dtype]) for dtype in DTYPES]
        at = max(own, key=Trial.most)
        table.add_row(
            name, backward_pass.profile or backward_pass.accuracy, str(len(own)), *cells, _place(at, "own")
        )
    return table


def excesses(done: Sequence[Trial]) -> Table:
    """Tabulate by how much algorithms in use exceed the class `cast`, and on how many problems."""
    table = Table("in use", "problems", *SHORT, "where most, (B, Hq, Hkv, L, S, D, Dv)")
    for name in EXCEEDING:
        own = [t for t in done if t.name == name and t.problem.dtype in SHORT]
        cells = [
            describe_excess([t.most("cast") for t in own if t.problem.dtype == dtype]) for dtype in SHORT
        ]
        where = _place(max(own, key=lambda t: t.most("cast")), "cast") if own else ""
        table.add_row(name, str(len(own)), *cells, where)
    return table


def by_gradient(done: Sequence[Trial]) -> Table:
    """Tabulate the largest share of all correct backward passes, gradient by gradient."""
    table = Table("gradient", "class", *DTYPES)
    for name in GRADIENTS:
        for kind in KINDS:
            cells = []
            for dtype in DTYPES:
                shares = [
                    t.shares["own"][name]
                    for t in done
                    if (t.backward_pass.profile or t.backward_pass.accuracy) == kind
                    and t.problem.dtype == dtype
                    and name in t.shares["own"]
                ]
                cells.append(f"{max(shares):.2f}" if shares else "")
            table.add_row(name, kind, *cells)
    return table


def detections(done: Sequence[Trial]) -> Table:
    """Tabulate the number of problems on which each rule rejects a fault."""
    table = Table("fault", "dtype", "problems", *RULES, "most budgets of full", "of cast")
    for name, backward_pass in GRADIENT_FAULTS.items():
        for dtype in backward_pass.dtypes:
            own = [t for t in done if t.name == name and t.problem.dtype == dtype]
            cells = [str(sum(t.most(rule) > 1 for t in own)) for rule in RULES]
            most = [_most(own, rule) for rule in ("full", "cast" if dtype in SHORT else "")]
            table.add_row(name, dtype, str(len(own)), *cells, *most)
    return table


def _most(own: Sequence[Trial], rule: str) -> str:
    """Return the largest error of a fault in budgets, with the gradient and the data on which it occurs."""
    if not own or not rule:
        return ""
    at = max(own, key=lambda t: t.most(rule))
    return f"{at.most(rule):.3g}: {_gradient(at, rule)}, {at.problem.dataset}"


def _gradient(at: Trial, rule: str) -> str:
    return max(at.shares[rule], key=lambda name: at.shares[rule][name])


def _place(at: Trial, rule: str) -> str:
    return f"{at.problem.dtype} {_gradient(at, rule)} {at.problem.dataset} {at.problem.size}"


def tables(*, quick: bool = False) -> list[Table]:
    """Make the tables of the chapter."""
    done = survey(quick=quick)
    return [passes(done), by_gradient(done), excesses(done), detections(done)]
