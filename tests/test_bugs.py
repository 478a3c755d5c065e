"""Functions with realistic bugs: a report of one page names the cause first.

A few of them, as all take ten minutes: ``python -m bugs.measure`` here measures the others too.
"""

import pytest
from bugs import BUGS
from bugs.measure import PAGE, measure
from test_cli import _here  # noqa: F401 - the modules are found here

from attnspec import find_rule
from attnspec.conformance.gallery import entry
from attnspec.conformance.run import run

#: One of each kind: an option, a row, a number, a tile, heads, a dtype, memory, chance, an error, a crash.
SHOWN = (
    "bugs.masks:causal_bottom_right",
    "bugs.masks:filled_with_minus_1e9",
    "bugs.scores:scale_zero_is_default",
    "bugs.sums:remainder_dropped",
    "bugs.sums:heads_tiled",
    "bugs.effects:output_in_float32",
    "bugs.effects:mask_of_the_first_call",
    "bugs.effects:noisy",
    "bugs.effects:more_queries_refused",
    "bugs.effects:crashes_on_one_shape",
)
#: How many of the reproductions of a report run. A bug may have 35 blocks.
REPRODUCED = 2
#: Twins that are asked in another order than the function was, so that they remember other calls.
NOT_NAMED = ("bugs.effects:mask_of_the_first_call",)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.place in SHOWN], ids=lambda bug: bug.place)
@pytest.mark.sample(1)
def test_a_bug_is_found_and_told_in_a_page(bug, monkeypatch):
    # What is named must not depend on what else the machine does.
    monkeypatch.setattr(run, "_DIAGNOSIS_LIMIT", 600.0)
    found = measure(bug, reproduced=REPRODUCED)
    assert found.found
    assert found.first, found.rules
    assert found.lines <= PAGE
    assert found.numbers <= 3000, "what takes several calls takes more"
    assert found.failing == (), "each reproduction shows what it is printed for"
    assert found.named == (bool(bug.twins) and bug.place not in NOT_NAMED), found.diagnosis


def test_there_are_thirty_and_more_whose_rules_and_twins_exist():
    assert len(BUGS) >= 30
    for bug in BUGS:
        assert [find_rule(rule).id for rule in bug.culprits] == list(bug.culprits)
        assert [entry(twin).name for twin in bug.twins] == list(bug.twins)
