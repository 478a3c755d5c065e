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

#: Function to what has to stand in the file that is written.
CONVENTIONS = {
    "torch_sdpa": {
        "layout": "BHSD",
        "mask": "attend",
        "names": {"mask": "attn_mask", "bias": "attn_mask"},
        "ignore": ["dropout_p", "enable_gqa"],
    },
    "flash_attn_func": {
        "layout": "BSHD",
        "axes": 4,
        "names": {"query": "q", "key": "k", "value": "v", "scale": "softmax_scale", "is_causal": "causal"},
        "dialect": {"MASK-3": "bottom-right"},
        "ignore": ["dropout_p", "window_size", "deterministic"],
    },
    "jax_nn": {"layout": "BSHD", "axes": 4, "mask": "attend", "ignore": ["implementation"]},
    "keras_ops": {"layout": "BSHD", "axes": 4, "mask": "attend", "ignore": ["flash_attention"]},
    "xformers": {"layout": "BSHD", "axes": 4, "names": {"bias": "attn_bias"}, "ignore": ["p", "op"]},
    "mlx_fast": {
        "layout": "BHSD",
        "axes": 4,
        "mask": "attend",
        "names": {"query": "q", "key": "k", "value": "v"},
        "ignore": ["stream"],
    },
    "tokamax": {
        "layout": "BSHD",
        "axes": 4,
        "mask": "attend",
        "names": {"scale": "logits_scale", "softcap": "logits_soft_cap"},
    },
    "onnx_like": {
        "layout": "BHSD",
        "axes": 4,
        "mask": "attend",
        "names": {"query": "Q", "key": "K", "value": "V", "mask": "attn_mask", "bias": "attn_mask"},
    },
    "additive_only": {
        "layout": "BHSD",
        "axes": 4,
        "returns": ["output", "lse"],
        "names": {
            "query": "queries",
            "key": "keys",
            "value": "values",
            "bias": "attention_mask",
            "scale": "scaling",
        },
    },
    "true_ignores": {
        "layout": "BHSD",
        "mask": "ignore",
        "names": {
            "query": "q",
            "key": "k",
            "value": "v",
            "mask": "attn_mask",
            "return_weights": "need_weights",
        },
    },
    "unscaled": {
        "layout": "BHSD",
        "dialect": {"SCORE-2": "one"},
        "names": {"scale": "sm_scale", "is_causal": "causal"},
    },
    "unscaled_always": {"layout": "BHSD", "dialect": {"SCORE-2": "one"}},
    "scaled_by_depth": {"layout": "BHSD", "given": ["scale"], "names": {"scale": "sm_scale"}},
    "of_three_axes": {"layout": "BHSD", "axes": 3, "mask": "attend"},
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
    assert "  # no canonical argument, or " in text
    CliRunner().invoke(main, ["init", "conventions:unscaled", "--force"])
    text = Path("attnspec.toml").read_text()
    assert 'SCORE-2 = "one"  # its default scale is 1, not 1 / sqrt(D)' in text


@pytest.mark.parametrize(
    ("imports", "library"),
    [
        ("import click", "click"),
        ("from click import echo as say", "click"),
        ("import click, pytest", None),
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
    ("place", "message"),
    [
        (
            "conventions:wrong_altogether",
            "expected some call to compute attention, got none: tried",
        ),
        (
            "conventions:wrong_altogether",
            "with depth 4, 8, 16, 32, 64, 96, 128, 256 it returned something other than attention",
        ),
        (
            "conventions:of_a_depth_that_nobody_tries",
            "raised ValueError: head dimension must be 20, got 4; if it takes other arrays, name their",
        ),
        (
            "conventions:with_what_nobody_has",
            "expected only canonical arguments to be required, got workspace",
        ),
        ("conventions:absent", "expected conventions to have absent, got no such attribute"),
    ],
)
def test_what_cannot_be_found_out(place, message):
    run = CliRunner().invoke(main, ["init", place])
    assert run.exit_code == 2
    assert message in run.output
    assert not Path("attnspec.toml").exists()
