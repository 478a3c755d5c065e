"""The budgets are those of the formulas on the page in every class, and each number of a formula counts."""

import re

import numpy as np
import pytest
from formulas import CHANGES, profiles, sections
from written_budgets import CALLS, KINDS, OTHERS, PROBLEMS, USES

from attnspec.reference.budget.arithmetic import PROFILES


def test_the_page_has_the_profiles_of_the_code():
    assert [*profiles()] == [
        (name, dtype) for name, dtypes in PROFILES.items() for dtype in dtypes if is_own(name, dtype)
    ]


def is_own(name, dtype):
    """Whether a profile is not `matrix` in half precision, which those of float32 imply there."""
    return name == "matrix" or dtype == "float32" or PROFILES[name][dtype] != PROFILES["matrix"][dtype]


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kind", KINDS, ids=":".join)
def test_a_budget_is_that_of_the_page(name, kind):
    for found, written in PROBLEMS[name](*kind):
        np.testing.assert_allclose(found, written, rtol=1e-9, atol=0)


#: What a formula may say instead: another number, another operation.
_CHANGES = (
    (re.compile(r"(?<![\w.*])\d+(?:\.\d+)?(?![\w.*])(?<!e-\d)"), lambda found: str(float(found[0]) + 1)),
    (re.compile(r"(?<=2\*\*-)\d+"), lambda found: str(int(found[0]) + 1)),
    (re.compile(r" \+ "), lambda _: " - "),
    (re.compile(r" - "), lambda _: " + "),
    (re.compile(r" \* "), lambda _: " / "),
    (re.compile(r"\bmax\("), lambda _: "min("),
    (re.compile(r"\bmin\("), lambda _: "max("),
    (re.compile(r"\babs\("), lambda _: "("),
)


def changed_formulas():
    """Each formula with each of its numbers and operations changed, one at a time."""
    for heading, blocks in sections().items():
        for _, _, _, text in (formula for lines in blocks for formula in lines):
            for pattern, change in _CHANGES:
                for found in pattern.finditer(text):
                    yield heading, text, text[: found.start()] + change(found) + text[found.end() :]


def is_seen(heading):
    """Whether a budget that needs a section differs from that of the code, or has none any more."""
    for kind in (*KINDS[-1:], *KINDS):
        for name in USES.get(heading, [*CALLS, *OTHERS]):
            try:
                if not all(np.allclose(*pair, rtol=1e-9, atol=0) for pair in PROBLEMS[name](*kind)):
                    return True
            except (ArithmeticError, ValueError, IndexError, KeyError, TypeError):
                return True
    return False


#: Bounds that no call with few keys reaches, and a divisor where there is one pair, whose exponent is 0.
UNREACHED = ("700", "1 / 2)", "max(R - 2")


@pytest.mark.exhaustive
def test_every_number_and_every_operation_of_a_formula_counts(monkeypatch):
    unseen = []
    for heading, text, other in changed_formulas():
        with monkeypatch.context() as patch:
            patch.setitem(CHANGES, text, other)
            if not any(bound in text for bound in UNREACHED) and not is_seen(heading):
                unseen.append((heading, other))
    assert unseen == []
