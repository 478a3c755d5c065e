"""The code that the site offers to copy holds the numbers of its vectors."""

import ctypes
import json
import math
import shutil
import subprocess

import numpy as np
import pytest

from attnspec import cases, find_case
from attnspec.conformance.judge.dtypes import in_each
from attnspec.golden import decode, from_json
from attnspec.reference.budget.budget import budget, plain


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


@pytest.mark.parametrize(
    ("library", "convert"), [("torch", lambda tensor: tensor.numpy()), ("jax", np.asarray)]
)
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
