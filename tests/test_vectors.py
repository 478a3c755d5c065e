"""The golden vectors as files: well formed, proven, linted and exported; cases as JSON."""

import json
import math
from dataclasses import fields, is_dataclass
from datetime import date

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests_support import attnspec

from attnspec import OPERATIONS, Case, SpecError, __version__, backends, cases, find_case, rules
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find, items
from attnspec.conformance.verdict import Difference
from attnspec.golden import array, decode, from_json, load, read_cases, spelled, to_json, write_cases
from attnspec.lint import LIVE, lint
from attnspec.reference.budget.budget import budget
from attnspec.reference.golden import dump, export, rewrite, tensor
from attnspec.schema import SCHEMA, VECTORS, read

ALL = cases()
STORED = {case.operation for case in ALL}


def test_the_files_are_what_the_oracle_makes_and_fit_the_linter_and_the_schema():
    # The same as `nox -s vectors -- --check`.
    stale = [file.path.name for file in rewrite(VECTORS) if file.stale]
    assert stale == []
    assert lint() == []
    for case in ALL:
        arrays = [x for x in (*case.arguments.values(), *case.expected.values()) if isinstance(x, np.ndarray)]
        assert arrays
        assert not any(x.flags.writeable for x in arrays)
    schema = json.loads((VECTORS / SCHEMA).read_text())
    assert schema["$defs"]["case"]["properties"]["operation"]["enum"] == list(OPERATIONS)
    assert date(*map(int, __version__.split(".")[:3])) >= date(2026, 11, 21)


LARGE = {"shape": [65, 2], "data": [1.0] * 130}


def sums(entry):
    """A variant that there is not."""
    return {"rule": "SOFT-1", "variant": "sums", **{name: entry[name] for name in ("expected", "proof")}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.update(id="softmax-000"), "case softmax-000: id: expected it to begin with scores"),
        (lambda e: e.update(rules=["SCORE-99"]), "case scores-000: rule: expected an id such as"),
        (lambda e: e["arguments"].update(colour=1), "argument colour: expected one of scores"),
        (lambda e: e["arguments"].pop("key"), "case scores-000: argument key: expected a value, got none"),
        (lambda e: e["expected"].update(lse=e["expected"]["scores"]), "expected scores, got scores, lse"),
        (lambda e: e.update(alternatives=[sums(e)]), "variants of SOFT-1 (matrix, sum), got 'sums'"),
        (lambda e: e["arguments"]["query"].update(LARGE), "query: expected at most 64 elements, got 130"),
    ],
)
def test_the_linter_names_what_is_wrong(tmp_path, change, message):
    problems = lint(minimal(tmp_path, change).parent)
    assert any(message in problem for problem in problems), problems
    assert "rule MASK-1: expected a case, got none" in problems


@pytest.mark.parametrize("operation", [x for x in OPERATIONS if x in STORED or not OPERATIONS[x].stacked])
def test_the_linter_knows_the_shape_of_every_output(tmp_path, operation):
    case = next(case for case in ALL if case.operation == operation and case.expected)
    asked = {one.option: True for one in OPERATIONS[operation].results if one.option and not one.apart}
    assert list(case.expected) == list(OPERATIONS[operation].wanted({**case.arguments, **asked}))
    for name, values in case.expected.items():

        def changed(entry, name=name):
            entry["expected"][name]["shape"].append(1)

        message = f"case {case.id}: expected {name}: expected shape {values.shape}, got {(*values.shape, 1)}"
        assert lint_of(tmp_path, changed, case.id)[0] == message


def test_the_linter_names_what_is_wrong_with_a_misuse_a_rule_or_an_alternative(tmp_path):
    def changed(entry):
        entry["alternatives"][0]["expected"] = entry["expected"]

    (problem,) = lint_of(tmp_path, changed, "heads-four-over-two")
    assert problem.endswith("alternative tiled: expected values other than those of the rule, got the same")
    (problem,) = lint_of(tmp_path, lambda e: e["misuse"].update(argument="colour"), "errors-scale-nan")
    assert problem.endswith("misuse: expected an argument of attention, got colour")
    assert {rule.id for rule in rules()} > LIVE
    problems = lint(minimal(tmp_path, lambda e: e.update(rules=["NUM-9"])).parent)
    assert "rule NUM-9: expected no case, as it is in LIVE" in problems
    assert not any(problem.startswith("rule NUM-10:") for problem in problems)


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
def test_export_gives_every_array_back(tmp_path, kind):
    paths = export(ALL, tmp_path / "out", kind)
    manifest = json.loads(paths[-1].read_text())
    assert list(manifest) == [case.id for case in ALL]
    for case in ALL:
        path = tmp_path / "out" / manifest[case.id]["file"]
        tensors = dict(np.load(path)) if kind == "npz" else load_file(path)
        for name, x in case.expected.items():
            assert tensors[f"expected/{name}"].tobytes() == x.tobytes()
        for name, x in case.arguments.items():
            if isinstance(x, np.ndarray):
                assert tensors[f"arguments/{name}"].tobytes() == x.tobytes()
            else:
                found = decode(manifest[case.id]["scalars"])[name]
                assert found == x or (math.isnan(found) and math.isnan(x))


@pytest.mark.parametrize("case", [case for case in ALL if case.alternatives], ids=str)
def test_an_alternative_can_be_told_apart(case):
    """A vector that its alternative meets as well would let the variant pass."""
    budgets = budget(case.operation, case.arguments, "float32")
    for other in case.alternatives:
        values = [(name, other.expected[name], x) for name, x in case.expected.items()]
        found = [compare(*compared, budgets[compared[0]], "float64") for compared in values]
        assert max(one.share for one in found if isinstance(one, Difference)) > 100


@pytest.mark.parametrize(
    "path", [x for x in VECTORS.glob("*.json") if x.name != SCHEMA], ids=lambda p: p.name
)
def test_floats_survive_a_round_trip(path):
    text = path.read_text(encoding="utf-8")
    document = read(path)
    assert dump(document) == text
    for entry in document["cases"]:
        for thing in entry["arguments"].values():
            if isinstance(thing, dict):
                assert tensor(array(thing)) == thing


def test_numbers_without_a_spelling_in_json_come_back():
    given = np.array([[np.nan, np.inf], [-np.inf, -0.0]])
    written = json.loads(json.dumps(tensor(given), allow_nan=False))
    assert written["data"] == ["NaN", "Infinity", "-Infinity", 0.0]
    assert array(written).tobytes() == given.tobytes()
    given = {"window": [2, None], "scale": "-Infinity", "convention": "row", "softcap": None, "heads": 2}
    found = decode(given)
    assert found == {"window": (2, None), "scale": -np.inf, "convention": "row", "softcap": None, "heads": 2}
    with pytest.raises(TypeError):
        found["scale"] = 1.0
    query = np.array([1 - 2j, complex(np.nan, -np.inf)])
    (pair,) = spelled({"query": query}).values()
    assert pair["data"] == [[1.0, -2.0], ["NaN", "-Infinity"]]
    np.testing.assert_array_equal(array(pair), query, strict=True)


def minimal(tmp_path, change, case_id="scores-000"):
    """A vector file with one case, changed."""
    name = f"{case_id.partition('-')[0]}.json"
    (entry,) = (e for e in json.loads((VECTORS / name).read_text())["cases"] if e["id"] == case_id)
    change(entry)
    path = tmp_path / case_id / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cases": [entry]}))
    return path


def lint_of(tmp_path, change, case_id):
    """What the linter says of one case, changed."""
    path = minimal(tmp_path, change, case_id)
    cases.cache_clear()  # the folder is the same, the file is not
    return [problem for problem in lint(path.parent) if problem.startswith("case ")]


def query(entry):
    return entry["arguments"]["query"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.pop("provenance"), r"scores.json at cases/0: 'provenance' is a required property"),
        (lambda e: e.update(colour="red"), r"properties are not allowed \('colour' was unexpected\)"),
        (lambda e: e.update(rules=["mask-1"]), r"scores.json at cases/0/rules/0: 'mask-1' does not match"),
        (lambda e: query(e).update(shape=[3, 3]), r"case scores-000: query: expected 9 numbers for shape"),
        (lambda e: query(e).update(dtype="int8"), r"cases/0/arguments/query"),
        (lambda e: query(e)["data"].__setitem__(0, "nan"), r"cases/0/arguments/query"),
        (lambda e: query(e)["data"].__setitem__(0, True), r"cases/0/arguments/query"),
        (lambda e: query(e).update(dtype="int64", data=[0.5] * 6), r"cases/0/arguments/query"),
        (lambda e: query(e).update(dtype="int64", data=["NaN"] * 6), r"arguments/query"),
        (lambda e: query(e).update(dtype="bool", data=[1] * 6), r"cases/0/arguments/query"),
        (lambda e: e["arguments"].update(window=[2, "all"]), r"cases/0/arguments/window/1"),
        (lambda e: e["arguments"].update(scale=[1.0]), r"cases/0/arguments/scale"),
        (lambda e: e.update(operation="convolution"), r"'convolution' is not one of"),
    ],
)
def test_a_malformed_file_is_named(tmp_path, change, message):
    with pytest.raises(SpecError, match=message):
        load(minimal(tmp_path, change))


@pytest.mark.parametrize("given", [np.array([[1, -2]]), np.array(3), np.zeros((0, 2), np.int64)])
def test_integers_stay_integers(given):
    written = json.loads(json.dumps(tensor(given)))
    assert all(type(number) is int for number in written["data"])
    found = array(written)
    assert (found.dtype, found.shape, found.tolist()) == (np.int64, given.shape, given.tolist())


def test_a_case_without_values_is_given_them(tmp_path):
    """As one adds a case: arguments, and the names of the variants alone."""
    path = tmp_path / "masking.json"
    text = (VECTORS / "masking.json").read_text()
    document = json.loads(text)
    for entry in document["cases"]:
        for thing in (entry, *entry.get("alternatives", ())):
            thing.pop("expected", None)
            thing.pop("proof", None)
    path.write_text(dump(document))
    with pytest.raises(SpecError, match=r"masking\.json at cases/\d+: .* is not valid under any"):
        load(path)
    (rewritten,) = rewrite(tmp_path)
    assert rewritten.text == text
    assert rewritten.changed == ()


def test_a_file_that_is_no_json(tmp_path):
    with pytest.raises(SpecError, match=r"got no vector file"):
        cases(tmp_path)
    entry = json.loads((VECTORS / "scores.json").read_text())["cases"][0]
    (tmp_path / "scores.json").write_text(json.dumps({"cases": [entry, entry]}))
    with pytest.raises(SpecError, match=r"case scores-000: expected one case of this id, got 2"):
        cases(tmp_path)
    (tmp_path / "scores.json").rename(tmp_path / "weather.json")
    with pytest.raises(SpecError, match=r"expected a file named after a chapter .*, got weather.json"):
        cases(tmp_path)
    path = tmp_path / "scores.json"
    path.write_text('{"cases": [')
    with pytest.raises(SpecError, match=r"scores.json cannot be read as JSON"):
        load(path)
    path.write_text('{"cases": [NaN]}')
    with pytest.raises(SpecError, match=r"expected NaN in quotes, got the bare word"):
        load(path)


def test_a_changed_value_says_so_and_names_its_rule(tmp_path):
    text = (VECTORS / "scores.json").read_text()
    number = repr(float(find_case("scores-000").expected["scores"][0, 0]))
    assert number in text
    (tmp_path / "scores.json").write_text(text.replace(number, "-0.0913"))
    checked = attnspec("vectors", "write", tmp_path, "--check", status=1)
    assert "VALUE CHANGED: scores-000 (SCORE-1, SCORE-3)" in checked.stderr
    assert "expected the files to be up to date, got other bytes" in checked.stderr
    attnspec("vectors", "write", tmp_path, "--only", "scores-002", status=0)
    assert "-0.0913" in (tmp_path / "scores.json").read_text(), "another case is left alone"
    attnspec("vectors", "write", tmp_path, status=0)
    assert (tmp_path / "scores.json").read_text() == text
    attnspec("vectors", "write", tmp_path, "--check", status=0)


def test_only_an_unknown_case(tmp_path):
    (tmp_path / "scores.json").write_text((VECTORS / "scores.json").read_text())
    refused = attnspec("vectors", "write", tmp_path, "--only", "scores-999", status=2)
    assert refused.stderr.startswith("Error: case: expected one of scores-000")


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


def test_the_cases_tried_have_all_that_a_case_may_have_and_are_judged_from_a_file(tmp_path):
    every = [find(name) for name in NAMES]
    for field in fields(Case):
        assert any(getattr(case, field.name) for case in every), field.name
    assert any(case.misuse and case.misuse.named for case in every)
    assert any(case.misuse and case.misuse.allowed for case in every)
    path = tmp_path / "own.json"
    write_cases([find("masking-empty-last-float32")], path)
    (case,) = items(names=[str(path)])
    assert isinstance(case, Case)
    assert judge(backends.load("numpy-portable"), case).status == "pass"
    entry = to_json(find_case("softmax-000")) | {"id": "nowhere-1"}
    with pytest.raises(SpecError, match="case nowhere-1: expected an id that begins with a chapter"):
        from_json(entry)


def test_a_file_fits_the_schema_of_the_vector_files(tmp_path):
    every = [find(name) for name in NAMES]
    write_cases(every, tmp_path / "cases.json")
    assert [case.name for case in read_cases(tmp_path / "cases.json")] == list(NAMES)
    text = (tmp_path / "cases.json").read_text().replace('"uint8"', '"x"').replace('"int64"', '"x"')
    (tmp_path / "cases.json").write_text(text)
    with pytest.raises(SpecError, match=r"cases\.json at cases/"):
        read_cases(tmp_path / "cases.json")
