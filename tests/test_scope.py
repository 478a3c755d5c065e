"""The table of forms on the page scope agrees with the operations, the vectors and the levels."""

import re
from functools import cache

import pytest

from attnspec import OPERATIONS, cases, levels
from attnspec.schema import VECTORS

BEGIN, END = "### Form by form", "Forms do not combine"
#: The columns that are read.
FORM, OPERATION, STORED, LEVEL, GRADIENTS = 0, 1, 3, 5, 6


@cache
def rows():
    page = (VECTORS.parent / "scope.md").read_text(encoding="utf-8")
    lines = [line for line in page.split(BEGIN)[1].split(END)[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def operations_in(cell):
    return {name for name in re.findall(r"`(\w+)`", cell) if name in OPERATIONS}


def test_every_operation_is_in_the_table():
    named = {name for row in rows() for at in (OPERATION, GRADIENTS) for name in operations_in(row[at])}
    assert named == set(OPERATIONS)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[FORM])
def test_the_vectors_of_a_form_hold_its_operations(row):
    files = re.findall(r"vectors/(\w+)\.json", row[STORED])
    held = {case.operation for name in files for case in cases() if case.chapter == name}
    assert operations_in(row[OPERATION]) <= held or not files


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[FORM])
def test_the_levels_of_a_form_are_levels(row):
    assert set(re.findall(r"levels\.md#([\w-]+)", row[LEVEL])) <= {level.name for level in levels()}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[FORM])
def test_a_form_has_gradients_exactly_if_there_is_an_operation_for_them(row):
    for operation in operations_in(row[OPERATION]):
        if (backward := f"{operation}_vjp") in OPERATIONS and row[GRADIENTS] != "not covered":
            assert backward in row[GRADIENTS] or re.search(r"GRAD-\d+", row[GRADIENTS])
        elif not operation.endswith("_vjp"):
            assert operations_in(row[GRADIENTS]) == set()
