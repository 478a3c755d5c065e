"""The golden vectors: well formed, proven, and found again by the generators they name."""

import json
import subprocess
import sys
from datetime import date

import numpy as np
import pytest
from safetensors.numpy import load_file

import attnspec
from attnspec import SpecError, cases, find_case
from attnspec.case import SCHEMA, VECTORS, array, load, read
from attnspec.conformance.comparison import compare
from attnspec.lint import lint
from attnspec.reference.export import export
from attnspec.reference.rounding import budget
from attnspec.reference.vectors import dump, rewrite, tensor

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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.update(id="softmax-000"), "case softmax-000: id: expected it to begin with scores"),
        (lambda e: e.update(rules=["SCORE-99"]), "case scores-000: rule: got 'SCORE-99', expected one of"),
        (
            lambda e: e["arguments"].update(colour=1),
            "case scores-000: argument colour: expected one of scores",
        ),
        (lambda e: e["arguments"].pop("key"), "case scores-000: argument key: got none, expected one"),
        (
            lambda e: e["expected"].update(lse=e["expected"]["scores"]),
            "expected: got scores, lse, expected scores",
        ),
        (
            lambda e: e.update(
                alternatives=[
                    {"rule": "SOFT-1", "variant": "sums", "expected": e["expected"], "proof": e["proof"]}
                ]
            ),
            "alternative: got variant 'sums' of SOFT-1, expected one of matrix, sum",
        ),
        (
            lambda e: e["arguments"]["query"].update(shape=[65, 2], data=[1.0] * 130),
            "argument query: got 130 elements, expected 64 at most",
        ),
    ],
)
def test_the_linter_names_what_is_wrong(tmp_path, change, message):
    problems = lint(minimal(tmp_path, change).parent)
    assert any(message in problem for problem in problems), problems
    assert "rule MASK-1: got no case, expected one" in problems


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
                assert manifest[case.id]["scalars"][name] == x


def test_export_to_an_unknown_format(tmp_path):
    with pytest.raises(SpecError, match="format: got 'xml', expected one of safetensors, npz"):
        export(ALL, tmp_path, "xml")


@pytest.mark.parametrize("case", [case for case in ALL if case.alternatives], ids=str)
def test_an_alternative_can_be_told_apart(case):
    """A vector that its alternative meets as well would let the variant pass."""
    budgets = budget(case.operation, case.arguments, "float32")
    for other in case.alternatives:
        shares = [
            compare(name, other.expected[name], case.expected[name], budgets[name], "float64").share
            for name in case.expected
        ]
        assert max(shares) > 100


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


def legacy_001():
    random = np.random.RandomState(3)
    tokens = np.concatenate([random.normal(size=(4, 1)) for _ in range(3)], axis=1)
    random = np.random.RandomState(0)
    weights = [random.normal(size=(4, 4)) for _ in range(3)]
    return tokens, weights, [random.normal(size=(4, 1)).ravel() for _ in range(3)]


def test_the_legacy_generator_still_gives_the_inputs_of_001():
    tokens, weights, biases = legacy_001()
    for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
        given = find_case(f"projection-001-{name}").arguments
        assert given["tokens"].tobytes() == tokens.tobytes()
        assert given["weight"].tobytes() == weight.tobytes()
        assert given["bias"].tobytes() == bias.tobytes()


def test_the_legacy_generator_still_gives_the_weights_of_002():
    random = np.random.RandomState(42)
    for name in ("query", "key", "value"):
        assert np.array_equal(
            find_case(f"projection-002-{name}").arguments["weight"], random.randint(3, size=(3, 3))
        )


def test_pytorch_still_gives_the_weights_of_003():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(123)
    for name in ("query", "key", "value"):
        weight = torch.rand(3, 2, generator=generator).numpy()
        assert find_case(f"projection-003-{name}").arguments["weight"].tobytes() == weight.tobytes()


def test_attention_cases_take_the_projections_of_their_example():
    for number in ("000", "001", "002"):
        for name in ("query", "key", "value"):
            projected = find_case(f"projection-{number}-{name}").expected["projected"]
            rows = projected.T if number == "001" else projected
            assert np.array_equal(find_case(f"softmax-{number}").arguments[name], rows)


@pytest.mark.parametrize(
    ("single", "whole", "row"),
    [
        ("softmax-001-single", "softmax-001", 2),
        ("softmax-002-single", "softmax-002", 0),
        ("softmax-003-single", "softmax-003", 1),
        ("scores-002-single", "scores-002", 0),
        ("scores-003-single", "scores-003", 1),
    ],
)
def test_a_single_query_is_a_row_of_the_whole(single, whole, row):
    for name, values in find_case(single).expected.items():
        assert np.array_equal(values[0], find_case(whole).expected[name][row])


def test_three_ways_to_mask_in_004_agree():
    expected = [find_case(f"masking-004-{name}").expected for name in ("bias", "boolean", "causal")]
    for name in ("output", "weights"):
        assert np.array_equal(expected[0][name], expected[1][name])
        assert np.array_equal(expected[0][name], expected[2][name])


def minimal(tmp_path, change):
    """A vector file with one case, changed."""
    entry = json.loads((VECTORS / "scores.json").read_text())["cases"][0]
    change(entry)
    path = tmp_path / "scores.json"
    path.write_text(json.dumps({"cases": [entry]}))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.pop("provenance"), r"scores.json at cases/0: 'provenance' is a required property"),
        (
            lambda e: e.update(colour="red"),
            r"Additional properties are not allowed \('colour' was unexpected\)",
        ),
        (lambda e: e.update(rules=["mask-1"]), r"scores.json at cases/0/rules/0: 'mask-1' does not match"),
        (
            lambda e: e["arguments"]["query"].update(shape=[3, 3]),
            r"case scores-000: query: got 6 numbers, expected 9",
        ),
        (lambda e: e["arguments"]["query"].update(dtype="int8"), r"cases/0/arguments/query"),
        (lambda e: e["arguments"]["query"]["data"].__setitem__(0, "nan"), r"cases/0/arguments/query"),
    ],
)
def test_a_malformed_file_is_named(tmp_path, change, message):
    with pytest.raises(SpecError, match=message):
        load(minimal(tmp_path, change))


def test_a_file_that_is_no_json(tmp_path):
    path = tmp_path / "scores.json"
    path.write_text('{"cases": [')
    with pytest.raises(SpecError, match=r"scores.json cannot be read as JSON"):
        load(path)
    path.write_text('{"cases": [NaN]}')
    with pytest.raises(SpecError, match=r"got the bare word NaN, expected it in quotes"):
        load(path)


def test_a_file_of_no_chapter(tmp_path):
    (tmp_path / "weather.json").write_text("{}")
    with pytest.raises(SpecError, match=r"got file weather.json, expected the name of a chapter"):
        cases(tmp_path)


def test_an_empty_folder(tmp_path):
    with pytest.raises(SpecError, match=r"got no vector file"):
        cases(tmp_path)


def test_an_id_used_twice(tmp_path):
    entry = json.loads((VECTORS / "scores.json").read_text())["cases"][0]
    (tmp_path / "scores.json").write_text(json.dumps({"cases": [entry, entry]}))
    with pytest.raises(SpecError, match=r"case scores-000: got 2 cases of this id, expected one"):
        cases(tmp_path)


def test_an_unknown_case():
    with pytest.raises(SpecError, match=r"case: got 'scores-999', expected one of notation-batch"):
        find_case("scores-999")


def vectors(*words):
    command = [sys.executable, "-m", "attnspec.conformance.cli", "vectors", "write", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_changed_value_says_so_and_names_its_rule(tmp_path):
    text = (VECTORS / "scores.json").read_text()
    number = repr(float(find_case("scores-000").expected["scores"][0, 0]))
    assert number in text
    (tmp_path / "scores.json").write_text(text.replace(number, "-0.0913"))
    checked = vectors(tmp_path, "--check")
    assert checked.returncode == 1
    assert "VALUE CHANGED: scores-000 (SCORE-1, SCORE-3)" in checked.stderr
    assert "expected the files as they are, got other bytes" in checked.stderr
    assert vectors(tmp_path, "--only", "scores-002").returncode == 0
    assert "-0.0913" in (tmp_path / "scores.json").read_text(), "another case is left alone"
    assert vectors(tmp_path).returncode == 0
    assert (tmp_path / "scores.json").read_text() == text
    assert vectors(tmp_path, "--check").returncode == 0


def test_only_an_unknown_case(tmp_path):
    (tmp_path / "scores.json").write_text((VECTORS / "scores.json").read_text())
    refused = vectors(tmp_path, "--only", "scores-999")
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: case: got 'scores-999'")


def test_the_version_is_a_date():
    assert date(*map(int, attnspec.__version__.split("."))) >= date(2026, 11, 21)  # noqa: RUF048 - a date it is
