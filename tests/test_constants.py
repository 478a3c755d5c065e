"""A constant in place of any output fails every group of cases: no expected value is missing or unused."""

import re
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import numpy as np
import pytest
from tests_support import whole_suite

from attnspec import OPERATIONS, Case, SpecError, find_case
from attnspec.backends import load
from attnspec.conformance.judge import store
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.cause import outputs_to_judge
from attnspec.conformance.judge.dtypes import accepted_dtypes, own_dtypes
from attnspec.conformance.judge.expected import differences, expected
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.sizes.dialect import gradients_in_dialect, in_dialect, precisions
from attnspec.conformance.sizes.judge import compare_outputs
from attnspec.conformance.verdict import Difference
from attnspec.golden import from_json, to_json
from attnspec.schema import VECTORS

BACKEND = load("numpy-portable")
#: No case expects it in all elements.
CONSTANT = 7.0
_KEY = attrgetter("chapter", "group", "operation")
GROUPS = {
    key: [*cases]
    for key, cases in groupby(sorted((x for x in whole_suite() if isinstance(x, Case)), key=_KEY), key=_KEY)
}
SIZED = {key: [*cases] for key, cases in groupby(sized_cases(), key=attrgetter("group", "operation"))}


def constant(shape, name, dtype):
    return np.full(shape, CONSTANT, accepted_dtypes(name, dtype)[0])


def is_noticed(case, name):
    """Whether the judge sees a constant in place of an output."""
    values, own = expected(case), own_dtypes(case)
    got = {name: constant(values[name].shape, name, own.get(name, case.dtype))}
    found = differences(outputs_to_judge(got, case), values, budgets_of(BACKEND, case), case.dtype, own)
    return any(isinstance(difference, Difference) for difference in found)


def values_of(cases):
    """Yield the cases that have values, and the names of these, the smallest cases first."""
    for case in sorted(cases, key=lambda case: sum(np.size(x) for x in case.arguments.values())):
        if not case.must_raise and case.dtype in BACKEND.dtypes:
            yield case, OPERATIONS[case.operation].judged(case.arguments, case.outputs)


def pairs():
    """Return, for each group and each output that it judges, the cases that judge it."""
    found = {}
    for key, cases in GROUPS.items():
        for case, names in values_of(cases):
            for name in names:
                found.setdefault((*key, name), []).append(case)
    return found


@pytest.fixture(scope="module")
def judged():
    return pairs()


def is_defined(case, name):
    """Whether the standard defines numbers of an output of a case."""
    try:
        return expected(case)[name].size > 0
    except ValueError:
        return False


def test_a_constant_is_noticed_in_every_output_of_every_group(judged):
    wanted = {(operation, name) for operation, form in OPERATIONS.items() for name in form.outputs}
    assert wanted - {key[-2:] for key in judged} == set()
    passed = []
    for key, cases in judged.items():
        told = (is_noticed(case, key[-1]) for case in cases if is_defined(case, key[-1]))
        if next(told, None) is False and not any(told):
            passed.append(key)
    assert passed == []


@pytest.mark.parametrize("key", SIZED, ids=" ".join)
@pytest.mark.sample(4)
def test_a_constant_is_noticed_in_every_output_of_every_sized_group(key):
    seen = set()
    for item in sorted(SIZED[key], key=attrgetter("work")):
        names = {*item.outputs} - seen
        if not names:
            continue
        seen |= names
        dialect = (gradients_in_dialect if item.gradients else in_dialect)(
            item.formula, {}, **({} if item.gradients else {"lse": True})
        )
        for name in names:
            shape = shape_of(item, name)
            got = {name: constant(shape, name, item.dtype)}
            precision = next(iter(precisions(BACKEND, item.dtype)))
            assert isinstance(compare_outputs(item, dialect, got, precision), Difference), (item.name, name)


def shape_of(item, name):
    arguments = item.case.arguments
    rows = arguments["query"].shape[:-1]
    other = {"lse": rows, "output": (*rows, arguments["value"].shape[-1])}
    return other[name] if name in other else arguments[name.removeprefix("d_")].shape


def test_every_name_is_an_output_and_stored_whole(tmp_path, monkeypatch):
    values = {"a" * 24: {"inverse_frequencies_of_a_band": np.ones(2)}}
    (tmp_path / "positions.npz").write_bytes(store.encode(values))
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    store._index.cache_clear()
    try:
        assert [*store.find("a" * 24)] == ["inverse_frequencies_of_a_band"]
    finally:
        monkeypatch.undo()
        store._index.cache_clear()
    names = {name for path in store.FOLDER.glob("*.npz") for name in np.load(path)["names"].astype(str)}
    assert names <= {name for form in OPERATIONS.values() for name in form.outputs}
    text = VECTORS.with_name("pack").joinpath("attnspec.h").read_text()
    words = "".join(re.findall(r'"(.*)"', text.split("attnspec_names_of_outputs[] =")[1].split(";")[0]))
    assert {*words.split()} == {name for form in OPERATIONS.values() for name in form.outputs}


def test_a_value_that_is_missing_or_of_no_output_is_an_error():
    case = find_case("masking-empty-last")
    less = {name: array for name, array in case.expected.items() if name != "lse"}
    for values in (less, {**case.expected, "logits": case.expected["lse"]}):
        with pytest.raises(AssertionError, match=r"masking-empty-last.*: expected the value of each output"):
            expected(replace(case, expected=values))
    with pytest.raises(AssertionError, match="lse: expected a value and a budget"):
        [*differences({"lse": case.expected["lse"]}, less, budgets_of(BACKEND, case), case.dtype)]
    with pytest.raises(SpecError, match="expected values of output, lse, weights, got output, weights"):
        from_json(to_json(replace(case, expected=less)))
    item = next(item for (_, name), items in SIZED.items() if name == "attention_vjp" for item in items)
    query = item.case.arguments["query"]
    precision = next(iter(precisions(BACKEND, item.dtype)))
    with pytest.raises((AssertionError, KeyError), match="d_scale"):
        compare_outputs(item, gradients_in_dialect(item.formula, {}), {"d_scale": query}, precision)
