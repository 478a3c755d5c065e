"""`attnspec init` infers how a function is called, and the file that it writes passes."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from descriptions import CONVENTIONS, QKV
from signatures import SIGNATURES
from test_plug_in import conforms
from tests_support import command, written

from attnspec.backends import describe, load
from attnspec.conformance import check
from attnspec.reference import function

#: Kernels over packed rows and pages.
SERVED = Path(__file__).parent / "served.py"

pytestmark = pytest.mark.usefixtures("here_beside_tests")


@pytest.mark.parametrize("name", CONVENTIONS)
@pytest.mark.sample(1)
def test_a_convention_is_found_out_and_passes(name):
    command("init", f"conventions:{name}", status=0)
    table, expected = written(), dict(CONVENTIONS[name])
    assert (table.pop("function"), table.pop("array")) == (f"conventions:{name}", "numpy")
    names = table.get("names", {})
    assert expected.get("names", {}).items() <= names.items()
    assert {key: table[key] for key in expected} | {"names": 0} == expected | {"names": 0}
    assert set(table) <= {*expected, "names"}
    backend = load(".")
    assert backend.not_understood == ()
    # No golden vector is as deep, and few have as many keys as queries.
    if {"depths", "lengths"} & {*expected}:
        found = check(backend, rules=["SCORE-2", "MASK-3" if "is_causal" in names else "SCORE-3"])
        assert found.good, found.text
        assert Counter(verdict.status for verdict in found.report.results.verdicts)["pass"] > 10
    else:
        assert conforms(backend) > 10


def test_a_known_argument_that_is_ignored_is_named_in_the_report():
    run = command("init", "conventions:of_two_alignments")
    assert "these do; no call confirmed window_size (window?)" in run.output
    text = check(load("."), cases=["softmax-000"]).text
    assert "not tested, because it is ignored: window_size\n" in text


def test_a_result_of_the_shape_of_an_lse_is_judged_although_it_is_another():
    command("init", "conventions:of_another_lse")
    text = Path("attnspec.toml").read_text()
    assert 'returns = ["output", "lse"]  # result 2 has the shape of an lse, and other numbers' in text
    assert "fails: " in check(load("."), rules=["SOFT-6"], quick=True).text
    Path("attnspec.toml").write_text(text.replace('"lse"', '"_"'))
    text = check(load("."), rules=["SOFT-6"], quick=True).text
    assert "results that are not judged, because `returns` has _ for them: 2" in " ".join(text.split())


def test_every_conclusion_has_its_reason():
    text = command("init", "conventions:flash_attn_func").output
    assert 'layout = "BSHD"  # the results are correct with heads after positions' in text
    assert 'MASK-3 = "bottom-right"  # its causal mask is aligned at the bottom right' in text
    assert "  # never passed, so no case tests what these do" in text
    text = command("init", "conventions:unscaled", "--force").output
    assert 'SCORE-2 = "one"  # its default scale is 1, not 1 / sqrt(D)' in text


@pytest.mark.parametrize(
    ("imports", "library"),
    [
        ("import click", "click"),
        ("from click import echo", "click"),
        ("import click, rich", None),
        ("", None),
    ],
)
def test_the_package_that_a_file_imports_gives_the_version(imports, library):
    name = f"kernel_of_{len(imports)}"
    Path(f"{name}.py").write_text(
        f"import numpy as np\n{imports}\nfrom conventions import jax_nn as attention\n"
    )
    command("init", f"./{name}.py:attention", status=0)
    assert written().get("library") == library
    assert load(".").library == (library or "numpy")


def test_a_file_that_is_there_is_not_written_over():
    Path("attnspec.toml").write_text("mine")
    run = command("init", "conventions:jax_nn", status=2)
    assert "expected attnspec.toml to be TOML" in run.output
    assert "--force overwrites it" in run.output
    assert Path("attnspec.toml").read_text() == "mine"
    command("init", "conventions:jax_nn", "--force", status=0)
    assert Path("attnspec.toml").read_text() != "mine"
    run = command("init", "conventions:unscaled", status=2)
    assert "got those of another function" in run.output


@pytest.mark.parametrize(
    ("name", "keys", "expected"),
    [
        ("of_a_depth_that_nobody_tries", "depths = [20]", {"depths": [20], "layout": "BHSD"}),
        ("with_what_nobody_has", 'names = { sinks = "workspace" }', {"names": QKV | {"sinks": "workspace"}}),
        ("flash_attn_func", 'dtypes = ["float32"]\nlayout = "BSHD"', {"dtypes": ["float32"], "axes": 4}),
        ("flash_attn_func", "deviations = []\nconcurrent = false", {"deviations": [], "concurrent": False}),
    ],
)
def test_keys_that_are_there_are_kept_and_the_rest_is_inferred(name, keys, expected):
    Path("attnspec.toml").write_text(f"[backend]\n{keys}\n")
    command("init", f"conventions:{name}", status=0)
    table = written()
    assert table["function"] == f"conventions:{name}"
    assert {key: table[key] for key in expected} == expected
    assert load(".").not_understood == ()
    command("init", f"conventions:{name}", status=0)
    assert written() == table


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("of_a_depth_that_nobody_tries", "expected some call to compute attention, got none: tried"),
        ("of_a_depth_that_nobody_tries", "must be 20, got 4; if it takes other arrays, name their"),
        (
            "with_what_nobody_has",
            "got workspace; judge a wrapper with the arguments of attention, which calls it (spec/calls.md)",
        ),
        ("absent", "expected conventions to have absent, got no such attribute"),
    ],
)
def test_what_cannot_be_found_out(name, message):
    run = command("init", f"conventions:{name}", status=2)
    assert message in run.output
    assert not Path("attnspec.toml").exists()


@pytest.mark.parametrize(
    ("name", "operation", "lines"),
    [
        (
            "flash_attn_varlen_func",
            "packed_attention",
            [
                "open_side = -1",
                'slopes = "alibi_slopes"',
                'longest_keys = "max_seqlen_k"',
                'PACK-5 = "bottom-right"',
                "deterministic",
            ],
        ),
        ("unified", "packed_paged_attention", ['key_lengths = "seqused_k"']),
        ("unified_without_codes", "packed_paged_attention", ['ignore = ["k_scale", "v_scale"]']),
        ("decode", "paged_attention", ["axes = 4", 'scale = "sm_scale"']),
        ("paged_attention_v1", "paged_attention", ["one_query = true", 'slopes = "alibi_slopes"']),
        ("flash_attn_with_kvcache", "paged_attention", ['new_key = "k"', 'is_causal = "causal"']),
        ("mla", "latent_attention", ['query = "q_nope"', 'key_weight = "w_uk"', 'scale = "sm_scale"']),
        ("mla_absorbed", "latent_attention", ['shapes = { key_weight = "Hq, D, Dc" }']),
        ("mla_projected", "latent_attention", ['{ key_weight = "Dc, Hq*D", value_weight = "Dc, Hq*Dv" }']),
        ("int8_by_token", "quantized_attention", ['scales = "token"', 'key_lengths = "kv_len"']),
        ("int8_by_token_or_declined", "quantized_attention", ['scales = "token"']),
        ("int8_of_flat_scales", "quantized_attention", ['scales = "flat-token"', 'key_zero_points = "k_zp"']),
        ("e4m3_of_bits", "quantized_attention", ['encoding = "e4m3fn"', 'scales = "flat-head"']),
        ("e5m2_of_numbers", "quantized_attention", ['encoding = "e5m2"', 'codes = "float8"']),
        ("int8_attention", "quantized_attention", ['key_scales = "k_scale"', 'window = "window_size"']),
    ],
)
@pytest.mark.sample(3)
def test_a_function_of_another_form_is_described_and_passes(name, operation, lines):
    run = command("init", f"{SERVED}:{name}", status=0)
    assert f'operation = "{operation}"' in run.output
    assert [line for line in lines if line not in run.output] == []
    assert "value_depth" not in run.output, "each takes values of another depth"
    command("check", "--smoke", status=0)


def test_a_function_of_pages_with_scales_is_one_of_codes():
    command("init", f"{SERVED}:unified_of_codes")
    backend = written()
    assert backend["operation"] == "packed_paged_quantized_attention"
    assert (backend["scales"], backend["names"]["key_scales"]) == ("tensor", "k_descale")


def test_weights_have_heads_first_in_every_layout():
    def packed(q, k, v, starts, ends, bias=None, *, return_weights=False):
        arrays = (x.swapaxes(0, 1) for x in (q, k, v))
        options = {"query_starts": starts, "key_starts": ends, "bias": bias, "return_weights": True}
        output, weights = function("packed_attention")(*arrays, **options, dtype=q.dtype)
        return (output.swapaxes(0, 1), weights) if return_weights else output.swapaxes(0, 1)

    names = {"query": "q", "key": "k", "value": "v", "query_starts": "starts", "key_starts": "ends"}
    adapted = describe(packed, operation="packed_attention", names=names, layout="BSHD").companions
    random = np.random.default_rng(0)
    query, key, bias = (random.normal(size=size) for size in ((2, 3, 4), (1, 5, 4), (2, 3, 5)))
    options = {"query_starts": np.array([0, 1, 3]), "key_starts": np.array([0, 3, 5]), "bias": bias}
    results = adapted["packed_attention"](query, key, key, **options, return_weights=True)
    expected = function("packed_attention")(query, key, key, **options, return_weights=True)
    for own, its in zip(results, expected, strict=True):
        np.testing.assert_allclose(own, its, rtol=1e-12)


def test_the_smallest_calls_are_of_the_dtype_that_a_function_takes():
    run = command("init", f"{SERVED}:of_half_precision")
    assert 'dtypes = ["float16"]' in run.output
    assert " pass, " in command("check", "--smoke", status=0).output


def test_check_says_how_a_function_of_packed_rows_is_described():
    run = command("check", f"{SERVED}:flash_attn_varlen_func", "--smoke")
    assert run.exit_code != 0
    for line in ("attnspec init", 'operation = "packed_attention"', 'query_starts = "cu_seqlens_q"'):
        assert line in run.output
    assert "max_seqlen" not in run.output


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("q, k, v, cu_seqlens_q", "required argument of packed_attention, got none for key_starts"),
        ("q, k, v, cu_seqlens_q, cu_seqlens_k", 'layout = "BHSD"'),
    ],
)
def test_what_is_found_out_of_the_names_and_the_layout(source, expected, tmp_path):
    call = "q, k, v, query_starts=cu_seqlens_q, key_starts=cu_seqlens_k, dtype=q.dtype"
    head = "from attnspec.reference import packed_attention"
    path = tmp_path / "heads_first.py"
    path.write_text(f"{head}\ndef varlen({source}):\n    return packed_attention({call})\n")
    assert expected in command("init", f"{path}:varlen").output


@pytest.mark.parametrize(
    ("operation", "parameters", "call"),
    [
        ("attention", "q, k, v, causal=True", "q, k, v, is_causal=causal"),
        (
            "packed_attention",
            "q, k, v, cu_seqlens_q, cu_seqlens_k, causal=True",
            "q, k, v, query_starts=cu_seqlens_q, key_starts=cu_seqlens_k, is_causal=causal",
        ),
    ],
)
def test_a_flag_that_is_on_by_default_is_given_in_each_call(operation, parameters, call, tmp_path):
    path = tmp_path / "causal.py"
    head = f"import numpy as np\nfrom attnspec.reference import {operation}"
    path.write_text(f"{head}\ndef kernel({parameters}):\n    return {operation}({call}, dtype=q.dtype)\n")
    run = command("init", f"{path}:kernel")
    assert 'given = ["is_causal"]' in run.output, run.output
    assert 'is_causal = "causal"' in run.output
    command("check", "--smoke", status=0)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ("mla_of_the_latent_scale", "LATENT-2"),
        ("window_off_by_one", "MASK-8"),
        ("window_without_effect", "MASK-8"),
        ("int8_of_tiled_scales", "QUANT-8"),
        ("e4m3_of_bits_with_tiled_scales", "QUANT-8"),
    ],
)
@pytest.mark.sample(3)
def test_a_parameter_that_does_something_else_than_its_name_says_is_judged(wrong, rule):
    run = command("init", f"{SERVED}:{wrong}", status=0)
    assert ("open_side = -1" in run.output) == wrong.startswith("window")
    assert ("with two it did not agree" in run.output) == wrong.endswith("tiled_scales")
    assert "heads = " not in run.output
    report = check(load("."), rules=[rule], dtypes=["float32"], quick=True)
    bad = [verdict.rules for verdict in report.report.results.verdicts if verdict.bad]
    assert rule in {each for rules in bad for each in rules}, report.text


def test_a_function_with_a_wrong_scale_is_described_and_fails():
    Path("of_features.py").write_text(
        "import numpy as np\n"  # the library of its arrays, whatever other tests have loaded
        "from attnspec.reference import attention\n"
        "def kernel(q, k, v):\n"
        "    scale = (q.shape[1] * q.shape[-1]) ** -0.5\n"
        "    return attention(q, k, v, scale=scale, dtype=q.dtype)\n"
    )
    command("init", "of_features:kernel", status=0)
    report = check(load("."), cases=["notation-batch-float32", "scores-default-scale-7-float32"])
    assert "SCORE-2" in {x.rule for x in report.report.results.verdicts if x.bad}, report.text


#: A rule that shows each argument that a written file says is tested.
SHOWS = {
    "scale": "SCORE-3",
    "softcap": "SCORE-5",
    "bias": "SCORE-4",
    "mask": "MASK-1",
    "is_causal": "MASK-3",
    "window": "MASK-8",
    "key_lengths": "MASK-9",
    "query_lengths": "MASK-10",
    "query_positions": "MASK-14",
    "key_positions": "MASK-14",
    "query_segment_ids": "MASK-11",
    "key_segment_ids": "MASK-11",
    "sinks": "SOFT-5",
    "return_lse": "SOFT-6",
}


def init_signature(name, status):
    """Write the function of a signature into this folder, and infer how it is called."""
    text = f"from signatures import SIGNATURES, emulate\n\ndef kernel({SIGNATURES[name].parameters}):\n"
    Path(f"of_{name}.py").write_text(f"{text}    return emulate(SIGNATURES[{name!r}], dict(locals()))\n")
    return command("init", f"of_{name}:kernel", status=status)


@pytest.mark.parametrize("name", [name for name, signature in SIGNATURES.items() if not signature.refused])
@pytest.mark.sample(1)
def test_what_init_writes_is_judged_right_without_another_key(name):
    signature = SIGNATURES[name]
    run = init_signature(name, 0)
    backend = load(".")
    assert backend.not_understood == ()
    assert all(backend.has("attention", option) for option in signature.tested)
    assert set(signature.untested) <= {*written().get("ignore", ())}
    assert not set(signature.untested) or "# never passed, so no case tests what these do" in run.output
    rules = ["SHAPE-9", *(SHOWS[option] for option in signature.tested)]
    dtype = "float32" if "float32" in backend.dtypes else backend.dtypes[0]
    report = check(backend, rules=rules, quick=True, dtypes=[dtype])
    assert report.good, report.text
    passing = {rule for x in report.report.results.verdicts if x.status == "pass" for rule in x.rules}
    assert passing >= {SHOWS[option] for option in signature.tested if option != "is_causal"}


@pytest.mark.parametrize("name", [name for name, signature in SIGNATURES.items() if signature.refused])
def test_what_init_cannot_describe_it_says(name):
    run = init_signature(name, 2)
    assert SIGNATURES[name].refused in run.output
    assert 'value = "' not in run.output.partition("; write this")[0]
    assert not Path("attnspec.toml").exists()
