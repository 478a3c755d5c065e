"""The page that judges one row: its script agrees with the golden vectors and with the budget."""

import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from built_site import SITE

from attnspec import cases
from attnspec.conformance.judge.dtypes import in_each
from attnspec.reference.budget.budget import budget, plain

TAKES = {"scale", "softcap", "bias", "mask", "is_causal", "query_offset", "window", "sinks", "return_lse"}
CLASSES = {"float32": "full", "float16": "cast", "bfloat16": "cast"}


def _finite(case):
    arrays = [case.arguments[name] for name in ("query", "key", "value")]
    # Minus infinity disallows a key, or is a sink without weight.
    added = [case.arguments[name] for name in ("bias", "sinks") if name in case.arguments]
    return all(np.isfinite(np.asarray(array, np.float64)).all() for array in arrays) and all(
        (np.asarray(array, np.float64) < np.inf).all() for array in added
    )


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
        } <= TAKES or not _finite(vector):  # fmt: skip
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
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
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
    done = subprocess.run([node, "-e", program], input=text, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_the_script_gives_the_values_of_the_golden_vectors_and_their_allowed_errors():
    every = [*rows()]
    used = {name for row in every for name, value in row["call"][3].items() if value not in (None, False)}
    assert used == {"scale", "softcap", "bias", "mask", "is_causal", "window", "position", "sink"}
    assert len(every) > 500
    for row, result in zip(every, computed([row["call"] for row in every]), strict=True):
        near = 1e-11 * max(map(abs, row["output"]), default=0)
        output = np.array(result["output"], np.float64)
        np.testing.assert_allclose(output, row["output"], rtol=1e-11, atol=near, err_msg=row["id"])
        np.testing.assert_allclose(result["allowed"], row["allowed"], rtol=1e-6, err_msg=row["id"])
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


@pytest.mark.parametrize("number", ["nan", "-Infinity"])
@pytest.mark.parametrize(("allowed", "rule"), [(False, "MASK-6"), (True, "NUM-11")])
def test_a_row_that_is_not_finite_is_wrong_and_the_rule_is_named(number, allowed, rule):
    call = [[1.0], [[0.5], [2.0]], [[1.0], [3.0]], {"mask": [allowed, allowed]}, "float32"]
    got = [float(number)]
    (row,) = computed([call])
    assert computed([[row, got]], "within") == [False]
    (named,) = computed([[*call, got]], "mistakes")
    assert [each["rule"] for each in named] == [rule]
