"""Parameters that are not in the specification: reported with a suggestion, and ignored only on request."""

import functools
from dataclasses import replace

import pytest

from attnspec import OPERATIONS
from attnspec.backends import Backend, BackendError, load, load_library
from attnspec.backends.check import check_backend
from attnspec.backends.user.signature import (
    explain_unknown_parameters,
    note_unknown_parameters,
    unknown_parameters,
)
from attnspec.operations.aliases import ALIASES, meant

MODULE = """
import numpy as np

from attnspec.backends import Backend, load_library


def kernel(query, key, value, causal=None, attn_mask=None, softmax_scale=None):
    return query * 0


def typo(query, key, value, is_casual=False):
    return query


def anything(query, key, value, **options):
    return query


def fine(query, key, value, *, scale=None, _workspace=None):
    return query


def rope(features, theta=10000.0):
    return features


by_hand = Backend("mine", load_library("numpy"), kernel, companions={"rotary": rope})
told = Backend("mine", load_library("numpy"), kernel, ignore=("causal", "attn_mask", "softmax_scale"))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of somebody's with a module that no other test has imported."""
    (tmp_path / "with_names.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "with_names", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kernel", ("causal", "attn_mask", "softmax_scale")),
        ("typo", ("is_casual",)),
        ("anything", ("**options",)),
        ("fine", ()),
        ("by_hand", ("causal", "attn_mask", "softmax_scale", "rotary: theta")),
        ("told", ()),
    ],
)
def test_what_is_not_understood(folder, name, expected):
    assert load(f"with_names:{name}").not_understood == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kernel", "not understood: causal (is_causal?), attn_mask (mask or bias?), softmax_scale (scale?);"),
        ("typo", "not understood: is_casual (is_causal?);"),
        ("anything", "**options (the signature does not show what it takes: list it in names);"),
        ("by_hand", "softmax_scale (scale?), rotary: theta;"),
    ],
)
def test_what_is_said_of_it(folder, name, said):
    text = explain_unknown_parameters(load(f"with_names:{name}"))
    assert said in text
    assert "no case tests this" in text
    assert 'ignore = ["' in text
    assert explain_unknown_parameters(load("with_names:fine")) == ""


def test_a_companion_is_not_advised_to_use_names_which_are_of_attention():
    def rotary(features, theta=10000.0):
        return features

    alone = Backend("mine", load_library("numpy"), companions={"rotary": rotary})
    said = explain_unknown_parameters(note_unknown_parameters(alone))
    assert "names" not in said
    assert said.endswith('Give each its canonical name, or ignore it: ignore = ["theta"]')


def test_a_configuration_maps_and_ignores(folder):
    names = '[backend]\nfunction = "with_names:kernel"\n{}\n[backend.names]\nis_causal = "causal"\n'
    (folder / "attnspec.toml").write_text(names.format(""))
    assert load(str(folder)).not_understood == ("attn_mask", "softmax_scale")
    (folder / "attnspec.toml").write_text(names.format('ignore = ["attn_mask"]'))
    assert load(str(folder)).not_understood == ("softmax_scale",)
    text = '[backend]\nfunction = "with_names:anything"\nignore = ["**options"]\n'
    (folder / "attnspec.toml").write_text(text)
    assert load(str(folder)).not_understood == ()


def test_what_is_ignored_has_to_be_names():
    numpy = load("numpy-portable")
    broken = Backend("mine", load_library("numpy"), numpy.attention, ignore="causal")
    with pytest.raises(BackendError, match=r"ignore: expected names of parameters, .*, got 'causal'"):
        check_backend("mine", broken)

    def kernel(query, key, value, *, causal=False, dropout_p=0.0):
        return query

    assert unknown_parameters(functools.partial(kernel, causal=True)) == ("dropout_p",)
    backend = load("numpy-portable")
    assert backend.not_understood == ()

    def strange(query, key, value, *, enable_gqa=True):
        return query

    strange = replace(backend, attention=strange)
    said = explain_unknown_parameters(note_unknown_parameters(strange))
    assert "enable_gqa (the numbers of heads determine this);" in said
    over_codes = OPERATIONS["quantized_attention"].arguments
    assert set(ALIASES) <= {*OPERATIONS["attention"].arguments, *over_codes}
    assert not {theirs for names in ALIASES.values() for theirs in names} & set(ALIASES)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("sm_scale", ("scale",)),
        ("logits_soft_cap", ("softcap",)),
        ("sliding_window", ("window",)),
        ("one_sided_window", ("window",)),
        ("Attn_Bias", ("bias",)),
        ("segment_ids", ("query_segment_ids", "key_segment_ids")),
        ("quer", ("query",)),
        ("teapot", ()),
        ("dropout_p", ()),
    ],
)
def test_what_a_name_may_stand_for(name, ours):
    assert meant(name) == ours
