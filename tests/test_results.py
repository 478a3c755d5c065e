"""Results as a file: read back as written, compressed or not; damage and an early end show."""

import copy
import gzip
import json
import lzma
import re
from dataclasses import fields, replace
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from html_results import verdict, verdicts, write_run
from reported import ERROR, FAIL, PASS, SUBJECT, UNSUPPORTED, VERDICTS
from tests_support import command

from attnspec import SpecError, conformance
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.results import SCHEMA, Footer, Header, Subject, line
from attnspec.conformance.results_file import read, read_text, runs_of
from attnspec.conformance.verdict import (
    CLASSES,
    CODES,
    STATUSES,
    Difference,
    Raise,
    Verdict,
    from_json,
    to_json,
)
from attnspec.reference.budget.arithmetic import PROFILES
from tools.store_results import main as store

FORMAT = json.loads((Path(conformance.__file__).parent / "results.schema.json").read_text(encoding="utf-8"))
KINDS = {**FORMAT["properties"], **FORMAT["$defs"]}
ODD = (float("nan"), float("inf"), float("-inf"), "(2, 3)")


def write(path, *lines):
    path.write_text("".join(lines))
    return path


def everything():
    """Verdicts that have every field, and every spelling of a number, between them."""
    full = replace(FAIL, ignored="mask", precision="float16", declared=("ERR-6 x",), repeatable=False)
    full = replace(
        full, share=2.0, accuracy="cast", reason="why", group="plain", raised=Raise("E", "m", "f", 1, "g")
    )
    differences = [replace(FAIL.difference, got=got, share=3.0, allowed=0.5) for got in ODD]
    return (*VERDICTS, *(replace(full, difference=difference) for difference in differences))


def test_a_file_of_results_comes_back_as_it_was_and_fits_the_schema(tmp_path):
    lines = [line("header", Header("1", "quick", 7)), line("subject", SUBJECT)]
    lines += [line("verdict", verdict) for verdict in everything()]
    path = write(tmp_path / "r.jsonl", *lines, line("footer", Footer(len(everything()))))
    found = read([path])
    assert found.headers == (Header("1", "quick", 7),)
    assert found.subjects == (SUBJECT,)
    assert repr(found.verdicts) == repr(everything())  # NaN is equal to nothing
    for text in path.read_text().splitlines():
        jsonschema.validate(json.loads(text), FORMAT)


def test_a_verdict_that_was_written_before_verdicts_had_codes_gets_its_code():
    ends = [("its process was killed by SIGSEGV", "ended"), ("did not end in 2 s", "hung"), ("no", "broken")]
    others = [replace(ERROR, raised=None, reason=reason, code=code) for reason, code in ends] + [
        replace(UNSUPPORTED, lacks=(), reason=reason, declined=declined, code=code)
        for reason, declined, code in (
            ("left out: 0 s are left (--within)", False, "left out"),
            ("m:f computes no gradient: RuntimeError", False, "no gradient"),
            ("m:f computes no gradient with bias: RuntimeError", False, "no gradient of an argument"),
            ("one mask", True, "declined"),
            ("m:f takes only arrays of 4 axes", False, "not applicable"),
        )
    ]
    for each in (*VERDICTS, *others):
        entry = to_json(each)
        entry.pop("code", None)
        assert from_json(entry) == each


@pytest.mark.parametrize(
    ("kind", "thing"),
    [
        ("header", Header),
        ("subject", Subject),
        ("verdict", Verdict),
        ("footer", Footer),
        ("difference", Difference),
        ("raised", Raise),
    ],
)
def test_the_schema_has_the_fields_that_are_written(kind, thing):
    assert list(KINDS[kind]["properties"]) == [field.name for field in fields(thing)]
    assert KINDS[kind]["additionalProperties"] is False


def test_the_schema_is_of_the_version_and_the_statuses_that_are_written():
    assert KINDS["header"]["properties"]["schema"] == {"const": SCHEMA}
    assert KINDS["verdict"]["properties"]["status"]["enum"] == list(STATUSES)
    assert KINDS["verdict"]["properties"]["code"]["enum"] == list(CODES)
    needed = [name for name, found in PROFILES.items() if "float32" in found]
    assert KINDS["verdict"]["properties"]["accuracy"]["enum"] == [*CLASSES, *needed]
    jsonschema.Draft202012Validator.check_schema(FORMAT)


def test_a_run_that_was_cut_off_is_seen_as_such(tmp_path):
    whole = [line("header", Header("1")), line("subject", SUBJECT), line("verdict", PASS)]
    end = line("footer", Footer(1))
    assert read([write(tmp_path / "a", *whole, end)]).subjects[0].problem == ""
    cut = read([write(tmp_path / "b", *whole)])
    assert cut.subjects[0].problem == "backend m:f: the run was cut off after softmax-000-float32"
    assert not Report(cut).good
    several = read([write(tmp_path / "c", *whole, end, *whole)])
    assert [bool(subject.problem) for subject in several.subjects] == [False, True]


FIRST = line("header", Header("1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a header in its first line"),
        (line("subject", SUBJECT), "line 1: expected a header, got a subject"),
        (FIRST + line("footer", Footer(0)) + line("subject", SUBJECT), "line 3: expected a header, got a"),
        (FIRST + line("footer", Footer(3)), "line 2: expected 3 verdicts before it, got 0"),
        (FIRST + '{"end": null}\n', "line 2: expected header, subject, verdict, footer"),
        ('{"header": {"colour": 1}}\n', "line 1: expected schema 3, got None"),
        ("[" * 100_000 + "\n", "line 1 is no line of results (ValueError: expected less nesting"),
        ("null\n", "line 1 is no line of results"),
        ('{"header": []}\n', "line 1 is no line of results"),
        ('{"header": {"schema": 2}}\n', "line 1: expected schema 3, got 2"),
        (FIRST + '{"subject": {"name": 5}}\n', "line 2: subject"),
        (FIRST + '{"verdict": {"backend": "b", "status": "x"}}\n', "line 2: verdict"),
        (FIRST + '{"footer": {"verdicts": "many"}}\n', "line 2: footer.verdicts"),
        (FIRST + '{"x\\u001b[31m": 1}\n', "line 2: expected header, subject"),
        (FIRST.replace('"cases"', '"cases_"'), "line 1: header"),
        ('{"header": {}, "footer": {}}\n', "line 1 is no line of results"),
        ('{"header": "' + "x" * 1_000_000 + '"}\n', "line 1 is no line of results"),
    ],
)
def test_a_malformed_line_is_one_line_to_say(text, message, tmp_path):
    path = write(tmp_path / "r.jsonl", text)
    with pytest.raises(SpecError, match=re.escape(message)):
        read([path])
    run = command("table", path, status=2)
    assert len(run.output.splitlines()) == 1
    assert len(run.output) < 600
    assert "\x1b" not in run.output


WHOLE = line("header", Header("1", cases=(PASS.case,))), line("subject", SUBJECT), line("verdict", PASS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (WHOLE[0] + line("footer", Footer(0)), "run: whole"),
        ("".join(WHOLE[:2]) + line("footer", Footer(0)), "1 of 1 cases of the plan were not judged"),
        ("".join(WHOLE), f"the run was cut off after {PASS.case}"),
        ("".join(WHOLE) + line("footer", Footer(1))[:-5], "the run was cut off after"),
    ],
    ids=["no subject", "no verdict", "no footer", "half a line"],
)
def test_a_file_that_is_no_whole_run_is_not_good(text, message, tmp_path):
    run = command("table", write(tmp_path / "r.jsonl", text))
    assert run.exit_code != 0, run.output
    assert message in run.output


def test_bytes_that_are_no_text_or_expand_too_far_are_no_results(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(SpecError, match="is no file of results"):
        read([path])
    for suffix, compress in ((".xz", lzma.compress), (".gz", gzip.compress)):
        path = tmp_path / f"a.jsonl{suffix}"
        path.write_bytes(compress(b"x" * 100_000))
        assert len(read_text(path, most=100_000)) == 100_000
        with pytest.raises(ValueError, match="expands to more than 99999 bytes"):
            read_text(path, most=99_999)


def test_a_run_is_named_after_its_file_and_two_runs_of_one_backend_are_two_columns(tmp_path):
    lines = (line("header", Header("1")), line("subject", SUBJECT), line("verdict", PASS))
    end = line("footer", Footer(1))
    before, after = (write(tmp_path / name, *lines, end) for name in ("before.jsonl", "after.jsonl"))
    found = read([before, after, after])
    assert [one.name for one in found.subjects] == ["m:f", "m:f (after)", "m:f (after 2)"]
    report = Report(found)
    assert [len(report.verdicts(one)) for one in found.subjects] == [1, 1, 1]
    assert runs_of(write_run(tmp_path / "torch-2.13.0.jsonl.xz"))[0].source == "torch-2.13.0"


@pytest.mark.parametrize("damage", [lambda x: x[:-9], lambda x: x + x, lambda x: b"no" + x])
@pytest.mark.parametrize("suffix", [".xz", ".gz"])
def test_a_damaged_file_is_one_error(tmp_path, damage, suffix):
    compress = lzma.compress if suffix == ".xz" else gzip.compress
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(damage(compress(write_run(tmp_path / "a.jsonl").read_bytes())))
    with pytest.raises(SpecError, match="is no file of results"):
        runs_of(path)


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
    "a negative element": lambda x: x.update(difference={"kind": "value", "output": "o", "element": [0, -1]}),
    "null": lambda one: one.update(raised=None),
}
RIGHT = {
    "a whole number as a fraction": lambda one: one.update(numbers=3.0),
    "a spelled number": lambda one: one.update(share="Infinity"),
    "an empty list": lambda one: one.update(traits=[]),
    "a text for a number": lambda x: x.update(difference={"kind": "shape", "output": "o", "got": "(2, 3)"}),
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
        valid = jsonschema.Draft202012Validator(FORMAT).is_valid(entry)
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


STORED = Path(__file__).resolve().parents[1] / "site" / "results"


def test_stored_results_are_whole_runs_of_a_day_and_name_no_folder():
    found = sorted(STORED.glob("*"))
    assert len(found) > 20
    for path in found:
        assert re.search(r"-\d{4}-\d\d-\d\d\.jsonl\.xz$", path.name), path.name
    results = read(found[:1])
    assert results.judged_whole
    assert results.headers[0].seed is None
    for path in sorted(STORED.glob("*")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            assert [line for line in lines if '"file": "/' in line] == [], path.name


def test_a_whole_run_is_stored_and_a_part_is_not(tmp_path):
    file = "/home/me/env/lib/python3.11/site-packages/torch/nn/f.py"
    error = verdict(
        "mine:f", "errors-a", "ERR-1", "error", raised=Raise("ValueError", "x", file, 3, "f"), code="raised"
    )
    whole = write_run(tmp_path / "whole.jsonl", judged=[error])
    part = write_run(tmp_path / "part.jsonl", part="quick")
    run = CliRunner().invoke(
        store, [str(whole), str(part), "--into", str(tmp_path / "into"), "--date", "2026-01-31"]
    )
    assert "left out: mine:f in part.jsonl: expected a run of the whole suite, got quick" in run.output
    (stored,) = (tmp_path / "into").iterdir()
    assert stored.name.endswith("-2026-01-31.jsonl.xz")
    (found,) = read([stored]).verdicts
    assert found == replace(error, code="raised", raised=replace(error.raised, file="torch/nn/f.py"))
