"""What `attnspec init` writes of a function that takes few calls, is wrong in most, or leaves rows empty."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from conventions import of_the_first_length
from tests_support import command

from attnspec.backends import load
from attnspec.backends.user.inference import infer_configuration
from attnspec.conformance import check
from attnspec.operations.aliases import meant

#: Functions with unusual conventions.
CONVENTIONS = Path(__file__).parent / "conventions.py"
#: Kernels over packed rows and pages.
SERVED = Path(__file__).parent / "served.py"

pytestmark = pytest.mark.usefixtures("here_beside_tests")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            f"{SERVED}:decode_of_a_wrong_scale",
            "no call computed paged_attention; with this layout it is nearest",
        ),
        ("conventions:wrong_altogether", "no call computed attention; with this layout it is nearest, by 0."),
    ],
)
@pytest.mark.sample(1)
def test_a_function_that_is_always_wrong_is_described_by_the_nearest_and_fails(place, said):
    output = command("init", place, status=0).output
    assert said in output
    assert 'guesses = ["layout"' in output
    found = check(load("."), rules=["SOFT-1", "PAGE-1"], dtypes=["float32"], quick=True)
    assert [verdict for verdict in found.report.results.verdicts if verdict.bad]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("of_whole_tiles", "multiple = [16, 32]  # it raised an error with other numbers of queries"),
        ("of_whole_blocks", "multiple = [16, 32]  # it raised an error with other numbers of queries"),
        ("wrong_past_whole_tiles", 'layout = "BHSD"  # the results are correct with heads before positions'),
        ("with_half_a_bias", 'bias = "position_bias"  # by its name alone'),
        ("with_a_mask_of_no_effect", 'mask = "attn_mask"'),
        ("of_square_tiles", 'lengths = "equal"  # it raised an error with more keys than queries'),
        ("of_square_tiles", "multiple = [16, 16]"),
        (
            "wrong_beside_a_square",
            'more keys than queries no call was: if it takes none, write lengths = "equal"',
        ),
        ("wrong_past_whole_tiles", 'scale = "softmax_scale"\n'),
        ("that_reads_past_the_end", 'heads = "equal"  # it read past the end of an array with two key heads'),
    ],
)
def test_what_calls_of_whole_tiles_and_memory_past_the_end_show(name, line):
    assert line in infer_configuration(f"conventions:{name}")


@pytest.mark.parametrize(("name", "wrong"), [("of_transformers", ""), ("of_transformers_tiled", "HEAD-1")])
def test_a_function_that_transformers_can_register_is_judged(name, wrong):
    command("init", f"{CONVENTIONS}:{name}", status=0)
    assert wrong in command("check", "--smoke", status=bool(wrong)).output


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("with_half_a_bias", "SCORE-4"),
        ("with_a_mask_of_no_effect", "MASK-1"),
        ("with_an_lse_of_base_two", "SOFT-6"),
    ],
)
def test_a_known_argument_that_is_wrong_is_passed_and_judged(name, rule):
    Path("attnspec.toml").write_text(infer_configuration(f"conventions:{name}"))
    found = check(load("."), rules=[rule], dtypes=["float32"], quick=True)
    assert rule in {verdict.rule for verdict in found.report.results.verdicts if verdict.bad}


def test_the_report_says_which_entries_of_the_output_are_wrong():
    said = {"names": {"query": "q", "key": "k", "value": "v", "key_lengths": "kv_lens"}, "quick": True}
    text = check(of_the_first_length, rules=["MASK-9"], dtypes=["float32"], **said).text
    assert "the first of the batch entries is right in every failing call" in " ".join(text.split())


@pytest.mark.parametrize("name", ["sink_logits", "attn_sink", "sinks", "s_aux", "attention_sinks"])
def test_the_names_of_sinks_have_a_suggestion(name):
    assert meant(name) == ("sinks",)


def test_arrays_that_are_joined_in_one_parameter_are_judged():
    Path("attnspec.toml").write_text(text := infer_configuration("conventions:of_joined_arrays"))
    assert 'query = "qkv"\nkey = "qkv"\nvalue = "qkv"\n' in text
    found = check(load("."), rules=["SOFT-1", "MASK-3"], dtypes=["float32"], quick=True)
    assert found.good, found.text
    verdicts = found.report.results.verdicts
    assert [verdict.status for verdict in verdicts].count("pass") > 5
    unequal = [verdict for verdict in verdicts if "as many keys as queries" in verdict.reason]
    assert [verdict.declined for verdict in unequal] == [False] * len(unequal) != []
    mixed = check(load("."), rules=["ERR-1"], quick=True).report.results.verdicts
    assert any("in one array, got dtypes float32" in verdict.reason for verdict in mixed)
    assert not any(verdict.bad for verdict in mixed)


@pytest.mark.parametrize(("name", "wrong"), [("of_joined_arrays", False), ("of_joined_arrays_in_rows", True)])
def test_joined_arrays_lie_as_a_case_asks(name, wrong):
    Path("attnspec.toml").write_text(infer_configuration(f"conventions:{name}"))
    found = check(load("."), rules=["NUM-8"], dtypes=["float32"], quick=True)
    verdicts = found.report.results.verdicts
    layouts = {x.case.split("-and-")[0].removeprefix("numerics-strides-") for x in verdicts if x.bad}
    assert {"sliced-rows", "within", "repeated", "expanded"} <= layouts if wrong else found.good, found.text
    assert sum(verdict.status == "pass" for verdict in verdicts) > 40


NAMED = """
from attnspec.reference import function


def paged_attention(query, key_pages, value_pages, *, block_table, key_lengths, scale=None):
    pages = [x.swapaxes(-2, -3) for x in (key_pages, value_pages)]
    options = {"block_table": block_table, "key_lengths": key_lengths, "scale": scale}
    return function("paged_attention")(query[..., None, :], *pages, **options)[..., 0, :]


def rotary(features, positions):
    return features


def merge_heads(split):
    raise RuntimeError("no device")
"""


@pytest.mark.parametrize(
    ("attribute", "lines"),
    [
        ("paged_attention", ['layout = "BSHD"', "one_query = true"]),
        ("rotary", ['operation = "rotary"  # it has the name and the arguments']),
        ("merge_heads", ['operation = "merge_heads"  # it has the name and the arguments']),
    ],
)
def test_a_function_with_the_name_of_an_operation_is_called_too(attribute, lines):
    Path("own.py").write_text(NAMED)
    run = command("init", f"./own.py:{attribute}", status=0)
    assert all(line in run.output for line in lines), run.output


def _scores(q, k, bias, mask, fill):
    with np.errstate(all="ignore"):
        scores = q @ np.swapaxes(k, -1, -2) * q.dtype.type(q.shape[-1] ** -0.5)
        scores = scores if bias is None else scores + bias
        return scores if mask is None else np.where(mask, scores, q.dtype.type(fill))


def _softmax(scores):
    with np.errstate(all="ignore"):
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
        return (powers / powers.sum(axis=-1, keepdims=True)).astype(scores.dtype)


def of_minus_infinity(q, k, v, *, bias=None, mask=None):
    return _softmax(_scores(q, k, bias, mask, -np.inf)) @ v


def of_a_large_number(q, k, v, *, bias=None, mask=None):
    return _softmax(_scores(q, k, bias, mask, -1e30)) @ v


def of_a_bias(q, k, v, *, bias=None):
    return of_minus_infinity(q, k, v, bias=bias)


def of_a_bias_that_is_finite(q, k, v, *, bias=None, mask=None):
    bias = None if bias is None else np.maximum(bias, q.dtype.type(-1e30))
    weights = _softmax(_scores(q, k, bias, mask, -np.inf))
    return np.where(mask is None or np.any(mask, axis=-1, keepdims=True), weights @ v, 0)


def of_zeros(q, k, v, *, bias=None, mask=None):
    return np.nan_to_num(of_minus_infinity(q, k, v, bias=bias, mask=mask))


def with_a_finite_lse(q, k, v, *, mask=None):
    scores = _scores(q, k, None, mask, -1e30)
    with np.errstate(all="ignore"):
        most = scores.max(axis=-1, initial=-np.inf)
        return _softmax(scores) @ v, most + np.log(np.exp(scores - most[..., None]).sum(axis=-1))


def with_lengths_of_another_result(q, k, v, *, mask=None, key_lengths=None):
    """Give NaN where a mask leaves no key, and 0 where a length does."""
    if key_lengths is None:
        return of_minus_infinity(q, k, v, mask=mask)
    lengths = np.asarray(key_lengths)[..., None, None, None]
    short = np.arange(k.shape[-2]) < (lengths if np.ndim(key_lengths) else key_lengths)
    return np.nan_to_num(of_minus_infinity(q, k, v, mask=short if mask is None else mask & short))


@pytest.mark.parametrize(
    ("name", "dialect", "reason"),
    [
        ("of_minus_infinity", {"MASK-6": "nan"}, "keys by mask was NaN and by bias was NaN"),
        (
            "of_a_large_number",
            {"MASK-2": "added", "MASK-6": "uniform"},
            "a row left without keys by mask was the mean of all values",
        ),
        ("of_a_bias", {"MASK-2": "added"}, "a row left without keys by bias was NaN"),
        (
            "of_a_bias_that_is_finite",
            {"MASK-6": {"bias": "uniform"}},
            "a row left without keys by bias was the mean of all values",
        ),
        ("of_zeros", {}, ""),
        (
            "with_a_finite_lse",
            {"MASK-6": "uniform", "SOFT-7": "finite"},
            "the lse of a row without keys was -1e+30",
        ),
        ("with_lengths_of_another_result", {}, ""),
    ],
)
def test_rows_without_keys_are_described_and_verified(name, dialect, reason):
    text = infer_configuration(f"test_init_limits:{name}")
    assert tomllib.loads(text)["backend"].get("dialect", {}) == dialect
    assert reason in text
    Path("attnspec.toml").write_text(text)
    names = ("masking-empty-first", "masking-empty-bias", "masking-empty-key-length", "softmax-lse-empty")
    report = check(load("."), cases=[f"{case}-float32" for case in names])
    verdicts = report.report.results.verdicts
    assert any(x.bad for x in verdicts) == (name == "with_lengths_of_another_result"), report.text
    assert {"deviation" for _ in dialect} <= {verdict.status for verdict in verdicts}


TORCH = """
import torch


def kernel(q, k, v, *, bias=None, mask=None, return_lse=False):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else torch.where(mask, scores, FILL)
    output = torch.softmax(scores, -1) @ v
    return (output, torch.logsumexp(scores.detach(), -1) + 0 * q.sum(-1)) if return_lse else output


def of_a_mask(q, k, v, *, mask=None, return_lse=False):
    return kernel(q, k, v, mask=mask, return_lse=return_lse)


def of_a_bias(q, k, v, *, bias=None):
    return kernel(q, k, v, bias=bias)


def of_right_rows(q, k, v, *, bias=None):
    output = kernel(q, k, v, bias=bias)
    empty = False if bias is None else bias.isneginf().all(-1, keepdim=True)
    return torch.where(torch.as_tensor(empty), 0.0, output)
"""


@pytest.mark.parametrize(
    ("name", "fill", "dialect"),
    [
        ("of_a_mask", "-1e30", {"GRAD-10": "uniform"}),
        ("of_a_bias", "0", {"GRAD-10": "nan"}),
        ("of_right_rows", "0", {}),  # NaN in the gradients alone is a fault
        ("kernel", "-1e30", {}),  # two variants, which no dialect has, and a cotangent that is ignored
    ],
)
def test_gradients_that_the_library_computes_are_described_too(name, fill, dialect):
    module = f"gradients_of_{name}"
    Path(f"{module}.py").write_text(TORCH.replace("FILL", fill))
    text = infer_configuration(f"./{module}.py:{name}")
    found = tomllib.loads(text)["backend"].get("dialect", {})
    assert {rule: variant for rule, variant in found.items() if rule.startswith("GRAD")} == dialect
    assert not dialect or "where rows had no keys, d_" in text
    if name == "kernel":  # the large number is minus infinity in float16
        assert (found["MASK-6"]["float16"], found["MASK-6"]["float32"]) == ("nan", "uniform")
        assert "in float16 a row left without keys by mask was NaN" in text


def test_float64_with_an_lse_of_float32_is_no_dtype_of_a_function():
    text = """
import numpy as np
from attnspec.reference import attention as exact


def attention(query, key, value, *, return_lse=False):
    arrays = (x.astype(np.float32) for x in (query, key, value))
    output, lse = exact(*arrays, return_lse=True, dtype=np.float32)
    output = output.astype(query.dtype)
    return (output, lse) if return_lse else output
"""
    Path("short.py").write_text(text)
    written = infer_configuration("./short.py:attention")
    assert "float64 is computed in float32, and its lse is of float32" in written
    assert 'dtypes = ["float32"]  #' in written
    assert "NUM-2" not in written


OF_INT8 = """
from attnspec.reference import function


def quantized_attention(query, key_codes, value_codes, *, key_scales=None, value_scales=None):
    scales = {"key_scales": key_scales, "value_scales": value_scales}
    return function("quantized_attention")(query, key_codes, value_codes, **scales, dtype=query.dtype)
"""


def test_a_function_without_an_argument_for_the_encoding_has_int8_written():
    Path("of_int8.py").write_text(OF_INT8)
    output = command("init", "./of_int8.py:quantized_attention", status=0).output
    assert 'encoding = "int8"  # it has no other' in output
    found = check(load("."), rules=["QUANT-1"], dtypes=["float32"], quick=True).report.results.verdicts
    assert not [x for x in found if "encoding" in x.reason]


OF_DTYPES = """
import ml_dtypes, numpy as np
from attnspec import reference


def checked(query, *others):
    if query.dtype not in (np.float32, np.float16, ml_dtypes.bfloat16):
        raise TypeError("expected float32, float16 or bfloat16")
    return query.dtype, 3.0 if query.dtype == np.float16 else None


def attention(query, key, value):
    dtype, scale = checked(query)
    return reference.attention(query, key, value, scale=scale, dtype=dtype)


def paged_attention(query, key_pages, value_pages, *, block_table, key_lengths):
    dtype, _ = checked(query)
    options = {"block_table": block_table, "key_lengths": key_lengths}
    output = reference.paged_attention(query, key_pages, value_pages, **options)
    return output.astype(np.float32 if dtype == np.float16 else dtype)
"""


@pytest.mark.parametrize("name", ["attention", "paged_attention"])
def test_a_function_of_numpy_that_lacks_a_dtype_is_called_in_half_precision_too(name):
    Path("short.py").write_text(OF_DTYPES)
    text = command("init", f"./short.py:{name}", status=0).output
    assert 'dtypes = ["float32", "bfloat16"]' in text, "in float16, it is wrong or returns float32"


@pytest.mark.parametrize(("raises", "depths"), [("True", [2, 4, 6, 8, 16, 32, 64]), ("False", None)])
def test_a_function_that_raises_an_error_with_odd_depths_takes_even_ones(raises, depths):
    text = """
from attnspec.reference import attention as exact


def kernel(q, k, v, *, causal=False):
    assert q.shape[-1] % 2 == 0 or not RAISES
    output = exact(q, k, v, is_causal=causal, dtype=q.dtype)
    return output if q.shape[-1] % 2 == 0 else 0 * output
"""
    name = f"odd_depths_{raises}"
    Path(f"{name}.py").write_text(text.replace("RAISES", raises))
    table = tomllib.loads(written := infer_configuration(f"./{name}.py:kernel"))["backend"]
    assert table.get("depths") == depths, "wrong results are for the suite to judge"
    assert ("it raised an error with 3 and 5" in written) == bool(depths)
