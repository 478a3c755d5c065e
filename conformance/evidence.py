"""Evidence for the error budget: what it lets pass, what it catches, and what other rules make of the same."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from attnspec.conformance.algorithms import ALGORITHMS, Array, run, stored
from attnspec.conformance.bias import signed_mean
from attnspec.conformance.datasets import DTYPES, INDEPENDENT, Problem
from attnspec.conformance.faults import FAULTS
from attnspec.conformance.libraries import libraries
from attnspec.reference import attention
from attnspec.reference.exact import evaluate
from attnspec.reference.rounding import Accuracy, budget

#: The rules that are compared, by the heading of their column.
RULES = ("full", "cast", "signed mean", "1e-2", "1e-3", "ONNX", "2x baseline")
#: Absolute and relative tolerance.
FIXED: Mapping[str, tuple[float, float]] = {"1e-2": (1e-2, 1e-2), "1e-3": (1e-3, 1e-3), "ONNX": (1e-7, 1e-3)}


@dataclass(frozen=True)
class Subject:
    """Something that computes attention.

    Attributes
    ----------
    name : str
    accuracy : {"full", "cast", "storage"} or None
        The class that it must meet; None for a fault.
    compute : callable
        From a problem to the output in its dtype, or None where it does not apply.
    """

    name: str
    accuracy: Accuracy | None
    compute: Callable[[Problem], Array | None]


@dataclass(frozen=True)
class Trial:
    """One subject on one problem: error over what each rule allows; above 1 the rule rejects.

    ``own`` among the rules is the budget of the subject's class.
    """

    subject: Subject
    problem: Problem
    shares: Mapping[str, float]


def subjects() -> list[Subject]:
    """List the correct algorithms, the libraries installed, and the faults."""
    found = [Subject(name, a.accuracy, partial(_computed, a.function)) for name, a in ALGORITHMS.items()]
    found += [Subject(name, accuracy, compute) for name, accuracy, compute in libraries()]
    for name, fault in FAULTS.items():
        found.append(Subject(name, None, partial(_computed, fault.function, dtypes=fault.dtypes)))
    return found


def trials(some: Iterable[Problem], of: Sequence[Subject]) -> Iterator[Trial]:
    """Put every problem to every subject."""
    for each in some:
        judge = _judge(each)
        for subject in of:
            got = subject.compute(each)
            if got is not None:
                yield Trial(subject, each, judge(got.astype(np.float64), subject))


def _computed(
    function: Callable[..., Array], given: Problem, *, dtypes: tuple[str, ...] = tuple(DTYPES)
) -> Array | None:
    if given.dtype not in dtypes:
        return None
    return run(function, given.query, given.key, given.value, given.allowed, scale=given.scale)


def _judge(given: Problem) -> Callable[[Array, Subject], dict[str, float]]:
    """Prepare what every rule needs to know of a problem, once for all subjects."""
    wide = {k: x if x.dtype == bool else x.astype(np.float64) for k, x in given.arguments.items()}
    slack: Any = 0.0
    weights: Array
    if given.dtype == "float64":
        exact = evaluate("attention", wide)
        expected, weights = exact["output"].values, exact["weights"].values
    else:  # float64 is exact enough here, and how exact is known
        expected, weights = attention(**wide, return_weights=True)
        slack = budget("attention", wide, "float64")["output"]

    def allowed(accuracy: Accuracy, working: str | None = None) -> Array:
        found = budget("attention", wide, given.dtype, accuracy=accuracy, working=working)
        return np.asarray(found["output"] + slack)

    budgets = {accuracy: allowed(accuracy) for accuracy in ("full", "cast", "storage")}
    # What NUM-2 calls the variant `float32`.
    in_float32 = allowed("cast", "float32")
    baseline = np.abs(_computed(stored, given) - expected).max()
    tolerances = {name: atol + rtol * np.abs(expected) for name, (atol, rtol) in FIXED.items()}

    def judge(got: Array, subject: Subject) -> dict[str, float]:
        own = budgets[subject.accuracy or "full"]
        if subject.name == "jax.nn" and given.dtype == "float64":
            own = in_float32
        allowances = {"own": own, "full": budgets["full"], "cast": budgets["cast"], **tolerances}
        shares = {name: _share(got, expected, most) for name, most in allowances.items()}
        shares["2x baseline"] = _share(got, expected, np.asarray(2 * baseline))
        if given.dataset in INDEPENDENT and subject.accuracy != "storage":
            cast = None if subject.accuracy == "full" else (weights, wide["value"])
            shares["signed mean"] = signed_mean(got, expected, own, dtype=given.dtype, cast=cast)
        return shares

    return judge


def _share(got: Array, expected: Array, allowed: Array) -> float:
    """Divide the errors by what is allowed, and return the largest share."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(got == expected, 0.0, np.abs(got - expected) / allowed)
    return float(np.where(np.isnan(shares), np.inf, shares).max())
