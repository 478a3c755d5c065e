"""Every number that the five worked examples print is stored, and agrees with the values."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnspec import Figure, cases
from attnspec.conformance.judge.comparison import misprint
from attnspec.reference.budget.budget import budget

FIGURES = Path(__file__).parent / "figures"
NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*(?:e[+-]\d+)?|inf)(?![\w])")

#: How many numbers each example prints, counted by hand in the notebooks: shapes and masks too, labels not.
COUNTS = {"000": 42, "001": 45, "002": 199, "003": 149, "004": 203}


def printed(example):
    """The numbers in the transcript of an example, by cell."""
    found, cell = Counter(), ""
    for line in (FIGURES / f"{example}.txt").read_text().splitlines():
        if line.startswith("# "):
            cell = line.removeprefix("# ")
        else:
            found.update((cell, text) for text in NUMBER.findall(line))
    return found


@pytest.mark.parametrize("example", COUNTS)
def test_every_printed_number_is_a_figure_of_some_case(example):
    answered = Counter(
        (figure.cell, text)
        for case in cases()
        for figure in case.figures
        if figure.example == example
        for text in figure.text
    )
    assert answered == printed(example)


@pytest.mark.parametrize("example", COUNTS)
def test_the_transcripts_are_complete(example):
    assert printed(example).total() == COUNTS[example]


def everything(case):
    """Arguments, expected outputs and those of the alternatives, and how far each may be off."""
    dtype = (
        "float32"
        if any(str(getattr(x, "dtype", "")) == "float32" for x in case.arguments.values())
        else "float64"
    )
    values = {**case.arguments, **case.expected}
    values |= {
        f"{other.variant}/{name}": x for other in case.alternatives for name, x in other.expected.items()
    }
    errors = budget(case.operation, case.arguments, dtype)
    errors |= {
        f"{other.variant}/{name}": errors[name] for other in case.alternatives for name in other.expected
    }
    return values, errors


FIGURED = [case for case in cases() if case.figures]


@pytest.mark.parametrize("case", FIGURED, ids=str)
def test_the_golden_values_print_as_the_examples_do(case):
    values, errors = everything(case)
    for figure in case.figures:
        assert misprint(figure, values, errors) == ""


@pytest.mark.parametrize("case", FIGURED, ids=str)
def test_a_golden_value_moved_by_a_printed_unit_is_noticed(case):
    values, errors = everything(case)
    for figure in case.figures:
        if figure.statistic != "value" or figure.text[0] == "-inf":
            continue
        unit = 1e-3 if figure.example == "003" else 1e-7
        moved = {**values, figure.of: np.array(values[figure.of]) + max(unit, 1e-7)}
        assert misprint(figure, moved, errors) != "", figure


def test_statistics_of_a_figure():
    values = {"scores": np.array([[1.0, 2.0], [3.0, 4.0]]), "mask": np.array([True, False])}
    shape = Figure("000", "In [1]", "scores", ("2", "2"), statistic="shape")
    assert misprint(shape, values, {}) == ""
    assert "printed 3, got 2" in misprint(replace(shape, text=("3", "2")), values, {})
    assert misprint(Figure("000", "", "scores", ("1.25",), statistic="variance"), values, {}) == ""
    assert misprint(Figure("000", "", "scores", ("1.0", "3.0"), select=(), transposed=True), values, {}) != ""
    assert misprint(Figure("000", "", "scores", ("1.", "3.", "2.", "4."), transposed=True), values, {}) == ""
    assert misprint(Figure("000", "", "mask", ("0.", "1."), statistic="disallowed"), values, {}) == ""


def test_a_whole_number_printed_as_one_is_exact():
    assert misprint(Figure("000", "", "scores", ("8",)), {"scores": np.array([8.4])}, {}) != ""


@pytest.mark.parametrize(("got", "holds"), [(0.81, True), (0.8199, True), (0.82001, False), (0.8099, False)])
def test_a_print_that_breaks_off(got, holds):
    figure = Figure("004", "", "value", ("0.5", "0.81"), cut=True)
    assert (misprint(figure, {"value": np.array([0.5, got, 9.0])}, {}) == "") == holds


def test_budgets_are_small_beside_the_printed_places():
    """So that a figure is not met by an allowance instead of by its digits."""
    for case in FIGURED:
        _, errors = everything(case)
        worst = max(float(np.max(error)) for error in errors.values())
        assert worst < (1e-5 if case.figures[0].example == "003" else 1e-12), case.id
