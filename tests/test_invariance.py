"""The chapter on invariance: each relation holds for sums in one order, and fails if the order changes."""

import threading
import warnings
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest

from attnspec import claimable, rules
from attnspec.backends import load
from attnspec.backends.constraints import Constraints
from attnspec.conformance.gallery import correct_entries, entry, invariance
from attnspec.conformance.gallery.entry import entries_of
from attnspec.conformance.judge.comparison import same_bits
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.bits import ALL, Part, same_as_the_whole
from attnspec.conformance.run.expected_values import chapters
from attnspec.conformance.suite import groups, items
from attnspec.conformance.suite.group import Calls, Group

#: In one dtype: an entry that breaks a rule breaks it in every dtype.
OF_CHAPTER = [group for group in groups() if group.chapter == "invariance"]
ITEMS = {item.name: item for group in OF_CHAPTER for item in group.items() if item.dtype == "float32"}
PORTABLE = load("numpy-portable")


def test_what_can_be_claimed_has_a_relation_in_two_dtypes_and_no_expected_values():
    optional = {rule.id for rule in rules() if rule.level == "MAY"}
    assert {rule.id for rule in rules() if rule.chapter == "invariance"} < optional < {*claimable()}
    assert {item.rules[0] for item in ITEMS.values()} == optional
    assert all(len(item.rules) == 1 for item in ITEMS.values())
    for group in OF_CHAPTER:
        assert {item.dtype for item in group.items()} == {"float32", "bfloat16"}
    assert [*chapters("invariance")] == []


@pytest.mark.parametrize("name", ITEMS)
def test_sums_in_one_order_keep_every_relation(name):
    for one in (one for one in correct_entries() if one.claims):
        verdict = judge(one.backend(), ITEMS[name])
        assert (verdict.status, verdict.difference, verdict.reason) == ("pass", None, "")


def test_a_wrong_entry_is_right_to_within_the_budget():
    """It is the bits alone that move, but for what threads and kept results do to each other."""
    part = list(items(names=["softmax-002", "masking-empty-last", "heads-grouped"]))
    others = {"scratch_shared_by_threads", "output_written_again"}
    for one in entries_of(invariance):
        if one.name not in others and one.rule in claimable():
            assert {judge(one.backend(), item).status for item in part} == {"pass"}, one.name


def test_threads_are_in_the_function_at_the_same_time_and_leave_no_trace():
    inside, together = set(), threading.Event()

    def attention(query, key, value):
        inside.add(threading.get_ident())
        if len(inside) > 1:
            together.set()
        if threading.current_thread() is not threading.main_thread():
            together.wait(60)
        inside.discard(threading.get_ident())
        return PORTABLE.attention(query, key, value)

    before = list(warnings.filters)
    verdict = judge(replace(PORTABLE, attention=attention), ITEMS["invariance-threads-1-float32"])
    assert verdict.status == "pass"
    assert together.is_set()
    assert warnings.filters == before


def test_an_error_in_a_thread_is_one_of_the_call():
    main = threading.get_ident()

    def attention(query, key, value):
        if threading.get_ident() != main:
            raise RuntimeError("not from here")
        return PORTABLE.attention(query, key, value)

    backend = replace(PORTABLE, attention=attention)
    item = ITEMS["invariance-threads-1-float32"]
    assert judge(backend, item).status == "unsupported", "a MAY"
    claimed = judge(replace(backend, claims=("INV-8",)), item)
    assert (claimed.status, claimed.raised.message) == ("error", "not from here")


def test_weights_are_not_asked_for():
    called = []

    def attention(query, key, value, *, return_weights=False, return_lse=False):
        called.append((return_weights, return_lse))
        return PORTABLE.attention(query, key, value, return_lse=return_lse)

    assert judge(replace(PORTABLE, attention=attention), ITEMS["invariance-place-in-the-batch-1-float32"])
    assert set(called) == {(False, True)}


def test_a_claim_of_num_10_is_not_about_calls_that_ask_for_weights():
    @wraps(PORTABLE.attention)
    def in_two_ways(query, key, value, *, return_weights=False, **options):
        results = PORTABLE.attention(query, key, value, return_weights=return_weights, **options)
        if not return_weights or len(query) < 2:
            return results
        return (np.nextafter(results[0], np.float32(9)), *results[1:])

    backend = replace(PORTABLE, attention=in_two_ways, claims=("NUM-10",))
    found = [item for group in groups() if group.rules == ("NUM-10",) for item in group.items()]
    statuses = [judge(backend, item).status for item in found if item.dtype == "float32"]
    assert len(statuses) >= 3
    assert {*statuses} == {"pass"}


def test_the_rows_that_are_compared_are_those_that_are_named():
    """The function of a relation is asked of a call and its last rows, and of others than these."""
    problem = {
        name: np.random.default_rng(number).normal(size=(2, 2, 4, 8))
        for number, name in enumerate(("query", "key", "value"))
    }
    chunk = problem | {"query": problem["query"][..., 2:, :]}

    def found(rows):
        def make(_draw):
            part = Part(whole=(ALL, ALL, rows))
            yield Calls((problem, chunk), same_as_the_whole([part]), live=True, bits=True)

        (item,) = Group("invariance", "own", ("INV-4",), "attention", "Title.", make).items()
        return item.run(entry("one_order_of_sums").backend(), item.calls)

    assert found(slice(2, 4)) is None
    difference = found(slice(1, 3))
    assert (difference.kind, difference.element) == ("bits", (0, 0, 1, 0)), "counted in the whole"


def test_problems_fit_an_implementation_and_a_seed():
    fits = Constraints(axes=4, depths=(128,), multiple=(16, 64))
    whole = [group for group in groups() if group.name == "chunks: causal"]
    (item, *_) = whole[0].items(constraints=fits)
    assert item.name.startswith("invariance-chunks-causal-1+a4-d128-l16-s64-")
    for case in item.calls:
        assert case.arguments["query"].shape[-2] % 16 == 0
        assert (case.arguments["key"].shape[-1], case.arguments["key"].shape[-2] % 64) == (128, 0)
    (group,) = [group for group in groups() if group.name == "place in the batch"]
    first, second, again = (next(group.items(seed)).calls[0].arguments["query"] for seed in (None, 1, 1))
    assert not np.array_equal(first, second)
    assert np.array_equal(second, again)


def test_a_nan_of_another_payload_is_the_same_and_the_first_other_element_is_named():
    one, other = (np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0xFFC00001))
    assert one.tobytes() != other.tobytes()
    assert same_bits("output", one, other) is None
    found = same_bits("output", np.append(one, np.float32(2)), np.append(other, np.float32(3)))
    assert (found.element, found.got, found.count) == ((1,), 2.0, 1)


@pytest.mark.parametrize(
    ("name", "concurrent"),
    [("torch-math", False), ("torch-flash", False), ("torch-flex", False), ("torch-sdpa", True)],
)
def test_a_path_that_is_chosen_for_the_process_is_not_called_from_threads(name, concurrent):
    assert load(name).concurrent is concurrent
