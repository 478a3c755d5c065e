"""The dtypes, kinds and values of arguments that calls of every operation have."""

from functools import wraps

import numpy as np
import pytest
from tests_support import backend_ignoring, backend_of_operations

from attnspec import OPERATIONS
from attnspec.backends.preconditions import breach_of
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import groups_of
from attnspec.conformance.suite.alone import optional_of
from attnspec.conformance.suite.faults import fitting
from attnspec.conformance.suite.special_numbers import _reaches_all_that_hold_it
from attnspec.reference import functions
from attnspec.sizes import is_array


def cases_of(beginning, chapter="errors"):
    """The cases of the groups whose names begin with some words."""
    groups = [group for group in groups_of(chapter) if group.name.startswith(beginning)]
    return [case for group in groups for case in group.items()]


def integers_of(case):
    """The arrays of integers of a call."""
    return {name: x for name, x in case.arguments.items() if is_array(x) and x.dtype.kind in "iu"}


def test_each_array_of_integers_has_32_bits_in_a_call():
    cases = cases_of("integers of every operation: int32")
    met = {
        (case.operation, name)
        for case in cases
        for name, x in integers_of(case).items()
        if x.dtype == np.int32
    }
    declared = ((operation, x) for operation, form in OPERATIONS.items() for x in form.arguments.values())
    wanted = {
        (operation, x.name) for operation, x in declared if x.kind == "integers" or x.numbers == "integer"
    }
    assert {pair for pair in wanted - met if not pair[1].endswith(("codes", "pages", "packed"))} == set()


def test_no_valid_call_beside_a_malformed_one_holds_a_key_twice():
    calls = {name: fitting(name) for name, form in OPERATIONS.items() if "key_indices" in form.arguments}
    assert {breach_of(["distinct"], call) for call in calls.values()} == {""}
    assert {(call["key_indices"] >= 0).any() for call in calls.values()} == {True}


def test_each_number_and_flag_of_a_companion_is_of_no_kind_in_a_call():
    met = {(case.operation, case.misuse.argument) for case in cases_of("words and arrays")}
    names = {name for _, name in met}
    assert {type(case.arguments[case.misuse.argument]) for case in cases_of("words and arrays")} == {
        str,
        np.ndarray,
    }
    for operation, form in OPERATIONS.items():
        kinds = {x.name for x in form.arguments.values() if x.kind in ("number", "flag")}
        asks = {*form.names("asks")}
        assert kinds <= names
        if not form.stacked and operation not in ("attention", "attention_vjp"):
            assert {name for name in kinds - asks if (operation, name) not in met} == set()
            assert not asks or any((operation, name) in met for name in asks)


def backend_with(change):
    """A backend of all companions that changes the arguments of a call."""

    def wrap(run):
        @wraps(run)
        def changed(*arrays, **options):
            return run(*arrays, **{name: change(name, x) for name, x in options.items()})

        return changed

    own = {name: wrap(run) for name, run in functions().items() if name != "attention"}
    return backend_of_operations(own)


@pytest.mark.parametrize("fold", [np.bool_, np.int8, np.int32])
def test_ids_of_segments_that_are_folded_are_seen(fold):
    backend = backend_with(lambda name, x: x.astype(fold).astype(int) if name.endswith("segment_ids") else x)
    cases = cases_of("segment ids of any")[::6]
    assert {judge(backend, case).status for case in cases} == {"fail"}


@pytest.mark.parametrize("name", optional_of("paged_attention"))
def test_an_option_that_is_ignored_beside_new_positions_is_seen(name):
    cases = [case for case in cases_of("new positions with", "paging") if name in case.arguments]
    backend = backend_ignoring("paged_attention", name, "new_key")
    assert sum(judge(backend, case).bad for case in cases) >= 2


@pytest.mark.parametrize("name", ["mask", "is_causal", "scale", "memory", "query_bias"])
def test_an_option_that_is_ignored_beside_a_bias_without_effect_is_seen(name):
    operation = "multi_head_attention_vjp"
    cases = cases_of(f"options beside idle biases of: {operation}")
    assert any(judge(backend_ignoring(operation, name, "output_bias"), case).bad for case in cases)


@pytest.mark.parametrize("name", ["block_mask", "block_counts"])
def test_a_mask_or_lists_of_blocks_that_are_ignored_are_seen(name):
    cases = cases_of("blocks in a mask and")
    beside = {"block_mask": ("block_mask",), "block_counts": ("block_counts", "block_indices")}[name]
    backend = backend_with(lambda own, x: None if own in beside else x)
    assert {judge(backend, case).status for case in cases} == {"fail"}


@pytest.mark.parametrize(("more", "status"), [(0, "pass"), (1, "fail")])
def test_results_without_heads_are_empty_or_refused(more, status):
    for case in cases_of("no heads in any"):
        form, values = OPERATIONS[case.operation], expected(case)
        first, *others = (values[name].astype(np.float32) for name in form.judged(case.arguments))
        letters = form.results[0].shape
        shape = [*first.shape]
        shape[letters.index("Hq") - len(letters)] += more
        results = (np.ones(shape, np.float32), *others)

        @wraps(functions()[case.operation])
        def empty(*_, results=results, **__):
            return results if len(results) > 1 else results[0]

        assert judge(backend_of_operations({case.operation: empty}), case).status == status, case.operation


@pytest.mark.parametrize("allowed", [True, False])
def test_nan_is_put_only_where_each_row_attends_to_the_keys_that_hold_it(allowed):
    """A whole batch entry may disallow its key of NaN, and gives NaN then by MASK-13, which is a SHOULD."""
    codes = {name: np.ones((2, 1, 3, 4), np.int8) for name in ("key_codes", "value_codes")}
    scales = np.ones((2, 1, 3, 1), np.float32)
    scales[:, 0, 0] = np.nan
    mask = np.ones((3, 1, 2, 3), bool)
    mask[1, :, :, 0] = allowed
    call = {"query": np.ones((2, 1, 2, 4), np.float32), **codes, "key_scales": scales, "mask": mask[:2]}
    other = np.ones_like(call["query"][:1])
    whole = {name: np.concatenate([x, x[:1]]) for name, x in call.items() if name != "mask"}
    whole["key_scales"][2] = 1
    whole |= {"mask": mask, "query": np.concatenate([call["query"], other])}
    assert _reaches_all_that_hold_it("quantized_attention", whole, single=False) == allowed
