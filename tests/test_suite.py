"""The suite as data: names, seeds, parts, groups; its problems show bugs, and have every option and size."""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests_support import fitted_cases, whole_suite

from attnspec import CHAPTERS, OPERATIONS, Case, SpecError, rules
from attnspec.backends.constraints import Constraints
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.suite import find, groups, items, require
from attnspec.conformance.suite.errors import SKIPPED
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.paths import SIZES, chapter
from attnspec.conformance.suite.problem import MASKED, problem_of
from attnspec.conformance.verdict import Difference
from attnspec.reference.budget.budget import budget
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
RULES = {rule.id for rule in rules()}


def prints(made):
    """The fingerprints of the calls of each item, by name."""
    return {item.name: tuple(case.fingerprint for case in item.calls) for item in made}


def test_names_are_unique_and_end_with_the_dtype():
    assert [name for name, count in Counter(item.name for item in ALL).items() if count > 1] == []
    for item in ALL:
        assert item.rules
        assert item.name == f"{item.id}-{item.dtype}"
        assert item.chapter in CHAPTERS
        assert item.name.startswith(f"{item.chapter}-")


@pytest.mark.exhaustive
def test_the_suite_is_the_same_each_time_and_its_quick_part_has_other_dtypes():
    again = prints(items())
    assert again == prints(ALL)
    assert list(again) == [item.name for item in ALL]
    quick, whole = ({}, {})
    for made, dtypes in ((items(quick=True), quick), (ALL, whole)):
        for item in made:
            dtypes.setdefault((item.chapter, item.group), []).append(item.dtype)
    large = [x for x, dtypes in whole.items() if x[1] and len(dtypes) > 6 and len(set(dtypes)) > 1]
    assert len(large) > 50
    assert [group for group in large if len(set(quick[group])) < 2] == []


def test_a_seed_draws_other_problems_under_the_same_names():
    fixed = {item.name: item for item in ALL if item.group}
    drawn = {item.name: item for item in items(seed=1) if item.group}
    assert list(drawn) == list(fixed)
    # Calls that must be rejected, and those of ones alone, have nothing to be drawn.
    before, after = (
        prints(item for item in made.values() if isinstance(item, Relation) or item.misuse is None)
        for made in (fixed, drawn)
    )
    changed = [name for name in before if before[name] != after.get(name)]
    assert len(changed) > 0.5 * len(before), f"{len(changed)} of {len(before)}"


def test_a_seed_draws_the_same_again_and_no_golden_vectors():
    names = [item.id for item in ALL if not item.group and item.chapter == "masking"]
    assert prints(items(seed=1, names=names)) == prints(items(names=names))
    names = [item.name for item in ALL if item.group == "windows: causal"]
    first, second, other = (prints(items(seed=seed, names=names)) for seed in (1, 1, 2))
    assert list(first) == names
    assert first == second != other


def work(case, *, judged):
    """The multiplications of a call, or those of its budget if its weights are judged by an identity."""
    query, key, value = (case.arguments.get(name) for name in ("query", "key", "value"))
    if not all(isinstance(array, np.ndarray) and array.ndim > 1 for array in (query, key, value)):
        return 0
    probed = judged and case.operation == "attention" and (not case.outputs or "weights" in case.outputs)
    width = max(query.shape[-1] + value.shape[-1], key.shape[-2] if probed else 0)
    return query.size // query.shape[-1] * key.shape[-2] * width if query.size else 0


def test_no_case_takes_half_a_second():
    """On one core, 7e7 take 0.4 s in a judged call, with its budget; 2.3e8 take 0.05 s in a relation."""
    calls = {item.name: work(item, judged=True) for item in ALL if isinstance(item, Case)}
    assert {name: count for name, count in calls.items() if count > 7e7} == {}
    relations = [item for item in ALL if isinstance(item, Relation)]
    relations = {item.name: sum(work(call, judged=False) for call in item.calls) for item in relations}
    assert {name: count for name, count in relations.items() if count > 5e8} == {}
    assert max(calls.values()) > 5e7, "it is counted"


@pytest.mark.parametrize("item", Random(0).sample(ALL, 6), ids=lambda item: item.name)
def test_a_case_is_found_by_its_name(item):
    found = find(item.name)
    assert found.name == item.name
    assert prints([found]) == prints([item])
    by_id = [one.name for one in items(names=[item.id])]
    assert item.name in by_id
    assert {one.rpartition("-")[0] for one in by_id} == {item.id}


@pytest.mark.parametrize("name", ["masking-empty", "no-such-case", "masking-causal-", ""])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(SpecError, match="expected an id such as"):
        require(name)


def test_the_quick_part_touches_every_rule_and_is_a_part():
    quick = tuple(items(quick=True))
    assert {rule for item in quick for rule in item.rules} == RULES
    names = [item.name for item in ALL]
    assert {item.name for item in quick} < set(names)
    assert len(quick) < 0.35 * len(names)
    assert {item.dtype for item in quick} >= {"float16", "bfloat16", "float32", "float64"}
    golden = [item for item in quick if item.id == "softmax-lse-empty"]
    assert len(golden) == 1, "one dtype of a vector that is of no rule of dtypes"


def test_every_group_yields_cases_of_its_rules():
    made = Counter(item.group for item in ALL)
    assert len({group.id for group in groups()}) == len(groups())
    for group in groups():
        assert made[group.name], group.id
        assert set(group.rules) <= RULES, group.id
        assert group.title.endswith("."), group.id
        assert group.operation in OPERATIONS, group.id
    assert {rule for item in ALL for rule in item.rules} == RULES
    assert {group.chapter for group in groups()} == set(CHAPTERS)
    chosen = tuple(items(rules=["SOFT-7"]))
    assert chosen
    assert {item.name for item in chosen} == {item.name for item in ALL if "SOFT-7" in item.rules}


def test_nothing_in_the_suite_can_be_changed_by_a_call():
    """A golden vector is read-only; a generated problem is made anew each time."""
    (name,) = Random(1).sample([item.name for item in ALL if isinstance(item, Case) and item.group], 1)
    one, other = find(name), find(name)
    for key, array in one.arguments.items():
        assert not isinstance(array, np.ndarray) or not np.shares_memory(array, other.arguments[key])


def tell_apart(one, other):
    """Whether two calls must give what no correct implementation gives for both, by the second oracle."""
    first, second = expected(replace(one, expected={})), expected(replace(other, expected={}))
    budgets = [budget(case.operation, case.arguments, case.dtype) for case in (one, other)]
    outputs = ("output", "weights", "lse")
    both = {name: budgets[0][name] + budgets[1][name] for name in outputs}
    found = (compare(name, first[name], second[name], both[name], "float64") for name in outputs)
    return any(isinstance(difference, Difference) for difference in found)


def test_every_argument_of_attention_is_an_option_and_has_a_form():
    # But those that ask for an output: a new one is drawn beside every other, and searched.
    problem = problem_of(MASKED[0], "float32", 1)
    names = {name for option in OPTIONS for part in draw_option(problem, option) for name in part}
    form = OPERATIONS["attention"]
    assert names == set(form.options) - set(form.names("asks"))
    # But the flags that ask for outputs, which the judge gives in every call.
    form = OPERATIONS["attention"]
    given = {name for one in FORMS.values() for name in one.given}
    assert given == set(form.options) - set(form.names("asks"))


EFFECTS = [item for item in ALL if item.name.startswith("errors-option-has-an-effect-")]
PAIRS = [item for item in ALL if item.name.startswith("errors-options-in-pairs-")]


def by_group(found):
    return {
        group: [item for item in found if item.group == group and item.dtype == "float32"]
        for group in dict.fromkeys(item.group for item in found)
    }


@pytest.mark.parametrize("group", by_group(EFFECTS))
def test_an_option_matters_in_its_problem(group):
    (relation,) = by_group(EFFECTS)[group]
    assert tell_apart(*relation.calls)


@pytest.mark.parametrize("group", by_group(PAIRS))
def test_both_options_of_a_pair_matter(group):
    found = by_group(PAIRS)[group]
    assert len(found) == 2
    one, other = group.removeprefix("options in pairs: ").split(" and ")
    for case in found:
        for name in (one, other):
            less = without(case, name)
            assert less is None or tell_apart(case, less), f"{case.name}: {name} changes nothing"


def test_options_beside_a_window_matter_in_a_quick_run_of_what_is_always_causal():
    always = Constraints(axes=4, always={"is_causal": True})
    rules = ("SOFT-5", "MASK-9", "SCORE-5")
    quick = {item.group: item for item in fitted_cases(always, *rules, quick=True)}
    for option in ("sinks", "key_lengths", "softcap"):
        case = quick[f"option beside a window: {option}"]
        assert {*case.arguments} - {"query", "key", "value"} == {"is_causal", "window", option}
        assert all(tell_apart(case, without(case, name)) for name in (option, "window"))


#: What an option adds that is not named as it is.
_ARGUMENTS = {
    "segments": ("query_segment_ids", "key_segment_ids"),
    "dropout": ("dropout_mask", "dropout_rate"),
    "positions": ("query_positions", "key_positions"),
}


def without(case, option):
    """The call less one option; None where that is no call, as for shared heads."""
    if option == "grouped":
        return None
    names = _ARGUMENTS.get(option, (option,))
    less = {name: thing for name, thing in case.arguments.items() if name not in names}
    if option == "is_causal":
        less.pop("query_offset", None) if "window" not in less else None
    return replace(case, arguments=less)


def test_what_is_skipped_is_a_problem_of_the_suite():
    known = {f"{group.chapter}: {group.name}" for group in groups()}
    assert {group for group, _ in SKIPPED} <= known
    assert all(number in (0, 1) and skipped > 0 for (_, number), skipped in SKIPPED.items())


#: Rules on what an option does, which a call without it passes without being asked.
OF_OPTIONS: dict[str, set[str]] = {"SCORE-3": {"scale"}, "MASK-2": {"bias"}}
for one in OPERATIONS["attention"].arguments.values():
    if one.name in OPERATIONS["attention"].options and one.name != "scale" and "asks" not in one.role:
        OF_OPTIONS.setdefault(one.rule, set()).add(one.name)


@pytest.mark.parametrize("rule", sorted(OF_OPTIONS))
def test_a_rule_on_an_option_is_cited_by_calls_that_have_it(rule):
    """A function without the option would pass the rule for nothing."""
    for item in ALL:
        calls = [case for case in item.calls if case.operation in ("attention", "scores")]
        if rule in item.rules and calls:
            assert any(OF_OPTIONS[rule] & {*case.arguments} for case in calls), item.name


def test_grouped_heads_are_cited_by_calls_that_have_them():
    for item in ALL:
        calls = [case for case in item.calls if case.operation == "attention"]
        if "HEAD-1" in item.rules and calls:
            shapes = [[case.arguments[name].shape[-3:-2] for name in ("query", "key")] for case in calls]
            assert any(heads != shared for heads, shared in shapes), item.name


def test_weights_that_are_not_returned_cost_few_scores():
    """A call shows the weights of as many keys as values are wide: 370 calls of 740 keys took 30 s."""
    for case in ALL:
        single = isinstance(case, Case) and not case.refusal
        judged = single and (not case.outputs or "weights" in case.outputs)
        if judged and case.operation == "attention" and case.arguments["value"].shape[-1]:
            keys, depth = case.arguments["value"].shape[-2:]
            rows = case.arguments["query"].size // case.arguments["query"].shape[-1]
            assert -(-keys // depth) * rows * keys <= 10**7, case.name


ALL = whole_suite()
#: Of each group of large calls, and of all others together.
NAMES = [x.name for x in chapter if "every size" in x.name or x.name.startswith("large masks")]
BY_GROUP = {name: covered_forms(item for item in ALL if item.group == name) for name in NAMES}
OTHERS = covered_forms(item for item in ALL if item.group not in NAMES)


def test_forms_and_sizes_are_covered():
    assert missing_forms(ALL) == []
    found = [sizes_of(problem_of(shape, "float32", 1).arguments) for shape in SIZES]
    assert [name for name, holds in SIZE_CLASSES.items() if not any(map(holds, found))] == []
    reasons = [why_impossible(form, size_class) for form in FORMS for size_class in SIZE_CLASSES]
    assert 0 < sum(map(bool, reasons)) < len(reasons) / 20
    assert why_impossible("mask", "keys past 64") == ""
    assert why_impossible("is_causal and mask", "one query, more than 128 keys")
    assert not why_impossible("is_causal and mask", next(iter(PAIR_CLASSES)))


@pytest.mark.parametrize("group", NAMES)
def test_a_group_that_is_removed_is_missed(group):
    others = OTHERS.union(*(found for name, found in BY_GROUP.items() if name != group))
    assert [one for one in missing_forms([]) if one not in others]


def test_a_call_with_a_further_option_is_not_the_call_of_one_alone():
    (item,) = items(names=["errors-option-of-every-size-mask-1-float32"])
    item.arguments["scale"] = 0.5
    assert not any(form == "mask" for form, *_ in covered_forms([item]))
    del item.arguments["scale"]
    item.arguments["mask"] = np.ones((1, 1), bool)
    assert not any(form == "mask" for form, *_ in covered_forms([item]))
