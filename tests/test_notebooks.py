"""The page of the five notebooks names every cell that prints a number, and the vectors that hold it."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

import attnspec
from attnspec import cases, find_case

PAGE = (Path(attnspec.__file__).parent / "notebooks.md").read_text(encoding="utf-8")
EXAMPLES = ("000", "001", "002", "003", "004")


def section(example):
    """The part of the page on one example."""
    return re.search(rf"^## {example}: .*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)[0]


def rows(example):
    """The vectors that stand in the row of each cell."""
    table = re.findall(r"^\| `(In [^`]*)` \|(.*)\|$", section(example), re.MULTILINE)
    assert len({cell for cell, _ in table}) == len(table)
    return {
        cell: set(re.findall(r"`([a-z]+-\d[a-z0-9-]*)`", rest.rpartition(" |")[2])) for cell, rest in table
    }


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_cell_that_prints_numbers_names_the_vectors_that_hold_them(example):
    held = defaultdict(set)
    for case in cases():
        for figure in case.figures:
            if figure.example == example:
                held[figure.cell].add(case.id)
    said = rows(example)
    assert {cell: said.get(cell) for cell in held} == held


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_vector_of_an_example_is_named_in_its_section(example):
    of_it = {case.id for case in cases() if re.search(rf"-{example}(-|$)", case.id)}
    assert of_it
    assert of_it - set(re.findall(r"`([^`]*)`", section(example))) == set()


def test_the_vectors_that_are_named_exist():
    for name in re.findall(r"`([a-z]+-00\d[a-z0-9-]*)`", PAGE):
        assert find_case(name)
