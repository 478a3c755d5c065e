"""Exported cases: every form holds what the judge compares with, and the header in C judges alike."""

import ctypes
import json
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests_support import quick_suite

from attnspec import SpecError, find_rule
from attnspec.backends import load
from attnspec.conformance.export.calls import ExportedCall, exported_calls
from attnspec.conformance.export.formats import HEADER
from attnspec.conformance.export.write import FORMATS, write
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find
from attnspec.golden import array as array_of

ROOT = Path(__file__).parent.parent
PACK = ROOT / "spec" / "pack"
JUDGE = PACK / "judge.c"
CC = shutil.which("cc")
STRICT = ("-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler")


#: A part of the suite with every chapter, dtype and kind of case.
def of_each_kind():
    """A case of each operation and each choice of outputs."""
    kinds = {}
    for item in quick_suite():
        for case in getattr(item, "calls", (item,)):
            kinds.setdefault((case.operation, case.outputs, case.arguments.get("return_max")), item)
    return kinds.values()


NAMED = ("masking-no-keys-float32", "masking-finite-garbage-is-causal-and-largest-1-float64")
SEVERAL = (*quick_suite()[::16], *of_each_kind(), *map(find, NAMED))
PART = [*{item.name: item for item in SEVERAL}.values()]

#: The functions of the header that the tests call.
WRAPPED = Path(__file__).with_name("sources").joinpath("wrapped.c").read_text(encoding="utf-8")


def compiled(folder, source, *words):
    path = folder / "wrapped.c"
    path.write_text(source, encoding="ascii")
    command = [CC, *STRICT, *words, "-I", HEADER.parent, "-o", folder / "made", path, "-lm"]
    subprocess.run(command, check=True)
    return folder / "made"


def judged(*words):
    """Run a program on an exported folder."""
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The part of the suite in the raw form."""
    folder = tmp_path_factory.mktemp("raw")
    write(PART, folder, "raw")
    return folder


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    library = ctypes.CDLL(str(compiled(tmp_path_factory.mktemp("header"), WRAPPED, "-shared", "-fPIC")))
    for name in ("name_of", "error_of", "level_of", "why"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("program"), JUDGE.read_text())


#: The dtypes that an output of a kind may have in a call of a dtype.
ACCEPTED = {
    "number": lambda dtype: (dtype,),
    "lse": lambda dtype: ("float32", "float64") if dtype != "float64" else ("float64",),
    "wider": lambda dtype: (dtype, "float64", *(("float32",) if dtype != "float64" else ())),
}


def rounded(output, dtype):
    kind = output.kind
    with np.errstate(over="ignore", invalid="ignore"):
        return output.expected.astype(ACCEPTED[kind](dtype)[0] if kind in ACCEPTED else kind)


def told_by(header, output, array):
    shape = (ctypes.c_int64 * 8)(*array.shape)
    data = np.ascontiguousarray(array)
    dtype = array.dtype.name.encode()
    place = ctypes.c_void_p(data.ctypes.data)
    return bool(header.judge(output.name.encode(), dtype, array.ndim, shape, place))


def allows(output, array, key):
    """Whether an output may have these numbers: written again, in other words than those of the header."""
    accepted = ACCEPTED[output.kind](key[0]) if output.kind in ACCEPTED else (output.kind,)
    if array.shape != output.expected.shape or array.dtype.name not in accepted:
        return False
    got, expected, allowed = array.astype(np.float64), output.expected, output.allowed[key]
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.isfinite(got) & np.isfinite(expected) & (np.abs(got - expected) <= allowed)
    same = (got == expected) & ~np.isfinite(got)
    both = np.isnan(got) & (np.isnan(expected) | ((expected == np.inf) & (allowed == np.inf)))
    return bool((near | same | both | np.isnan(allowed)).all())


def wrong(array, output, key):
    """Return outputs, most of which are wrong in one element."""
    found = [array[..., :-1] if array.ndim else array[None, None], array[None]]
    with np.errstate(over="ignore", invalid="ignore"):
        found.append(array.astype("float16" if array.dtype == "float32" else "float32"))
        for place in [*np.ndindex(array.shape)][:: max(1, array.size // 3)]:
            near = array[place].astype(np.float64) + 2 * output.allowed[key][place]
            for number in (np.nan, np.inf, 0.0, near, np.nextafter(array[place], array.dtype.type(9))):
                found.append(array.copy())
                found[-1][place] = number
    return found


@pytest.mark.exhaustive
def test_an_error_is_nan_only_where_nothing_is_defined():
    """Anything is within it."""
    undefined = {
        output.name
        for one in exported_calls(PART)
        if isinstance(one, ExportedCall)
        for output in one.outputs
        if any(np.isnan(allowed).any() for allowed in output.allowed.values())
    }
    assert undefined <= {"weights"}


@needs_cc
def test_the_header_judges_as_the_judge_does(exported, header):
    assert header.open_suite(str(exported).encode())
    told = Counter()
    for one in exported_calls(PART):
        if not isinstance(one, ExportedCall):
            continue
        assert header.next_case() == 1
        assert header.name_of().decode() == one.name
        assert header.level_of().decode() == find_rule(one.rules[0]).level
        for output in one.outputs:
            for key in output.allowed if output.kind != "counts" else ():
                dtype, accuracy = key
                assert header.choose(dtype.encode(), accuracy.encode())
                right = rounded(output, dtype)
                assert told_by(header, output, right), (one.name, output.name, key, header.why())
                assert not told_by(header, replace(output, name=output.name[:-1]), right), "no such output"
                for other in wrong(right, output, key):
                    got = told_by(header, output, other)
                    assert got == allows(output, other, key), (one.name, output.name, key, header.why())
                    told[got] += 1
        assert not header.choose(b"float8", b"full")
        if one.at_fault:
            assert header.names(f"{one.at_fault[0]}: expected something else".encode())
            assert not header.names(b"expected something else")
    assert header.next_case() == 0
    header.close_suite()
    assert min(told.values()) > 500


#: The replacements in the index that damage it.
EDITS = {
    "another format": ("attnspec 2", "attnspec 3"),
    "a place outside": ("array query number bfloat16 ", "array query number bfloat16 9"),
    "a negative place": ("array query number bfloat16 ", "array query number bfloat16 -"),
    "a huge shape": ("key number bfloat16 ", "key number bfloat16 0 3 9999999 9999999 9999999 "),
    "a shape that overflows": ("key number bfloat16 ", "key number bfloat16 0 2 4294967296 4294967296 "),
    "a negative length": ("key number bfloat16 ", "key number bfloat16 0 2 -1 4 "),
    "too many axes": ("key number bfloat16 ", "key number bfloat16 0 99 1 "),
    "an unknown dtype": ("array key number bfloat16 ", "array key number bfloat17 "),
    "a line too long": ("array key number", f"array {'k' * 5000} number"),
    "many arguments": ("rejection never", "rejection never\n" + "flag a 1\n" * 99),
    "no end": ("\nend\n", "\n"),
    "fewer cases": ("\ncases ", "\ncases 1"),
    "an unknown line": ("rejection never", "rejection never\nlink ../secret"),
    "no rule": ("\nrule ", "\nflag "),
    "a chapter that is a path": ("chapter masking", "chapter ../masking"),
    "allowed errors of nothing": ("\noutput output", "\nallowed float32 full bfloat16 0\noutput output"),
}
HOSTILE = {
    "no index": lambda folder: (folder / "cases.txt").unlink(),
    "no arrays": lambda folder: (folder / "masking.bin").unlink(),
    "arrays cut off": lambda folder: cut(folder / "masking.bin", 100),
    "index cut off": lambda folder: cut(folder / "cases.txt", 400),
    **{name: lambda folder, edit=edit: edited(folder, *edit) for name, edit in EDITS.items()},
}


def cut(path, size):
    assert path.stat().st_size > size
    path.write_bytes(path.read_bytes()[:size])


def edited(folder, old, new):
    path = folder / "cases.txt"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@needs_cc
@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_folder_is_refused_by_name(name, program, tmp_path):
    write([find("masking-causal-square-float32"), find("masking-no-keys-float32")], tmp_path, "raw")
    (tmp_path / "secret").write_text("")
    HOSTILE[name](tmp_path)
    run = judged(program, tmp_path)
    assert run.returncode == 2, run.stdout
    assert ": expected " in run.stderr
    assert len(run.stderr.splitlines()) <= 2


@pytest.mark.exhaustive
def test_every_form_holds_the_same_numbers(tmp_path):
    part = [item for item in PART if item.dtype in ("float32", "float64")][:40]
    plain = {one.name: one for one in exported_calls(part) if isinstance(one, ExportedCall)}
    counts = {form: write(part, tmp_path / form, form) for form in FORMATS if form != "onnx"}
    assert len({(one.calls, one.left_out) for one in counts.values()}) == 1
    head, *lines = map(json.loads, (tmp_path / "json" / "cases.jsonl").read_text().splitlines())
    assert head["format"] == 2
    assert [line["name"] for line in lines] == list(plain)
    index = json.loads((tmp_path / "npz" / "cases.json").read_text())["cases"]
    from safetensors.numpy import load_file

    for line, entry in zip(lines, index, strict=True):
        one = plain[entry["name"]]
        tensors = np.load(tmp_path / "npz" / entry["file"], allow_pickle=False)
        others = load_file(tmp_path / "safetensors" / entry["file"].replace(".npz", ".safetensors"))
        assert line["rules"][0]["id"] == entry["rules"][0]["id"] == one.rules[0]
        for name, array in one.arguments.items():
            if isinstance(array, np.ndarray):
                key = f"{one.name}/arguments/{name}"
                for got in (tensors[key], others[key], array_of(line["arrays"][name])):
                    np.testing.assert_array_equal(got, array, strict=True)
        for output in one.outputs:
            written = line["outputs"][output.name]
            for got in (tensors[f"{one.name}/expected/{output.name}"], array_of(written["expected"])):
                np.testing.assert_array_equal(got, output.expected)
            for (dtype, accuracy), allowed in output.allowed.items():
                stored = tensors[f"{one.name}/allowed/{output.name}/{dtype}/{accuracy}"]
                for got in (stored, array_of(written["allowed"][f"{dtype} {accuracy}"])):
                    np.testing.assert_array_equal(got, allowed)


@pytest.mark.exhaustive
def test_onnx_runs_what_is_exported_for_it(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    quick = [item for item in quick_suite() if item.dtype == "float32"]
    part = [item for item in quick if item.chapter in ("masking", "scores")][::3]
    assert write(part, tmp_path, "onnx").calls > 50
    backend = load("onnx-reference")
    found = Counter()
    for one in exported_calls(part):
        folder = tmp_path / f"{one.name}+float32"
        if not folder.exists():
            continue

        def read(name, folder=folder):
            tensor = onnx.TensorProto.FromString((folder / "test_data_set_0" / f"{name}.pb").read_bytes())
            return onnx.numpy_helper.to_array(tensor)

        model = onnx.load(folder / "model.onnx")
        inputs = {each.name: read(f"input_{place}") for place, each in enumerate(model.graph.input)}
        expected, allowed = read("output_0"), read("allowed_0")
        (output,) = (output for output in one.outputs if output.name == "output")
        key = "float32", "full"
        np.testing.assert_array_equal(allowed, output.allowed[key])
        try:
            with np.errstate(all="ignore"):
                got = np.asarray(ReferenceEvaluator(model).run(None, inputs)[0])
            passes = allows(output, got, key)
        except (ValueError, IndexError):  # what its reference does to a call without keys
            passes = False
        np.testing.assert_array_equal(expected, output.expected.astype(np.float32))
        found[passes] += 1
        if not passes and "+" not in one.name:
            assert judge(backend, find(one.name)).status in ("deviation", "fail", "error", "should not met")
    assert found[True] > 50


def test_an_unknown_form_is_refused(tmp_path):
    with pytest.raises(SpecError, match=r"format: expected one of raw, json, npz, .*, got 'csv'"):
        write([], tmp_path, "csv")


@pytest.mark.exhaustive
def test_what_cannot_be_judged_by_arrays_is_listed(tmp_path):
    repeated = [item for item in quick_suite() if item.rules[0] in ("NUM-9", "INV-1")][:5]
    made = write([*repeated, find("masking-no-keys-float32")], tmp_path, "json")
    assert made.left_out == tuple(item.name for item in repeated)
    assert (tmp_path / "left_out.txt").read_text().split() == [item.name for item in repeated]


def test_numbers_past_the_largest_of_a_dtype_are_infinite_in_it():
    case = find("numerics-decoded-numbers-past-the-largest-1-float32")
    (call,) = exported_calls([case])
    assert call.dtypes == ("float32",)
    assert np.isinf(call.outputs[0].expected).tolist() == [[False, False, True, True]]
