"""The pages that compute a row or offer code agree with the golden vectors and the budget."""

import ctypes
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from built_site import SITE

from attnspec import cases, find_case
from attnspec.conformance.judge.dtypes import in_each
from attnspec.golden import decode, from_json
from attnspec.reference.budget.budget import budget, plain

TAKES = {"scale", "softcap", "bias", "mask", "is_causal", "query_offset", "window", "sinks", "return_lse"}
CLASSES = {"float32": "full", "float16": "cast", "bfloat16": "cast"}


def _at(array, place, shape):
    """The row of an array that broadcasts, at a place of the output."""
    if array is None:
        return None
    return np.broadcast_to(np.asarray(array, np.float64), shape)[place].tolist()


def rows():
    """Each row of each golden vector that the page takes: its numbers, and what is expected and allowed."""
    for vector in cases():
        if vector.operation != "attention" or vector.misuse or not {*vector.arguments} - {
            "query", "key", "value"
        } <= TAKES:  # fmt: skip
            continue
        for case in in_each(vector):
            # Without keys, the rows of numbers do not say how deep the values are.
            if case.dtype not in CLASSES or "output" not in case.expected or not case.arguments["key"].size:
                continue
            arguments = case.arguments
            output = np.asarray(case.expected["output"], np.float64)
            given = plain(case.operation, arguments)
            allowed = budget(*given, case.dtype, accuracy=CLASSES[case.dtype])
            key, value = (np.asarray(arguments[name], np.float64) for name in ("key", "value"))
            group = output.shape[-3] // key.shape[-3] if output.ndim > 2 else 1
            scores = (*output.shape[:-1], key.shape[-2])
            for place in np.ndindex(output.shape[:-1]):
                offset, sinks = np.asarray(arguments.get("query_offset", 0)), arguments.get("sinks")
                shared = (*place[:-2], place[-2] // group) if output.ndim > 2 else ()
                options = {
                    "scale": arguments.get("scale"),
                    "softcap": arguments.get("softcap"),
                    "bias": _at(arguments.get("bias"), place, scores),
                    "mask": _at(arguments.get("mask"), place, scores),
                    "is_causal": bool(arguments.get("is_causal", False)),
                    "window": arguments.get("window"),
                    "position": place[-1] + int(offset if offset.ndim == 0 else offset[place[0]]),
                    "sink": float(sinks[place[-2] if place[1:] else 0]) if sinks is not None else None,
                }
                row = [np.asarray(arguments["query"], np.float64)[place], key[shared], value[shared]]
                yield {
                    "id": f"{case.id} {case.dtype} {place}",
                    "call": [*(array.tolist() for array in row), options, case.dtype],
                    "output": output[place].tolist(),
                    "allowed": np.broadcast_to(allowed["output"], output.shape)[place].tolist(),
                    "lse": float(case.expected["lse"][place]) if "lse" in case.expected else None,
                    "allowed_lse": float(allowed["lse"][place]) if "lse" in case.expected else None,
                }


def computed(calls, function="attend"):
    # JSON has neither infinity nor NaN.
    program = (
        f"const row = require({json.dumps(str(SITE / 'assets' / 'row.js'))});"
        'const read = (_, x) => (typeof x === "string" && /^(NaN|-?Infinity)$/.test(x) ? Number(x) : x);'
        'const calls = JSON.parse(require("fs").readFileSync(0, "utf8"), read);'
        f"const results = calls.map((call) => row.{function}(...call));"
        'const write = (_, x) => (Number.isFinite(x) || typeof x !== "number" ? x : String(x));'
        "console.log(JSON.stringify(results, write));"
    )
    text = re.sub(r'"?(NaN|-?Infinity)"?', r'"\1"', json.dumps(calls))
    return run_in_node(program, input=text)


def run_in_node(program, *arguments, **options):
    """Run a script in Node.js, which few machines for Python have, and read what it prints."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    command = [node, "-e", program, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout)


def test_the_script_gives_the_values_of_the_golden_vectors_and_their_allowed_errors():
    every = [*rows()]
    used = {name for row in every for name, value in row["call"][3].items() if value not in (None, False)}
    assert used == {"scale", "softcap", "bias", "mask", "is_causal", "window", "position", "sink"}
    assert len(every) > 500
    for row, result in zip(every, computed([row["call"] for row in every]), strict=True):
        output, expected = np.array(result["output"], np.float64), np.array(row["output"])
        finite = np.isfinite(expected)
        allowed, budgets = np.array(result["allowed"], np.float64), np.array(row["allowed"])
        near = 1e-11 * np.abs(expected[finite]).max(initial=0)
        np.testing.assert_allclose(output, expected, rtol=1e-11, atol=near, err_msg=row["id"])
        np.testing.assert_allclose(allowed[finite], budgets[finite], rtol=1e-6, err_msg=row["id"])
        assert not allowed[~finite].any(), row["id"]
        if row["lse"] is not None and math.isfinite(row["lse"]):
            assert result["lse"] == pytest.approx(row["lse"], rel=1e-12, abs=1e-12), row["id"]
            assert result["allowed_lse"] == pytest.approx(row["allowed_lse"], rel=1e-6), row["id"]


def test_numbers_are_rounded_to_the_dtype():
    import ml_dtypes

    numbers = [0.1, 1 / 3, -2.7182818, 65519.0, 65521.0, 6e-8, 3e-8, 1e-40, 257.5, 258.5, 0.0]
    for dtype in CLASSES:
        kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
        with np.errstate(over="ignore"):
            expected = [float(x) for x in np.asarray(numbers).astype(kind).astype(np.float64)]
        assert [float(x) for x in computed([[x, dtype] for x in numbers], "nearest")] == expected


def test_a_common_mistake_is_named_and_nan_that_has_to_be_is_right():
    query, keys, values = [1.0, 2.0], [[0.5, 1.0], [-1.0, 0.25], [2.0, -0.5]], [[1.0], [5.0], [9.0]]
    options = {"is_causal": True, "position": 0, "mask": [True, True, True]}
    (wrong,) = computed([[query, keys, values, {"is_causal": False}, "float32"]])
    (named,) = computed([[query, keys, values, options, "float32", wrong["output"]]], "mistakes")
    assert {"rule": "MASK-3", "text": "causality has no effect"} in named
    (none,) = computed([[query, keys, values, options, "float32", [100.0]]], "mistakes")
    assert none == []
    call = [[1.0], [[0.5], [2.0]], [[1.0], [3.0]], {"bias": [0.0, math.inf]}, "float32"]
    (row,) = computed([call])
    assert row["output"] == ["NaN"]
    assert computed([[row | {"output": [math.nan]}, [math.nan]]], "within") == [True]
    (named,) = computed([[*call, [3.0]]], "mistakes")
    assert {"rule": "NUM-11", "text": "a score of NaN or infinity does not make its row NaN"} in named


FIELDS = {
    "dtype": "float16",
    "query": "1 2",
    "keys": "1 0\n0 1\n1 1",
    "values": "1\n2\n3",
    **dict.fromkeys(("output", "scale", "softcap", "bias", "mask", "position", "window", "sink"), ""),
}


def read(changes, *, is_causal=False):
    """What the page reads, or the error that it shows."""
    program = (
        f"const {{ read }} = require({json.dumps(str(SITE / 'assets' / 'fields.js'))});"
        "const [fields, is_causal] = JSON.parse(process.argv[1]);"
        "const write = (_, x) => (Number.isFinite(x) || typeof x !== 'number' ? x : String(x));"
        "try { console.log(JSON.stringify(read((name) => fields[name], is_causal), write)); }"
        "catch (error) { console.log(JSON.stringify(error.message)); }"
    )
    return run_in_node(program, json.dumps([FIELDS | changes, is_causal]))


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"window": "-1 0"}, ("window", "got -1", "ERR-7", "None")),
        ({"window": "0.5 0"}, ("window", "whole numbers", "got 0.5")),
        ({"window": "1 0"}, ("position", "MASK-7", "2 is that of the last key")),
        ({"mask": "0 -inf 0"}, ("mask", "“-inf”", "field bias", "MASK-2")),
        ({"mask": "1 0"}, ("mask: expected 3 entries", "got 2")),
        ({"values": "1\n70000\n3"}, ("values", "float16 holds, up to 65504", "got 70000")),
        ({"keys": "1 0\n0 x\n1 1"}, ("keys: expected numbers, got “x”",)),
        ({"keys": "1 0\n-0,5 1\n1 1"}, ("keys: expected a decimal point, got “-0,5”",)),
        ({"scale": "0,5"}, ("scale: expected numbers, got “0,5”", "decimal point")),
    ],
)
def test_an_error_of_a_field_says_what_is_expected(changes, texts):
    error = read(changes)
    assert isinstance(error, str)
    for text in texts:
        assert text in error


def test_fields_are_read_as_libraries_print_them():
    assert "position" in read({}, is_causal=True)
    got = read(
        {
            "keys": "tensor([[1., nan], [0., 1.], [1., inf]], dtype=torch.float16)",
            "mask": "[True, False, T]",
            "window": "(None, 1)",
            "position": "2",
        },
        is_causal=True,
    )
    assert got["keys"] == [[1, "NaN"], [0, 1], [1, "Infinity"]]
    assert got["options"]["mask"] == [True, False, True]
    assert got["options"]["window"] == [None, 1]
    assert got["options"]["position"] == 2
    assert read({"window": ", 1", "position": "0"})["options"]["window"] == [None, 1]
    assert read({"bias": "0 -inf 0"})["options"]["bias"] == [0, "-Infinity", 0]


@pytest.mark.parametrize(
    ("keys", "values", "got", "rule"),
    [
        ([[0.5], [2.0]], [[1.0], [math.nan]], [1.0], "NUM-12"),
        ([[0.5], [2.0]], [[1.0], [math.inf]], [math.nan], "NUM-13"),
        ([[0.5], [2.0], [math.nan]], [[1.0], [3.0], [1.0]], [math.nan], "MASK-13"),
    ],
)
def test_the_rule_about_numbers_that_are_not_finite_is_named(keys, values, got, rule):
    call = [[1.0], keys, values, {"mask": [True, True, False][: len(keys)]}, "float16"]
    (row,) = computed([call])
    assert computed([[row, got]], "within") == [False]
    (named,) = computed([[*call, got]], "mistakes")
    assert named[-1]["rule"] == rule


def test_a_printed_number_may_be_off_by_half_of_its_last_digit():
    (row,) = computed([[[1.0], [[0.0], [0.0], [0.0]], [[1.0], [1.0], [3.0]], {}, "float32"]])
    halves = read({"output": "1.6667"})["halves"]
    calls = [[row, [1.6667]], [row, [1.6667], halves], [row, [1.6668], halves]]
    assert computed(calls, "within") == [False, True, False]
    assert read({"output": "-1.50e-2"})["halves"] == pytest.approx([5e-5])
    assert read({"output": "[2.]"})["halves"] == [0]


@pytest.mark.parametrize("number", ["nan", "-Infinity"])
@pytest.mark.parametrize(("allowed", "rule"), [(False, "MASK-6"), (True, "NUM-11")])
def test_a_row_that_is_not_finite_is_wrong_and_the_rule_is_named(number, allowed, rule):
    call = [[1.0], [[0.5], [2.0]], [[1.0], [3.0]], {"mask": [allowed, allowed]}, "float32"]
    got = [float(number)]
    (row,) = computed([call])
    assert computed([[row, got]], "within") == [False]
    (named,) = computed([[*call, got]], "mistakes")
    assert [each["rule"] for each in named] == [rule]


def _arrays(group):
    return [thing for thing in group.values() if isinstance(thing, np.ndarray)]


def _floats(group):
    return [np.asarray(thing, np.float64) for thing in _arrays(group) if thing.dtype.kind == "f"]


#: Cases with booleans, NaN and infinities, no elements, integers, pairs, bfloat16 and a refusal.
CASES = tuple(
    {
        next(case.id for case in cases() if fits(case)): None
        for fits in (
            lambda case: case.id == "masking-empty-first",
            lambda case: any(np.isnan(x).any() for x in _floats(case.arguments)),
            lambda case: any(np.isneginf(x).any() for x in _floats(case.arguments)),
            lambda case: any(x.size == 0 for x in _arrays(case.arguments)),
            lambda case: any(x.dtype.kind == "i" for x in _arrays(case.arguments)),
            lambda case: any(isinstance(x, tuple) for x in case.arguments.values()),
            lambda case: any(x.ndim == 4 for x in _arrays(case.arguments)),
            lambda case: any(str(x.dtype) == "float32" for x in _arrays(case.arguments)),
            lambda case: case.misuse and not case.expected,
        )
    }
)


def _same(name, got, expected):
    __tracebackhide__ = True
    if isinstance(expected, np.ndarray):
        got = np.asarray(got)
        assert got.shape == expected.shape, name
        assert str(got.dtype) == str(expected.dtype), name
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64), err_msg=name)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(got), name
    else:
        assert got == expected, name
        assert type(got) is type(expected), name


def _run(text, case, convert=np.asarray):
    """Run a snippet, and compare what it assigns with the case."""
    scope = {}
    exec(text, scope)
    for name, thing in case.arguments.items():
        _same(name, convert(scope[name]) if isinstance(thing, np.ndarray) else scope[name], thing)
    assert set(scope.get("expected", {})) == set(case.expected)
    for name, array in case.expected.items():
        _same(name, convert(scope["expected"][name]), array)


def _cases(name):
    """A golden vector in each dtype that holds its inputs, as the suite judges it."""
    return {case.dtype: case for case in in_each(find_case(name))}


def test_a_copy_for_numpy_holds_the_numbers_of_its_vector(site):
    for case in cases():
        copies = site.copies(case.id)
        dtype, *_ = (name for name in ("float32", *copies) if name in copies)
        _run(copies[dtype]["numpy"], _cases(case.id)[dtype])


@pytest.mark.parametrize(("library", "convert"), [("torch", lambda x: x.numpy()), ("jax", np.asarray)])
@pytest.mark.parametrize("name", CASES)
def test_a_copy_for_an_array_library_holds_the_numbers_of_its_vector(site, name, library, convert):
    for dtype, case in _cases(name).items():
        if (library, dtype) != ("torch", "bfloat16"):  # NumPy takes no such tensor
            _run(site.copies(name)[dtype][library], case, convert)


@pytest.mark.parametrize("name", CASES)
def test_a_copy_for_c_compiles_and_holds_the_numbers_of_its_vector(site, name, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    dtype, case = [*_cases(name).items()][-1]
    text = site.copies(name)[dtype]["c"]
    path = tmp_path / "vector.c"
    # Without `static`, the constants are symbols of the library.
    path.write_text(text.replace("static const", "const"), encoding="utf-8")
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(tmp_path / "vector.so"), str(path)], check=True)
    library = ctypes.CDLL(str(tmp_path / "vector.so"))
    types = {"float64": ctypes.c_double, "int64": ctypes.c_int64, "bool": ctypes.c_bool}
    group = {**case.arguments, **{f"expected_{key}": array for key, array in case.expected.items()}}
    compared = 0
    for key, thing in group.items():
        if isinstance(thing, np.ndarray) and thing.size:
            kind = types.get(str(thing.dtype), ctypes.c_float)
            got = list((kind * thing.size).in_dll(library, key))
            np.testing.assert_array_equal(
                got, thing.astype(np.float64).ravel() if thing.dtype != bool else thing.ravel()
            )
            compared += 1
        elif isinstance(thing, float) and not isinstance(thing, bool):
            assert ctypes.c_double.in_dll(library, key).value == pytest.approx(
                thing, rel=0, abs=0, nan_ok=True
            )
            compared += 1
    assert compared or all(array.size == 0 for array in _arrays(group))


@pytest.mark.parametrize("name", CASES)
def test_a_copy_as_json_is_an_entry_of_a_vector_file(site, name):
    for dtype, case in _cases(name).items():
        entry = from_json(json.loads(site.copies(name)[dtype]["json"]))
        for key, array in case.expected.items():
            np.testing.assert_array_equal(entry.expected[key], array)
        assert set(entry.arguments) == set(case.arguments)


@pytest.mark.parametrize("name", CASES)
def test_copies_hold_the_errors_that_the_budget_allows_in_each_dtype(site, name):
    """A budget computed here, without the way by which the site has it."""
    by_dtype = _cases(name)
    assert list(site.copies(name)) == list(by_dtype)
    for dtype, case in by_dtype.items():
        copies, scope = site.copies(name)[dtype], {}
        exec(copies["numpy"], scope)
        allowed = scope.get("allowed", {})
        entry = decode(json.loads(copies["json"]).get("allowed", {}))
        assert set(allowed) == set(entry) == (set() if case.misuse else set(case.expected))
        if not allowed:  # the call must be rejected
            continue
        operation, arguments = plain(case.operation, case.arguments)
        accuracy = "cast" if dtype in ("float16", "bfloat16") else "full"
        budgets = budget(operation, arguments, dtype, accuracy=accuracy)
        for output, array in allowed.items():
            ordinary = np.isfinite(array)
            expected = np.broadcast_to(budgets[output], array.shape)
            # An allowed error is the budget, rounded up to 8 significand bits.
            got, exact = array[ordinary], expected[ordinary]
            assert ((got >= exact * (1 - 2.0**-39)) & (got <= exact * (1 + 2.0**-7))).all(), (dtype, output)
            assert (np.frexp(got)[0] * 2**8 % 1 == 0).all(), (dtype, output)
            np.testing.assert_array_equal(entry[output], array)
            assert f"allowed_{output}" in copies["c"]
            # Only what is not a number has no ordinary budget.
            values = case.expected.get("lse", case.expected[output])
            assert ordinary.all() or not np.isfinite(values).all()
