"""`attnspec init` says what rows without keys give, and the suite verifies what it says."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from attnspec.backends import load
from attnspec.backends.user.inference import infer_configuration
from attnspec.conformance import check


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parent)])


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
    text = infer_configuration(f"test_init_empty_rows:{name}")
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
"""


@pytest.mark.parametrize(
    ("name", "fill", "dialect"),
    [
        ("of_a_mask", "-1e30", {"GRAD-6": "ignored", "GRAD-10": "uniform"}),
        ("of_a_bias", "0", {"GRAD-10": "nan"}),
        ("kernel", "-1e30", {"GRAD-6": "ignored"}),  # two variants, which no dialect has
    ],
)
def test_gradients_that_the_library_computes_are_described_too(name, fill, dialect):
    module = f"gradients_of_{name}"
    Path(f"{module}.py").write_text(TORCH.replace("FILL", fill))
    text = infer_configuration(f"./{module}.py:{name}")
    found = tomllib.loads(text)["backend"]["dialect"]
    assert {rule: variant for rule, variant in found.items() if rule.startswith("GRAD")} == dialect
    reasons = {"GRAD-6": "were those of the call without it", "GRAD-10": "where rows had no keys, d_"}
    assert all(reasons[rule] in text for rule in dialect)
    if name == "kernel":  # the large number is minus infinity in float16
        assert (found["MASK-6"]["float16"], found["MASK-6"]["float32"]) == ("nan", "uniform")
        assert "in float16 a row left without keys by mask was NaN" in text
