"""`attnspec init` infers how a function is called, and the file that it writes passes."""

import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_plug_in import conforms

from attnspec.backends import load
from attnspec.conformance import check
from attnspec.conformance.cli.main import main

QKV = {"query": "q", "key": "k", "value": "v"}
PLURAL = {"query": "queries", "key": "keys", "value": "values"}
MASKS = {"mask": "attn_mask", "bias": "attn_mask"}
OF_FOUR, SWAPPED = {"layout": "BHSD", "axes": 4}, {"layout": "BSHD", "axes": 4}
ATTEND, SCALED_BY_ONE = {"mask": "attend"}, {"dialect": {"SCORE-2": "one"}}
#: Function to what has to stand in the file that is written.
CONVENTIONS = {
    "torch_sdpa": ATTEND | {"layout": "BHSD", "names": MASKS, "ignore": ["dropout_p", "enable_gqa"]},
    "flash_attn_func": SWAPPED
    | {
        "names": QKV | {"scale": "softmax_scale", "is_causal": "causal"},
        "dialect": {"MASK-3": "bottom-right"},
        "ignore": ["dropout_p", "window_size", "deterministic"],
    },
    "jax_nn": SWAPPED | ATTEND | {"ignore": ["implementation"]},
    "keras_ops": SWAPPED | ATTEND | {"ignore": ["flash_attention"]},
    "xformers": SWAPPED | {"names": {"bias": "attn_bias"}, "ignore": ["p", "op"]},
    "mlx_fast": OF_FOUR | ATTEND | {"names": QKV, "ignore": ["stream"]},
    "tokamax": SWAPPED | ATTEND | {"names": {"scale": "logits_scale", "softcap": "logits_soft_cap"}},
    "onnx_like": OF_FOUR | ATTEND | {"names": MASKS | {"query": "Q", "key": "K", "value": "V"}},
    "additive_only": OF_FOUR
    | {
        "returns": ["output", "lse"],
        "names": PLURAL | {"bias": "attention_mask", "scale": "scaling"},
    },
    "true_ignores": {
        "layout": "BHSD",
        "mask": "ignore",
        "names": QKV | {"mask": "attn_mask", "return_weights": "need_weights"},
    },
    "unscaled": SCALED_BY_ONE | {"layout": "BHSD", "names": {"scale": "sm_scale", "is_causal": "causal"}},
    "unscaled_always": SCALED_BY_ONE | {"layout": "BHSD"},
    "scaled_by_depth": {"layout": "BHSD", "given": ["scale"], "names": {"scale": "sm_scale"}},
    "of_three_axes": ATTEND | {"layout": "BHSD", "axes": 3},
    "of_some_depths": {"layout": "BHSD", "depths": [64, 128], "names": {"query": "q", "scale": "sm_scale"}},
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])


@pytest.mark.parametrize("name", CONVENTIONS)
@pytest.mark.sample(2)
def test_a_convention_is_found_out_and_passes(name):
    run = CliRunner().invoke(main, ["init", f"conventions:{name}"])
    assert run.exit_code == 0, run.output
    text = Path("attnspec.toml").read_text()
    table = tomllib.loads(text)["backend"]
    assert table.pop("function") == f"conventions:{name}"
    assert table.pop("array") == "numpy"
    expected = dict(CONVENTIONS[name])
    names = table.get("names", {})
    assert expected.get("names", {}).items() <= names.items()
    assert {key: table[key] for key in expected} | {"names": 0} == expected | {"names": 0}
    assert set(table) <= {*expected, "names"}
    backend = load(".")
    assert backend.not_understood == ()
    if "depths" in expected:  # no golden vector is as deep
        found = check(backend, rules=["SCORE-2", "SCORE-3"])
        assert found.good, found.text
    else:
        assert conforms(backend) > 20


def test_every_conclusion_has_its_reason():
    CliRunner().invoke(main, ["init", "conventions:flash_attn_func"])
    text = Path("attnspec.toml").read_text()
    assert 'layout = "BSHD"  # the results are correct with heads after positions' in text
    assert 'MASK-3 = "bottom-right"  # its causal mask is aligned at the bottom right' in text
    assert "  # never passed, so no case tests what these do; no call confirmed window_size (window?)" in text
    CliRunner().invoke(main, ["init", "conventions:unscaled", "--force"])
    text = Path("attnspec.toml").read_text()
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
    run = CliRunner().invoke(main, ["init", f"./{name}.py:attention"])
    assert run.exit_code == 0, run.output
    table = tomllib.loads(Path("attnspec.toml").read_text())["backend"]
    assert table.get("library") == library
    assert load(".").library == (library or "numpy")


def test_a_file_that_is_there_is_not_written_over():
    Path("attnspec.toml").write_text("mine")
    run = CliRunner().invoke(main, ["init", "conventions:jax_nn"])
    assert run.exit_code == 2
    assert "attnspec.toml: expected no such file in this folder, got one; --force overwrites it" in run.output
    assert Path("attnspec.toml").read_text() == "mine"
    assert CliRunner().invoke(main, ["init", "conventions:jax_nn", "--force"]).exit_code == 0
    assert Path("attnspec.toml").read_text() != "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong_altogether", "expected some call to compute attention, got none: tried"),
        ("wrong_altogether", "with depth 4, 8, 16, 32, 64, 96, 128, 256 it returned something other than"),
        ("of_a_depth_that_nobody_tries", "must be 20, got 4; if it takes other arrays, name their"),
        ("with_what_nobody_has", "expected only canonical arguments to be required, got workspace"),
        ("absent", "expected conventions to have absent, got no such attribute"),
    ],
)
def test_what_cannot_be_found_out(name, message):
    run = CliRunner().invoke(main, ["init", f"conventions:{name}"])
    assert run.exit_code == 2
    assert message in run.output
    assert not Path("attnspec.toml").exists()


#: Signatures of kernels and what they take, with keys and comments that stand in the file.
KERNELS = {
    "(q, k, v)": ("equal", 'heads = "equal"'),
    "(q, k, v, sm_scale=None)": ("equal depths", 'value_depth = "key"'),
    "(query, key, value, causal=False)": ("float32", 'dtypes = ["float32"]'),
    "(q, k, v, k_scale=None, v_scale=None)": ("", "no call confirmed k_scale (key_scales?)"),
    "(q, k, v, alibi_slopes=None)": ("", "no call confirmed alibi_slopes (bias?)"),
    "(q, k, v, window_size=(-1, -1))": ("minus one", "no call confirmed window_size (window?)"),
    "(q, k, v, window_size=None)": ("", 'window = "window_size"'),
    "(q, k, v, attn_mask=None, is_causal=False, scale=None)": ("equal", 'mask = "attn_mask"'),
    "(q, k, v, causal=False, softmax_scale=None, softcap=None)": ("equal depths", 'scale = "softmax_scale"'),
    "(xq, xk, xv, logits_soft_cap=None)": ("", 'softcap = "logits_soft_cap"'),
}

KERNEL = """
import numpy as np
from attnspec.operations.aliases import meant
from attnspec.reference import attention


def kernel{signature}:
    given = dict(locals())
    q, k, v = (given.pop(name) for name in list(given)[:3])
    takes = "{takes}"
    if "equal" in takes and q.ndim > 2 and q.shape[-3] != k.shape[-3]:
        raise ValueError("heads")
    if "depths" in takes and v.shape[-1] != k.shape[-1]:
        raise ValueError("depths")
    if "float32" in takes and q.dtype != np.float32:
        raise TypeError("dtype")
    if given.get("alibi_slopes") is not None and given["alibi_slopes"].ndim != 1:
        raise ValueError("alibi_slopes")
    if "minus one" in takes:
        if None in given["window_size"]:
            raise TypeError("window_size")
        given["window_size"] = tuple(None if side < 0 else side for side in given["window_size"])
    known = {{(meant(name) or (name,))[0]: x for name, x in given.items() if x is not None}}
    known.pop("key_scales", None), known.pop("value_scales", None)
    return attention(q, k, v, **known, dtype=q.dtype)
"""


@pytest.mark.parametrize("signature", KERNELS)
@pytest.mark.sample(3)
def test_what_init_writes_is_judged_right_without_another_key(signature):
    takes, line = KERNELS[signature]
    name = f"kernel_{list(KERNELS).index(signature)}"
    Path(f"{name}.py").write_text(KERNEL.format(signature=signature, takes=takes))
    run = CliRunner().invoke(main, ["init", f"./{name}.py:kernel"])
    assert run.exit_code == 0, run.output
    assert line in Path("attnspec.toml").read_text()
    backend = load(".")
    assert backend.not_understood == ()
    found = check(backend, rules=["SCORE-2", "SCORE-3", "HEAD-1", "SHAPE-3", "MASK-8", "NUM-2"], quick=True)
    assert found.good, found.text
    assert not any(verdict.declined for verdict in found.report.results.verdicts)
