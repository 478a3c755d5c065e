"""Packed, paged and quantized attention: the examples conform, and a variant is named; weights of 8 bits."""

import importlib.util
import shutil
import struct
import subprocess
import sys
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests_support import attnspec, whole_suite

from attnspec import cases
from attnspec.backends import describe, load
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite.quantization import draw_codes
from attnspec.reference import dequantize, dequantize_blocks
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact import evaluate as exact
from attnspec.reference.rational import evaluate as rational
from tools.units import to_nearest

EXAMPLES = Path(__file__).parents[1] / "examples"
FORMS = {"packed": "PACK-", "paged": "PAGE-"}


@cache
def about(prefix):
    return [one for one in whole_suite() if any(rule.startswith(prefix) for rule in one.rules)]


def verdicts(backend, prefix):
    return [judge(backend, one) for one in about(prefix)]


def described(name, *changes):
    """The kernel of an example, with some changes of its source."""
    source = (EXAMPLES / name / "kernel.py").read_text()
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    module = {"__name__": name}
    exec(compile(source, f"{name}.py", "exec"), module)
    operation = f"{name}_attention"
    return describe(module["attention"], name=name, axes=4, companions={operation: module[operation]})


@pytest.mark.parametrize("name", FORMS)
def test_an_example_in_python_conforms(name):
    found = verdicts(described(name), FORMS[name])
    assert {one.status for one in found} - {"unsupported"} == {"pass"}
    assert sum(one.status == "pass" for one in found) > 40
    run = attnspec(
        "check", EXAMPLES / name, "-k", f"{FORMS[name]}1", "--dtype", "float32", "--table", status=0
    )
    assert f"{FORMS[name]}1" in run.stdout


#: Served examples, and the rules by which they accept a call that must be rejected: as production kernels,
#: they check what would make them read past their pages, and little else.
SERVED = {
    "extend": {"ERR-2", "ERR-5", "ERR-6", "SCORE-6"},
    "wrapper": {"ERR-2", "ERR-5", "ERR-6", "ERR-16", "HEAD-2", "SCORE-6"},
}


@pytest.mark.parametrize("name", SERVED)
def test_an_example_of_a_served_call_conforms(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "kernel", raising=False)
    backend = load(str(EXAMPLES / name))
    suite = [case for case in whole_suite() if case.operation == "packed_paged_attention"]
    found = {case.name: judge(backend, case) for case in suite}
    values = [found[case.name].status for case in suite if not case.refusal]
    assert {*values} - {"unsupported"} == {"pass"}
    assert values.count("pass") > 15
    refusals = [found[case.name] for case in suite if case.refusal]
    assert {verdict.rule for verdict in refusals if verdict.status == "fail"} == SERVED[name]
    assert not [verdict for verdict in refusals if verdict.status == "error"]


def test_init_writes_the_configuration_of_the_extend_kernel(tmp_path):
    shutil.copy(EXAMPLES / "extend" / "kernel.py", tmp_path)
    attnspec("init", "kernel:extend_attention", status=0, cwd=tmp_path)
    tables = (tomllib.loads((path / "attnspec.toml").read_text()) for path in (tmp_path, EXAMPLES / "extend"))
    written, own = (table["backend"] for table in tables)
    assert written == own | {"array": "numpy"}


def test_the_example_in_c_conforms(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) is installed")
    words = ["-O2", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "packed", EXAMPLES / "packed.c", "-lm"]
    subprocess.run([compiler, *words], check=True)
    found = verdicts(load(f"program:{tmp_path / 'packed'}"), FORMS["packed"])
    assert {one.status for one in found} - {"unsupported"} == {"pass"}
    assert sum(one.status == "pass" for one in found) > 40


def test_sequences_aligned_at_their_end_are_a_variant():
    """As `flash_attn_varlen_func` aligns them. Undeclared, it is named; declared, it is verified."""
    ahead = "np.diff(key_starts) - np.diff(query_starts)"
    given = "np.broadcast_to(query_offset, len(query_starts) - 1)"
    backend = described(
        "packed", (given, f"{ahead} if type(query_offset) is int and not query_offset else {given}")
    )
    undeclared = [one for one in verdicts(backend, "PACK-5") if one.status == "fail"]
    assert undeclared
    assert {(one.rule, one.variant) for one in undeclared} >= {("PACK-5", "bottom-right")}
    declaring = replace(backend, dialect={"PACK-5": "bottom-right"})
    declared = verdicts(declaring, "PACK-")
    assert {one.status for one in declared} == {"pass", "deviation", "unsupported"}
    assert {one.rule for one in declared if one.status == "deviation"} == {"PACK-5"}


FORMATS = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "e8m0fnu": ml_dtypes.float8_e8m0fnu,
}
EVERY = np.arange(256, dtype=np.uint8).reshape(16, 16)


def by_reference(arguments):
    return dequantize(**arguments)


def by_exact(arguments):
    return exact.evaluate("dequantize", arguments)["dequantized"].values


def by_rational(arguments):
    return rational.evaluate("dequantize", arguments)["dequantized"]


@pytest.mark.parametrize("decode", [by_reference, by_exact, by_rational])
@pytest.mark.parametrize("encoding", FORMATS)
def test_every_code_stands_for_the_number_that_ml_dtypes_gives(encoding, decode):
    expected = EVERY.view(FORMATS[encoding]).astype(np.float64)
    found = decode({"scales": np.ones(1), "codes": EVERY, "encoding": encoding})
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.isnan(expected).sum() == {"e4m3fn": 2, "e5m2": 6}.get(encoding, 1)


@pytest.mark.parametrize("decode", [by_reference, by_exact, by_rational])
def test_every_code_of_four_bits_stands_for_the_number_that_ml_dtypes_gives(decode):
    numbers = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    assert numbers[:8].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    call = {"scales": np.ones(1), "codes": np.arange(16)[None], "encoding": "e2m1fn"}
    assert decode(call)[0].tolist() == numbers.tolist()


@pytest.mark.parametrize("encoding", [name for name in FORMATS if name != "e8m0fnu"])
def test_the_golden_vectors_have_every_code(encoding):
    """But those of powers of two, which are too large or too small for some dtypes."""
    proven = [case for case in cases() if case.operation == "dequantize" and case.expected]
    own = [case for case in proven if case.arguments.get("encoding") == encoding]
    codes = np.concatenate([case.arguments["codes"].ravel() for case in own])
    numbers = np.concatenate([case.expected["dequantized"].ravel() for case in own])
    assert codes.tolist() == list(range(256))
    assert np.array_equal(numbers, codes.view(FORMATS[encoding]).astype(np.float64), equal_nan=True)


def parts_of(data, size):
    """Split the bytes of one block of gguf into its scale and its codes."""
    scale = struct.unpack("<e", data[:2])[0]
    return np.array([[scale]], np.float16), np.frombuffer(data[2:], np.uint8).reshape(1, 1, size)


#: Blocks of the numbers -16 to 15 times 0.25, as `gguf` 0.19.0 packs them (`gguf.quants.quantize`).
STORED = {
    "q8_0": "082881899199a1a9b1b9c0c8d0d8e0e8f0f8000810182028303840474f575f676f77",
    "q4_0": "0038809191a2a2b3b3c4c4d5d5e6e6f7f7f8",
}


@pytest.mark.parametrize("blocks", STORED)
def test_blocks_of_gguf_are_decoded_to_what_was_packed(blocks):
    data = bytes.fromhex(STORED[blocks])
    found = dequantize_blocks(*parts_of(data, len(data) - 2), blocks=blocks)[0]
    step = {"q8_0": 4 / 127, "q4_0": 0.5}[blocks]
    assert np.abs(found - np.arange(-16, 16) / 4).max() <= step * 1.01
    assert found[0] == pytest.approx(-4, abs=step / 8)


@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="needs gguf")
@pytest.mark.parametrize("blocks", STORED)
def test_gguf_decodes_random_bytes_alike(blocks):
    import gguf

    random = np.random.default_rng(3)
    kind = gguf.GGMLQuantizationType[blocks.upper()]
    size = gguf.GGML_QUANT_SIZES[kind][1] - 2
    scales = random.normal(size=(5, 3)).astype(np.float16)
    packed = random.integers(0, 256, (5, 3, size)).astype(np.uint8)
    data = np.concatenate([scales[..., None].view(np.uint8), packed], axis=-1).reshape(5, -1)
    expected = gguf.quants.dequantize(data, kind)
    assert np.array_equal(dequantize_blocks(scales, packed, blocks=blocks, dtype=np.float32), expected)


def test_budgets_of_codes_are_those_of_the_shifted_codes():
    codes, query = np.array([[100, -3], [50, 7]]), np.ones((1, 2))
    given = {"query": query, "key_codes": codes, "value_codes": codes}
    shifted = {**given, "key_codes": codes - 40, "value_codes": codes + 9}
    points = {"key_zero_points": np.array([40]), "value_zero_points": np.array([-9])}
    one = budget("quantized_attention", given | points, "float16")["output"]
    assert np.array_equal(one, budget("quantized_attention", shifted, "float16")["output"])


def test_weights_of_eight_bits_are_rounded_as_the_codes_are_decoded():
    numbers = dequantize(np.ones(1), np.arange(127, dtype=np.uint8)[None], encoding="e4m3fn")[0]
    assert np.array_equal(to_nearest(numbers.astype(np.float32)), numbers)
    middle = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
    assert np.isin(to_nearest(middle), numbers).all()
    assert to_nearest(np.float32([464, 1e6])).tolist() == [448, 448]
    one = np.ones((1, 1))
    call = "attention", {"query": one, "key": one, "value": one}, "float16"
    found, other = (budget(*call, accuracy="cast", profile=profile) for profile in ("fp8", "matrix"))
    assert (found["output"], found["lse"]) == (other["output"], other["lse"])
    own = [case for case in cases() if case.operation == "low_precision_attention"]
    assert {case.rules[0] for case in own} == {"QUANT-10", "QUANT-11", "QUANT-16"}


def test_half_precision_allows_weights_of_eight_bits_only_where_the_query_is_codes_too():
    random = np.random.default_rng(6)
    codes = {f"{name}_codes": draw_codes(random, "e4m3fn", (40, 4)) for name in ("query", "key", "value")}
    scales = np.ones((1, 1), np.float16)
    query = dequantize(scales, codes["query_codes"], encoding="e4m3fn")
    rest = {n: x for n, x in codes.items() if n != "query_codes"} | {"encoding": "e4m3fn"}
    coded = codes | {"query_scales": scales, "encoding": "e4m3fn"}
    for dtype, wider in (("float16", True), ("float32", False)):
        one = budget("low_precision_attention", coded, dtype, accuracy="cast")["output"]
        other = budget("quantized_attention", rest | {"query": query}, dtype, accuracy="cast")["output"]
        assert bool((one > 4 * other).any()) == wider
    full = budget("low_precision_attention", coded, "float16", accuracy="full")["output"]
    assert (full < budget("low_precision_attention", coded, "float16", accuracy="cast")["output"]).all()
