"""Relations between calls and earlier ones: each holds for the portable source, and has calls that differ.

`test_relations` shows that an implementation with a memory fails.
"""

from dataclasses import replace
from functools import wraps
from itertools import pairwise

import numpy as np
import pytest

from attnspec import Case
from attnspec.backends import BackendError, implementation, load
from attnspec.backends.check import check_backend
from attnspec.backends.user.function import backend_of
from attnspec.backends.user.settings import Settings
from attnspec.conformance import check
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.memory import in_any_surroundings
from attnspec.conformance.suite import memory
from attnspec.conformance.verdict import Difference
from attnspec.reference.budget.budget import budget

PORTABLE = load("numpy-portable")
right = PORTABLE.attention
ITEMS = {item.name: item for group in memory.chapter for item in group.items()}
ARRAYS = ("query", "key", "value")


@pytest.mark.parametrize("change", ["raises", "returns", "nothing"])
def test_a_call_may_not_depend_on_what_lies_around_its_arrays(change):
    def attention(query, key, value):
        before = query.base[0, 0, 0]  # outside of the array
        if change == "raises" and before > 0:
            raise ValueError("query: expected another neighbour")
        return right(query, key, value) + before * (change == "returns")

    arrays = {name: np.ones((2, 3, 4)) for name in ARRAYS}
    case = Case("errors-own", "", "errors", "attention", ("ERR-19",), arrays, group="own")
    found = in_any_surroundings(replace(PORTABLE, attention=attention), (case,))
    assert (found is None) == (change == "nothing")
    assert ("raises with some" in str(found)) == (change == "raises")


def tell_apart(one, other):
    """Whether two calls have different results, by more than their budgets."""
    found = [expected(case) for case in (one, other)]
    name = next(iter(found[0]))
    allowed = [budget(case.operation, case.arguments, case.dtype)[name] for case in (one, other)]
    if allowed[0].shape != allowed[1].shape:
        return True
    return isinstance(compare(name, found[0][name], found[1][name], sum(allowed), "float64"), Difference)


@pytest.mark.parametrize("group", {item.group: 0 for item in ITEMS.values() if "often" not in item.group})
def test_each_group_has_calls_with_other_results(group):
    """So that an implementation that keeps what belongs to one call fails in another."""
    own = [item.calls for item in ITEMS.values() if item.group == group]
    legal = [[case for case in calls if case.misuse is None] for calls in own]
    assert any(tell_apart(*pair) for calls in legal for pair in pairwise(calls))


def test_the_number_of_keys_changes_in_both_directions():
    pairs = [ITEMS[f"errors-sizes-in-turn-nothing-{n}-float32"].calls[:2] for n in (1, 2)]
    keys = [[call.arguments["key"].shape[-2] for call in pair] for pair in pairs]
    assert [before > after for before, after in keys] == [True, False]


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.sample(20)
def test_the_portable_source_has_no_memory(name):
    verdict = judge(PORTABLE, ITEMS[name])
    assert (verdict.status, verdict.difference, verdict.reason) == ("pass", None, "")


@pytest.mark.exhaustive
def test_a_scratch_buffer_of_all_threads_is_noticed_every_time():
    (item,) = (one for one in ITEMS.values() if one.group == "calls of one shape from threads")
    backend = entry("exponentials_in_scratch_of_all_threads").backend()
    assert {judge(backend, item).status for _ in range(5)} == {"fail"}


def test_arrays_that_cannot_be_written_are_unsupported():
    def attention(query, key, value):
        return right(query, key, value)

    @wraps(PORTABLE.array_library.to_library)
    def fixed(array, device):
        made = PORTABLE.array_library.to_library(array, device)
        made.flags.writeable = False
        return made

    library = replace(PORTABLE.array_library, to_library=fixed)
    backend = replace(PORTABLE, attention=attention, array_library=library)
    verdict = judge(backend, ITEMS["errors-other-numbers-in-the-same-arrays-key-1-float32"])
    assert (verdict.status, verdict.reason) == ("unsupported", "arrays of numpy cannot be written")


def test_numbers_are_written_into_the_arrays_that_the_function_got_before():
    seen = []

    @wraps(right)
    def attention(query, key, value, **options):
        seen.append((key, options["mask"], key.copy(), options["mask"].copy()))
        return right(query, key, value, **options)

    item = ITEMS["errors-other-numbers-in-the-same-arrays-mask-1-float32"]
    verdict = judge(replace(PORTABLE, attention=attention), item)
    assert verdict.status == "pass"
    assert len(seen) == 3
    for place in range(2):
        assert len({id(one[place]) for one in seen}) == 1
    assert not np.array_equal(seen[0][3], seen[1][3])
    assert np.array_equal(seen[0][3], seen[2][3])


@pytest.mark.parametrize("concurrent", [True, False])
def test_a_function_that_must_not_be_called_concurrently_says_so(concurrent, tmp_path):
    @implementation(concurrent=concurrent)
    def attention(query, key, value):
        return right(query, key, value)

    name = "errors-calls-from-threads-nothing-1-float32"
    assert check(attention, cases=["softmax-002-float32", name]).good
    backend = backend_of("mine", attention, Settings(), "numpy")
    assert backend.concurrent is concurrent
    assert judge(backend, ITEMS[name]).status == ("pass" if concurrent else "unsupported")
    (tmp_path / "mine.py").write_text("def attention(query, key, value):\n    return query\n")
    said = f'function = "{tmp_path}/mine.py:attention"\nconcurrent = {str(concurrent).lower()}\n'
    (tmp_path / "attnspec.toml").write_text(f"[backend]\n{said}")
    assert load(str(tmp_path)).concurrent is concurrent


@pytest.mark.parametrize("concurrent", [0, "no", None])
def test_what_is_said_about_threads_is_true_or_false(concurrent):
    with pytest.raises(BackendError, match="concurrent: expected true or false, got"):
        implementation(concurrent=concurrent)(right)
    with pytest.raises(BackendError, match="concurrent: expected True or False, got"):
        check_backend("p", replace(PORTABLE, concurrent=concurrent))
