"""Compressed results, and the short way to validate lines."""

import copy
import gzip
import json
import lzma

import jsonschema
import pytest
from html_results import verdicts, write_run

from attnspec import SpecError
from attnspec.conformance import results_file
from attnspec.conformance.results_file import read_text, runs_of


def test_a_bomb_is_refused(tmp_path):
    for suffix, compress in ((".xz", lzma.compress), (".gz", gzip.compress)):
        path = tmp_path / f"a.jsonl{suffix}"
        path.write_bytes(compress(b"x" * 100_000))
        assert len(read_text(path, most=100_000)) == 100_000
        with pytest.raises(ValueError, match="expands to more than 99999 bytes"):
            read_text(path, most=99_999)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: data + data, lambda data: b"no" + data]
)
@pytest.mark.parametrize("suffix", [".xz", ".gz"])
def test_a_damaged_file_is_one_error(tmp_path, damage, suffix):
    compress = lzma.compress if suffix == ".xz" else gzip.compress
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(damage(compress(write_run(tmp_path / "a.jsonl").read_bytes())))
    with pytest.raises(SpecError, match="is no file of results"):
        runs_of(path)


def test_a_run_is_named_after_its_file(tmp_path):
    assert runs_of(write_run(tmp_path / "torch-2.13.0.jsonl.xz"))[0].source == "torch-2.13.0"


WRONG = {
    "another status": lambda one: one.update(status="good"),
    "no status": lambda one: one.pop("status"),
    "a name that is not known": lambda one: one.update(verdit=1),
    "a number for a text": lambda one: one.update(case=1),
    "a text in a list": lambda one: one.update(traits="a"),
    "a number in a list": lambda one: one.update(traits=["a", 1]),
    "a rule of another form": lambda one: one.update(rules=["MASK1"]),
    "a negative count": lambda one: one.update(numbers=-1),
    "a fraction": lambda one: one.update(numbers=1.5),
    "a truth for a number": lambda one: one.update(seconds=True),
    "an unknown spelling": lambda one: one.update(share="Inf"),
    "an object for a text": lambda one: one.update(reason={"a": 1}),
    "a wrong part": lambda one: one.update(difference={"kind": "value", "output": 1}),
    "a part without a name": lambda one: one.update(difference={"kind": "value"}),
    "a negative element": lambda one: one.update(
        difference={"kind": "value", "output": "o", "element": [0, -1]}
    ),
    "null": lambda one: one.update(raised=None),
}
RIGHT = {
    "a whole number as a fraction": lambda one: one.update(numbers=3.0),
    "a spelled number": lambda one: one.update(share="Infinity"),
    "an empty list": lambda one: one.update(traits=[]),
    "a text for a number": lambda one: one.update(
        difference={"kind": "shape", "output": "o", "got": "(2, 3)"}
    ),
}


@pytest.mark.parametrize("change", [*WRONG, *RIGHT])
def test_a_line_is_valid_if_and_only_if_the_schema_says_so(tmp_path, change):
    path = write_run(tmp_path / "a.jsonl")
    runs_of(path)  # the parts of valid lines are known
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines):
        if '"verdict"' not in text:
            continue
        entry = copy.deepcopy(json.loads(text))
        (WRONG | RIGHT)[change](entry["verdict"])
        schema = results_file._schema()
        valid = schema.is_valid(entry)
        assert valid == (change in RIGHT)
        changed = [*lines[:number], json.dumps(entry), *lines[number + 1 :]]
        path.write_text("\n".join(changed) + "\n", encoding="utf-8")
        if valid:
            assert len(runs_of(path)[0].verdicts) == len(verdicts("mine:f"))
        else:
            with pytest.raises(SpecError, match=f"line {number + 1}"):
                runs_of(path)


def test_a_fraction_is_not_valid_because_a_whole_number_was(tmp_path):
    path = write_run(tmp_path / "a.jsonl")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"numbers": 40', '"numbers": 40.0'), encoding="utf-8")
    runs_of(path)
    path.write_text(text.replace('"numbers": 40', '"numbers": 40.5'), encoding="utf-8")
    with pytest.raises(SpecError, match="numbers"):
        runs_of(path)


def test_the_schema_is_applied_to_few_lines(tmp_path, monkeypatch):
    applied = []
    schema = results_file._schema()
    own = jsonschema.Draft202012Validator.validate
    monkeypatch.setattr(type(schema), "validate", lambda self, one: (applied.append(1), own(self, one)))
    monkeypatch.setattr(results_file, "_VALID", set())
    path = write_run(tmp_path / "a.jsonl", judged=verdicts("mine:f") * 50)
    assert len(runs_of(path)[0].verdicts) == 400
    assert 5 < len(applied) < 30
