"""Cases as JSON: golden, generated and malformed cases have one form, and can be read back."""

import json
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from attnspec import Case, SpecError, find_case
from attnspec.backends import load
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find, items
from attnspec.golden import from_json, read_cases, to_json, write_cases

#: Golden with figures and variants, misuses of both kinds, one that may name another argument, strides,
#: bfloat16, int32 ids, NaN, one output judged.
NAMES = (
    "softmax-003-float32",
    "masking-004-causal-float64",
    "notation-misfit-depth-float32",
    "notation-misfits-depth-of-key-1-float32",
    "notation-row-of-weights-for-each-query-1-float32",
    "errors-another-dtype-bias-and-fine-1-float32",
    "numerics-strides-sliced-and-key-1-bfloat16",
    "masking-segment-ids-1-float32",
    "numerics-number-that-is-none-query-1-float16",
    "masking-offset-alone-1-float32",
    "masking-windows-alone-1-float32",
)


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if hasattr(one, "items"):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    return one == other


@pytest.mark.parametrize("name", NAMES)
def test_a_case_comes_back_as_it_was(name):
    case = find(name)
    again = from_json(json.loads(json.dumps(to_json(case), allow_nan=False)))
    assert same(again, case)
    arrays = [*again.arguments.values(), *again.expected.values()]
    assert not any(array.flags.writeable for array in arrays if isinstance(array, np.ndarray))


def test_the_cases_tried_have_all_that_a_case_may_have():
    every = [find(name) for name in NAMES]
    for field in fields(Case):
        assert any(getattr(case, field.name) for case in every), field.name
    assert any(case.misuse and case.misuse.named for case in every)
    assert any(case.misuse and case.misuse.allowed for case in every)


def test_a_file_fits_the_schema_of_the_vector_files(tmp_path):
    every = [find(name) for name in NAMES]
    write_cases(every, tmp_path / "cases.json")
    assert [case.name for case in read_cases(tmp_path / "cases.json")] == list(NAMES)
    text = (tmp_path / "cases.json").read_text().replace('"uint8"', '"x"').replace('"int64"', '"x"')
    (tmp_path / "cases.json").write_text(text)
    with pytest.raises(SpecError, match=r"cases\.json at cases/"):
        read_cases(tmp_path / "cases.json")


def test_cases_of_a_file_are_judged_beside_those_of_the_suite(tmp_path):
    path = tmp_path / "own.json"
    write_cases([find("masking-empty-last-float32")], path)
    (case,) = items(names=[str(path)])
    assert isinstance(case, Case)
    assert judge(load("numpy-portable"), case).status == "pass"


def test_what_json_cannot_hold_is_refused():
    case = find_case("softmax-000")
    arguments = {**case.arguments, "query": case.arguments["query"].astype(complex)}
    with pytest.raises(SpecError, match="query: expected numbers that JSON can hold, got complex128"):
        to_json(Case("errors-x-1", "", "errors", "attention", ("ERR-2",), arguments))


def test_an_id_begins_with_its_chapter():
    entry = to_json(find_case("softmax-000")) | {"id": "nowhere-1"}
    with pytest.raises(SpecError, match="case nowhere-1: expected an id that begins with a chapter"):
        from_json(entry)
