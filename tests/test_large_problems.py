"""Large problems tell a lost key from rounding: the loss of any allowed key exceeds the budget of its row."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from attnspec import OPERATIONS
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import groups
from attnspec.reference import attention
from attnspec.reference.budget.attention import MASKING, repeat_heads
from attnspec.reference.budget.budget import budget
from attnspec.reference.masking import allowed_keys

#: The files with large problems, and `layouts`, which has some.
_GROUPS = (
    "option of every size", "integers of every size", "bias of another dtype and every size",
    "empty rows of every size", "large masks in pairs", "tile without an allowed key",
    "tiles at one end without an allowed key", "rows of a tile differ", "end at the edge of a tile",
    "ends at the edges of tiles", "maximum over tiles", "largest number among the values",
    "index past 16 bits", "strides of every size", "strides of options", "option over four tiles",
    "large options of scores in pairs", "whole tiles of queries", "option past every count",
    "integers of many entries", "groups of any size",
)  # fmt: skip
#: The scores of a tile are far above those of another one, so that only some keys count.
_STEEP = "steep scores over tiles"


def of_groups(*names):
    """The cases of some groups in float32."""
    return [
        item
        for group in groups()
        if group.name.partition(":")[0] in names
        for item in group.items()
        if not isinstance(item, Relation) and item.dtype == "float32"
    ]


CASES = of_groups(*_GROUPS)
_BY_GROUP = [[case for case in CASES if case.group.partition(":")[0] == name] for name in _GROUPS]
SAMPLE = [case for cases in _BY_GROUP for case in Random(5).sample(cases, min(len(cases), 5))]
_OF_OPTIONS = ("large masks", "large options", "option of", "option over", "tile without")
MASKED = [case for case in CASES if case.group.startswith(_OF_OPTIONS)]


def losses(case):
    """Return by how many budgets the row changes that loses a key, for each allowed pair, and the pairs."""
    given = in_dtype(case.arguments, "float64")
    kept = np.asarray(given.pop("dropout_mask", True)) / (1 - given.pop("dropout_rate", 0.0))
    _, weights = attention(**given, return_weights=True)
    mask = {name: x for name, x in given.items() if name in MASKING}
    allowed = np.broadcast_to(allowed_keys(weights.shape, **mask), weights.shape)
    value = repeat_heads(given["value"], weights.shape)
    output = (kept * weights) @ value
    budgets = budget("attention", case.arguments, case.dtype)["output"]
    # A row that loses its only key is 0.
    rest = np.where(weights < 1, 1 - weights, np.inf)
    found = np.zeros(weights.shape)
    for column in range(value.shape[-1]):
        whole = output[..., column, None]
        less = (whole - kept * weights * value[..., None, :, column]) / rest
        found = np.maximum(found, np.abs(less - whole) / (budgets[..., column, None] + 1e-300))
    return found, allowed


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_key_that_is_lost_shows(case):
    """Each allowed key of each row, those at the edges of tiles and the last one among them."""
    found, allowed = losses(case)
    assert (found[allowed] > 1).all()


@pytest.mark.parametrize("case", of_groups(_STEEP), ids=lambda case: case.name)
def test_a_key_that_is_lost_shows_where_scores_are_steep(case):
    """Each key of the tile with the largest scores."""
    found, allowed = losses(case)
    tiles = np.arange(allowed.shape[-1]) // 64
    if ": far" in case.group:  # all scores are alike
        assert (found[allowed] > 1).all()
        return
    highest = tiles == tiles[-1 if ": rises" in case.group else 0]
    assert allowed[..., highest].all()
    assert (found[..., highest] > 1).all()
    assert (found[..., ~highest] < 1).any()


def test_there_is_a_case_of_each_group():
    assert all(_BY_GROUP)
    assert of_groups(_STEEP)
    # With large scores a few keys take all of a row, and the loss of another one does not show.
    case = next(case for case in CASES if case.group == "option of every size: nothing")
    found, allowed = losses(replace(case, arguments=case.arguments | {"scale": 40.0}))
    assert (found[allowed] < 1).mean() > 0.3


@pytest.mark.parametrize("case", Random(6).sample(MASKED, 70), ids=lambda case: case.name)
def test_each_option_matters(case):
    """Alone and in pairs: the result without it is another one."""
    whole = attention(**in_dtype(case.arguments, "float64"))
    own = budget("attention", case.arguments, case.dtype)["output"]
    for name in set(case.arguments) - set(OPERATIONS["attention"].arrays):
        without = OPERATIONS["attention"].together(name)
        less = {key: x for key, x in case.arguments.items() if key not in without}
        allowed = own + budget("attention", less, case.dtype)["output"]
        assert (np.abs(attention(**in_dtype(less, "float64")) - whole) > 2 * allowed).any(), name
