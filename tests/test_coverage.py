"""Every option meets every size class, because kernels implement each option in each of their paths."""

import numpy as np
import pytest
from tests_support import whole_suite

from attnspec import OPERATIONS
from attnspec.conformance.suite import items
from attnspec.conformance.suite.paths import SIZES, chapter
from attnspec.conformance.suite.problem import problem_of
from tools.coverage import (
    FORMS,
    PAIR_CLASSES,
    SIZE_CLASSES,
    covered_forms,
    missing_forms,
    sizes_of,
    why_impossible,
)

ALL = whole_suite()
#: Of each group of large calls, and of all others together.
NAMES = [
    group.name for group in chapter if "every size" in group.name or group.name.startswith("large masks")
]
BY_GROUP = {name: covered_forms(item for item in ALL if item.group == name) for name in NAMES}
OTHERS = covered_forms(item for item in ALL if item.group not in NAMES)


def test_nothing_is_missing():
    assert missing_forms(ALL) == []


@pytest.mark.parametrize("group", NAMES)
def test_a_group_that_is_removed_is_missed(group):
    others = OTHERS.union(*(found for name, found in BY_GROUP.items() if name != group))
    assert [one for one in missing_forms([]) if one not in others]


def test_the_sizes_have_every_class():
    found = [sizes_of(problem_of(shape, "float32", 1).arguments) for shape in SIZES]
    assert [name for name, holds in SIZE_CLASSES.items() if not any(map(holds, found))] == []


def test_every_argument_of_attention_has_a_form():
    """But the flags that ask for outputs, which the judge gives in every call."""
    form = OPERATIONS["attention"]
    given = {name for one in FORMS.values() for name in one.given}
    assert given == set(form.options) - set(form.names("asks"))


def test_what_is_impossible_is_little_and_has_a_reason():
    reasons = [why_impossible(form, size_class) for form in FORMS for size_class in SIZE_CLASSES]
    assert 0 < sum(map(bool, reasons)) < len(reasons) / 20
    assert why_impossible("mask", "keys past 64") == ""
    assert why_impossible("is_causal and mask", "one query, more than 128 keys")
    assert not why_impossible("is_causal and mask", next(iter(PAIR_CLASSES)))


def test_a_call_with_a_further_option_is_not_the_call_of_one_alone():
    (item,) = items(names=["errors-option-of-every-size-mask-1-float32"])
    item.arguments["scale"] = 0.5
    assert not any(form == "mask" for form, *_ in covered_forms([item]))
    del item.arguments["scale"]
    item.arguments["mask"] = np.ones((1, 1), bool)
    assert not any(form == "mask" for form, *_ in covered_forms([item]))
