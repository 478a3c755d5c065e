"""The golden vectors as files: well formed, proven, linted and exported."""

import json
import math
from datetime import date

import numpy as np
import pytest
from safetensors.numpy import load_file
from tests_support import attnspec

from attnspec import OPERATIONS, SpecError, __version__, cases, find_case, rules
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.verdict import Difference
from attnspec.golden import array, decode, load
from attnspec.lint import LIVE, lint
from attnspec.reference.budget.budget import budget
from attnspec.reference.golden import dump, export, rewrite, tensor
from attnspec.schema import SCHEMA, VECTORS, read

ALL = cases()


def test_the_files_are_what_the_oracle_makes():
    """The same as `nox -s vectors -- --check`."""
    stale = [file.path.name for file in rewrite(VECTORS) if file.stale]
    assert stale == []


def test_the_linter_has_nothing_to_say():
    assert lint() == []


def test_arrays_of_a_case_are_read_only():
    for case in ALL:
        arrays = [x for x in (*case.arguments.values(), *case.expected.values()) if isinstance(x, np.ndarray)]
        assert arrays
        assert not any(x.flags.writeable for x in arrays)


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


#: One of each kind of argument. That all that does not fit is found, `test_malformed` shows.
ARGUMENTS = [
    ("heads-four-over-two", {"query": {"shape": [3, 4, 1]}}, "expected a number of heads that divides 3"),
    ("masking-every-source", {"mask": {"shape": [5, 4]}}, "mask: expected a shape that broadcasts"),
    ("masking-key-lengths", {"key_lengths": {"dtype": "float64"}}, "expected integers, got float64"),
    ("masking-window-own", {"window": [0.5, 0]}, "window: expected two, each None or an integer"),
]


@pytest.mark.parametrize(("case_id", "change", "message"), ARGUMENTS)
def test_the_linter_names_an_argument_to_refuse(tmp_path, case_id, change, message):
    def changed(entry):
        for name, thing in change.items():
            old = entry["arguments"][name]
            entry["arguments"][name] = {**old, **thing} if isinstance(thing, dict) else thing

    assert lint_of(tmp_path, lambda _: None, case_id) == []
    problems = lint_of(tmp_path, changed, case_id)
    assert any(message in problem for problem in problems), problems


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_linter_knows_the_shape_of_every_output(tmp_path, operation):
    case = next(case for case in ALL if case.operation == operation and case.expected)
    asked = {one.option: True for one in OPERATIONS[operation].results if one.option and not one.apart}
    assert list(case.expected) == list(OPERATIONS[operation].wanted({**case.arguments, **asked}))
    for name, values in case.expected.items():

        def changed(entry, name=name):
            entry["expected"][name]["shape"].append(1)

        message = f"case {case.id}: expected {name}: expected shape {values.shape}, got {(*values.shape, 1)}"
        assert lint_of(tmp_path, changed, case.id)[0] == message


def test_the_linter_refuses_an_alternative_that_is_none(tmp_path):
    def changed(entry):
        entry["alternatives"][0]["expected"] = entry["expected"]

    (problem,) = lint_of(tmp_path, changed, "heads-four-over-two")
    assert problem.endswith("alternative tiled: expected values other than those of the rule, got the same")


def test_the_linter_asks_for_the_argument_at_fault(tmp_path):
    (problem,) = lint_of(tmp_path, lambda e: e["misuse"].update(argument="colour"), "errors-scale-nan")
    assert problem.endswith("misuse: expected an argument of attention, got colour")


def test_the_linter_asks_for_no_case_of_a_rule_that_only_runs_show(tmp_path):
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
        found = [
            compare(name, other.expected[name], case.expected[name], budgets[name], "float64")
            for name in case.expected
        ]
        assert max(one.share for one in found if isinstance(one, Difference)) > 100


@pytest.mark.parametrize(
    "path", [path for path in VECTORS.glob("*.json") if path.name != SCHEMA], ids=lambda p: p.name
)
def test_floats_survive_a_round_trip(path):
    text = path.read_text(encoding="utf-8")
    document = read(path)
    assert dump(document) == text
    for entry in document["cases"]:
        for thing in entry["arguments"].values():
            if isinstance(thing, dict):
                assert tensor(array(thing)) == thing


def test_numbers_without_a_spelling_in_json():
    given = np.array([[np.nan, np.inf], [-np.inf, -0.0]])
    spelled = json.loads(json.dumps(tensor(given), allow_nan=False))
    assert spelled["data"] == ["NaN", "Infinity", "-Infinity", 0.0]
    assert array(spelled).tobytes() == given.tobytes()


def minimal(tmp_path, change, case_id="scores-000"):
    """A vector file with one case, changed."""
    name = f"{case_id.partition('-')[0]}.json"
    (entry,) = (e for e in json.loads((VECTORS / name).read_text())["cases"] if e["id"] == case_id)
    change(entry)
    path = tmp_path / name
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


def test_the_schema_knows_the_operations_of_the_signature():
    schema = json.loads((VECTORS / SCHEMA).read_text())
    assert schema["$defs"]["case"]["properties"]["operation"]["enum"] == list(OPERATIONS)


def test_arguments_that_are_no_arrays():
    given = {"window": [2, None], "scale": "-Infinity", "convention": "row", "softcap": None, "heads": 2}
    found = decode(given)
    assert found == {"window": (2, None), "scale": -np.inf, "convention": "row", "softcap": None, "heads": 2}
    with pytest.raises(TypeError):
        found["scale"] = 1.0


@pytest.mark.parametrize("given", [np.array([[1, -2]]), np.array(3), np.zeros((0, 2), np.int64)])
def test_integers_stay_integers(given):
    spelled = json.loads(json.dumps(tensor(given)))
    assert all(type(number) is int for number in spelled["data"])
    found = array(spelled)
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
    path = tmp_path / "scores.json"
    path.write_text('{"cases": [')
    with pytest.raises(SpecError, match=r"scores.json cannot be read as JSON"):
        load(path)
    path.write_text('{"cases": [NaN]}')
    with pytest.raises(SpecError, match=r"expected NaN in quotes, got the bare word"):
        load(path)


def test_a_folder_without_a_file_with_one_of_no_chapter_and_with_an_id_used_twice(tmp_path):
    with pytest.raises(SpecError, match=r"got no vector file"):
        cases(tmp_path)
    entry = json.loads((VECTORS / "scores.json").read_text())["cases"][0]
    (tmp_path / "scores.json").write_text(json.dumps({"cases": [entry, entry]}))
    with pytest.raises(SpecError, match=r"case scores-000: expected one case of this id, got 2"):
        cases(tmp_path)
    (tmp_path / "scores.json").rename(tmp_path / "weather.json")
    with pytest.raises(SpecError, match=r"expected a file named after a chapter .*, got weather.json"):
        cases(tmp_path)


def test_a_changed_value_says_so_and_names_its_rule(tmp_path):
    text = (VECTORS / "scores.json").read_text()
    number = repr(float(find_case("scores-000").expected["scores"][0, 0]))
    assert number in text
    (tmp_path / "scores.json").write_text(text.replace(number, "-0.0913"))
    checked = attnspec("vectors", "write", tmp_path, "--check")
    assert checked.returncode == 1
    assert "VALUE CHANGED: scores-000 (SCORE-1, SCORE-3)" in checked.stderr
    assert "expected the files to be up to date, got other bytes" in checked.stderr
    assert attnspec("vectors", "write", tmp_path, "--only", "scores-002").returncode == 0
    assert "-0.0913" in (tmp_path / "scores.json").read_text(), "another case is left alone"
    assert attnspec("vectors", "write", tmp_path).returncode == 0
    assert (tmp_path / "scores.json").read_text() == text
    assert attnspec("vectors", "write", tmp_path, "--check").returncode == 0


def test_only_an_unknown_case(tmp_path):
    (tmp_path / "scores.json").write_text((VECTORS / "scores.json").read_text())
    refused = attnspec("vectors", "write", tmp_path, "--only", "scores-999")
    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: case: expected one of scores-000")


def test_the_version_is_a_date():
    assert date(*map(int, __version__.split("."))) >= date(2026, 11, 21)  # noqa: RUF048 - a date it is
