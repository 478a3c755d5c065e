"""Evidence for the error budget: what it accepts, what it rejects, and how other rules compare."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from attnspec.conformance.relations.rounding_bias import signed_mean
from attnspec.conformance.suite.datasets import INDEPENDENT, SIZES, Problem, problems
from attnspec.dtypes import DTYPES, FORMATS, SHORT
from attnspec.reference import attention
from attnspec.reference.budget.arithmetic import PROFILES
from attnspec.reference.budget.budget import Accuracy, budget
from attnspec.reference.exact.evaluate import evaluate
from tools.algorithms import ALGORITHMS, EXCEEDING, Algorithm, Array, run
from tools.faults import FAULTS
from tools.gradient_evidence import describe_excess, largest, share_of
from tools.gradient_evidence import tables as tables_of_gradients
from tools.libraries import libraries
from tools.units import SHORT_WEIGHTS, UNITS

#: The rules that are compared, by the heading of their column.
RULES = ("full", "cast", "profile", "signed mean", "1e-2", "1e-3", "ONNX", "2x baseline")
#: The number of problems of each data set and size. The exact values of float64 are slow.
SEEDS: Mapping[str, int] = {"float16": 4, "bfloat16": 4, "float32": 4, "float64": 1}
#: The absolute and the relative tolerance of each rule.
FIXED: Mapping[str, tuple[float, float]] = {"1e-2": (1e-2, 1e-2), "1e-3": (1e-3, 1e-3), "ONNX": (1e-7, 1e-3)}
#: The options that request further outputs of the reference.
_RETURNED: Mapping[str, Any] = {"return_lse": True, "return_weights": True}


@dataclass(frozen=True)
class Subject:
    """An algorithm, a library or a fault that computes attention."""

    name: str
    #: The class that it must meet. None for a fault.
    accuracy: Accuracy | None
    #: Takes a problem and returns the result in its dtype, or None if it does not apply.
    compute: Callable[[Problem], Array | None]
    #: The result that it computes, `output` or `lse`.
    output: str = "output"
    profile: str = ""  # the profile that it is judged by, a name in `PROFILES`


@dataclass(frozen=True)
class Trial:
    """One subject on one problem: its error divided by the error that each rule allows.

    Above 1 the rule rejects it. The rule ``own`` is the budget of the class of the subject.
    """

    subject: Subject
    problem: Problem
    shares: Mapping[str, float]


def subjects() -> list[Subject]:
    """List the correct algorithms, the installed libraries, and the faults."""
    slow = {**UNITS, **SHORT_WEIGHTS}  # to simulate

    def make(some: Mapping[str, Algorithm], seeds: int = max(SEEDS.values())) -> list[Subject]:
        return [
            Subject(name, each.accuracy, partial(_compute, each, seeds=seeds), each.output, each.profile)
            for name, each in some.items()
        ]

    of_libraries = [Subject(*library) for library in libraries()]
    return [*make(ALGORITHMS), *make(slow, seeds=1), *of_libraries, *make(EXCEEDING), *make(FAULTS)]


def trials(some: Iterable[Problem], of: Sequence[Subject]) -> Iterator[Trial]:
    """Run every subject on every problem."""
    for each in some:
        judge = _judge(each)
        for subject in of:
            if subject.accuracy == "storage" and _overflows(each):
                continue
            got = subject.compute(each)
            if got is not None:
                yield Trial(subject, each, judge(got.astype(np.float64), subject))


def survey(*, quick: bool = False) -> list[Trial]:
    """Run everything: some seeds of every data set in every size and dtype."""
    sizes = tuple(size for size in SIZES if size[1] in (1, 7, 16, 17)) if quick else SIZES
    of = subjects()
    return [
        trial
        for dtype in DTYPES
        for trial in trials(problems(dtype, seeds=range(1 if quick else SEEDS[dtype]), sizes=sizes), of)
    ]


def _compute(algorithm: Algorithm, given: Problem, *, seeds: int = max(SEEDS.values())) -> Array | None:
    return run(algorithm, given) if given.dtype in algorithm.dtypes and given.seed < seeds else None


def _judge(given: Problem) -> Callable[[Array, Subject], dict[str, float]]:
    """Compute the values of a problem that the rules need, once for all subjects."""
    wide = {k: x if x.dtype == bool else x.astype(np.float64) for k, x in given.arguments.items()}
    slack: Mapping[str, Any] = {"output": 0.0, "lse": 0.0}
    exact: dict[str, Array]
    if given.dtype == "float64":
        exact = {name: settled.values for name, settled in evaluate("attention", wide).items()}
    else:  # float64 is accurate enough here, and its budget is known
        exact = dict(zip(("output", "lse", "weights"), attention(**wide, **_RETURNED), strict=True))
        slack = budget("attention", wide, "float64")

    @cache
    def budget_of(accuracy: Accuracy, working: str | None = None, profile: str = "") -> dict[str, Array]:
        found = budget("attention", wide, given.dtype, accuracy=accuracy, working=working, profile=profile)
        return {name: np.asarray(found[name] + slack[name]) for name in ("output", "lse")}

    budgets = {accuracy: budget_of(accuracy) for accuracy in ("full", "cast", "storage")}
    baseline = np.abs(run(ALGORITHMS["all stored"], given).astype(np.float64) - exact["output"]).max()

    # With far fewer elements even truncation could be chance.
    may_be_biased = given.dataset in INDEPENDENT and given.dtype in SHORT and exact["output"].size >= 1024

    def judge(got: Array, subject: Subject) -> dict[str, float]:
        expected = exact[subject.output]
        allowances = {name: found[subject.output] for name, found in budgets.items()}
        if subject.name == "jax.nn" and given.dtype == "float64":  # by NUM-2, the variant `float32`
            allowances["cast"] = budget_of("cast", "float32")[subject.output]
        allowances["own"] = allowances[subject.accuracy or "full"]
        if subject.profile:
            own: Accuracy = "cast" if given.dtype in SHORT else "full"
            allowances["own"] = allowances["profile"] = budget_of(own, profile=subject.profile)[
                subject.output
            ]
        for name, (atol, rtol) in FIXED.items():
            allowances[name] = atol + rtol * np.abs(expected)
        shares = {name: share_of(got, expected, most) for name, most in allowances.items()}
        if subject.output == "lse":
            return shares
        if np.isfinite(baseline):
            shares["2x baseline"] = share_of(got, expected, np.asarray(2 * baseline))
        short = (
            subject.profile and PROFILES[subject.profile][given.dtype].weights
        )  # its bound has no term for it
        if subject.accuracy != "storage" and may_be_biased and not short:
            cast = None if subject.accuracy == "full" else (exact["weights"], wide["value"])
            most = budgets["full"]["output"]
            shares["signed mean"] = signed_mean(got, expected, most, dtype=given.dtype, cast=cast)
        return shares

    return judge


def _overflows(given: Problem) -> bool:
    """Whether a score may be too large for the storage dtype, which is not a rounding error."""
    query, key = (np.abs(array.astype(np.float64)) for array in (given.query, given.key))
    return bool((query @ key.T).max() > FORMATS[given.dtype].largest)


def passes(done: Sequence[Trial]) -> Table:
    """Tabulate the largest share of its budget that every correct algorithm used."""
    table = Table("correct algorithm", "class", "problems", *DTYPES, "signed mean", "where most, (L, S, D)")
    for subject in dict.fromkeys(trial.subject for trial in done if trial.subject.accuracy):
        own = [trial for trial in done if trial.subject is subject]
        cells = [largest(_shares(own, "own", dtype)) for dtype in DTYPES]
        biases = [trial.shares["signed mean"] for trial in own if "signed mean" in trial.shares]
        bias, where = f"{max(biases):.2f}" if biases else "", _place(own, "own")
        table.add_row(subject.name, subject.profile or subject.accuracy, str(len(own)), *cells, bias, where)
    return table


def detections(done: Sequence[Trial]) -> Table:
    """Tabulate the number of problems on which each rule rejects a fault. Correct algorithms come first."""
    table = Table("subject", "dtype", "problems", *RULES, "best data set for each budget")
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in done:
        accuracy = trial.subject.accuracy
        if accuracy != "storage" and trial.subject.name not in EXCEEDING:
            of = "lse, correct" if trial.subject.output == "lse" else "correct"
            name = f"{of}, {trial.subject.profile or accuracy}" if accuracy else trial.subject.name
            groups.setdefault((name, trial.problem.dtype), []).append(trial)
    for (name, dtype), own in groups.items():
        cells, accuracy = [], own[0].subject.accuracy
        for rule in RULES:
            judged = [trial.shares[rule] for trial in own if rule in trial.shares]
            found = sum(share > 1 for share in judged)
            many = f"{found} of {len(judged)}" if len(judged) < len(own) else str(found)
            cells.append("" if not judged or (accuracy, rule) == ("cast", "full") else many)
        sure = "" if accuracy else _best(own)
        table.add_row(name, dtype, str(len(own)), *cells, sure)
    return table


def excesses(done: Sequence[Trial]) -> Table:
    """Tabulate by how much algorithms in use exceed the budget, and on how many problems."""
    table = Table("algorithm in use", "problems", *DTYPES, "where most, (L, S, D)")
    for name in EXCEEDING:
        own = [trial for trial in done if trial.subject.name == name]
        cells = [describe_excess(_shares(own, "full", dtype)) for dtype in DTYPES]
        table.add_row(name, str(len(own)), *cells, _place(own, "full"))
    return table


def _shares(own: Sequence[Trial], rule: str, dtype: str) -> list[float]:
    return [trial.shares[rule] for trial in own if trial.problem.dtype == dtype]


def _place(own: Sequence[Trial], rule: str) -> str:
    at = max(own, key=lambda trial: trial.shares[rule]).problem
    return f"{at.dtype} {at.dataset} {(len(at.query), *at.key.shape)}"


def _best(own: Sequence[Trial]) -> str:
    """Name the data set on which each rule of this project finds the fault most often."""
    found = []
    for rule in ("full", "cast", "profile", "signed mean"):
        rejected: dict[str, list[bool]] = {}
        for trial in own:
            # Rows shorter than a tile have too few roundings.
            if len(trial.problem.key) >= 16 and rule in trial.shares:
                rejected.setdefault(trial.problem.dataset, []).append(trial.shares[rule] > 1)
        best = max(rejected, key=lambda name: np.mean(rejected[name]), default="")
        if best and any(rejected[best]):
            found.append(f"{rule}: {best} {sum(rejected[best])} of {len(rejected[best])}")
    return "; ".join(found)


def markdown(table: Table) -> str:
    """Write a table as Markdown."""
    columns = [list(column.cells) for column in table.columns]
    head = [str(column.header) for column in table.columns]
    rows = [head, ["---"] * len(head), *map(list, zip(*columns, strict=True))]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


@click.command()
@click.option("--quick", is_flag=True, help="One seed and small sizes: seconds instead of minutes.")
@click.option("--gradients", is_flag=True, help="The tables of the chapter gradients instead.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the tables as Markdown.")
def main(*, quick: bool, gradients: bool, as_markdown: bool) -> None:
    """Print what the error budget accepts, which algorithms in use exceed it, and what it rejects."""
    console = Console(width=220, highlight=False)  # a wrapped table is not readable
    for table in tables_of_gradients(quick=quick) if gradients else _tables(quick=quick):
        if as_markdown:
            click.echo(markdown(table) + "\n")
        else:
            console.print(table)


def _tables(*, quick: bool) -> list[Table]:
    done = survey(quick=quick)
    return [passes(done), excesses(done), detections(done)]


if __name__ == "__main__":
    main()
