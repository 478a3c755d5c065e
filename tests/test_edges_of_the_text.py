"""Statements of the text about rare calls: what zeros, infinities, integers and shapes of two axes mean."""

from pathlib import Path

import numpy as np
import pytest

import attnspec
from attnspec import Case, rules
from attnspec.backends import load
from attnspec.conformance import registry
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.judge import judge_outputs
from attnspec.dtypes import FORMATS
from attnspec.reference import attention, function
from attnspec.reference.budget.arithmetic import PLAIN, Arithmetic
from attnspec.reference.budget.attention import merge_error
from attnspec.reference.budget.budget import budget
from attnspec.reference.errors import ArgumentError
from attnspec.reference.rational.evaluate import evaluate

PAGES = Path(attnspec.__file__).parent
#: The rules about copies, whose results are compared with a budget of 0. Others about bits compare bits.
COPIES = {"CACHE-1", "CACHE-4", "HEAD-3", "HEAD-4"}


def test_to_the_last_bit_leaves_the_sign_of_a_zero_open():
    assert {rule.id for rule in rules() if "to the last bit" in rule.sentence} == COPIES
    words = " ".join((PAGES / "README.md").read_text("utf-8").split())
    assert "*to the last bit* is the same number, where a zero may have either sign" in words
    one, other = np.array([0.0, 5e-324]), np.array([-0.0, 5e-324])
    assert compare("split", one, other, np.zeros(2), "float64") == 0


@pytest.mark.parametrize(("value", "expected"), [(np.nan, np.nan), (1.0, 0.0)])
def test_where_only_a_sink_is_finite_nan_in_a_value_stays(value, expected):
    call = {"query": np.array([[np.inf]]), "key": np.array([[-1.0]]), "value": np.array([[value, 2.0]])}
    call |= {"sinks": np.zeros(1), "return_lse": True}
    exact = evaluate("attention", call)
    for output, lse in (attention(**call), (exact["output"], exact["lse"])):
        np.testing.assert_array_equal(output, [[expected, 0.0]])
        assert lse == 0


@pytest.mark.parametrize("maximum", [np.nan, 7.0])
def test_a_maximum_of_scores_of_nan_is_not_compared(maximum):
    """SOFT-8 does not define it, and the row stays NaN."""
    ones = np.ones((2, 1))
    call = {"query": np.array([[np.nan], [0.0]]), "key": ones, "value": ones, "return_max": True}
    case = Case("softmax-own-1", "", "softmax", "attention", ("SOFT-8",), call, group="own")
    given = {"output": np.array([[np.nan], [1.0]]), "max": np.array([maximum, 0.0])}
    portable = load("numpy-portable")
    assert judge_outputs(portable, case, given).status == "pass"
    assert judge_outputs(portable, case, given | {"max": np.array([maximum, 7.0])}).status == "fail"


def test_the_gradient_of_the_scale_over_ranks_is_exactly_zero_for_cotangents_of_zero():
    """GRAD-13: the absolute error of a sum of parts is that of parts that are not 0."""
    ones, shards = np.ones((2, 4, 1), np.float32), np.array([0, 2, 4])
    arrays = dict.fromkeys(("query", "key", "value"), ones) | {"query_shards": shards, "key_shards": shards}
    zero, some = (
        budget("sharded_attention_vjp", arrays | {"d_output": x, "return_d_scale": True}, "float32")[
            "d_scale"
        ]
        for x in (0 * ones, ones)
    )
    assert zero == 0 < some


def test_a_part_of_a_gradient_of_another_dtype_is_rounded_to_its_own():
    """The section Shards: `cast` is also 1 where the dtype of the gradient is shorter than the first."""
    wide = Arithmetic(FORMATS["float32"], FORMATS["float32"], FORMATS["float32"], "full", PLAIN)
    (own, _), (short, _) = merge_error(2, wide), merge_error(2, wide, "float16")
    assert short - own == 2.0**-11


def test_integers_of_the_range_of_the_text_are_used_at_their_values():
    call = {"query": np.zeros((1, 1)), "key": np.zeros((2, 1)), "value": np.array([[1.0], [3.0]])}
    ends = {"query_positions": np.array([2**61]), "key_positions": np.array([2**62, 2**61 - 2])}
    for window, expected in (((None, 1), 3), ((1, None), 1), ((None, 2**61), 2), ((None, 2**61 - 1), 3)):
        options = {**ends, "window": window}
        assert attention(**call, **options) == expected == evaluate("attention", call | options)["output"]


@pytest.mark.parametrize("operation", ["sharded_attention", "quantized_listed_attention"])
def test_forms_without_an_axis_of_heads_are_refused(operation):
    one = np.ones((2, 1))
    call = {
        "query": one,
        "key": one,
        "value": one,
        "query_shards": np.array([0, 2]),
        "key_shards": np.array([0, 2]),
    }
    if operation != "sharded_attention":
        codes = np.ones((2, 1), np.int8)
        call = {"query": one, "key_codes": codes, "value_codes": codes, "key_indices": np.zeros((2, 1), int)}
    with pytest.raises(ArgumentError, match="query: expected shape"):
        function(operation)(**call)


@pytest.mark.parametrize(
    ("page", "before", "after"),
    [
        ("positions", "| `dynamic` |", "| `dynamics` |"),
        ("README", "either sign", "one sign"),
        ("README", f"attnspec {attnspec.__version__}", "attnspec 1"),
    ],
)
def test_every_change_of_a_normative_page_changes_its_digest(monkeypatch, page, before, after):
    """A table that a rule announces is a part of the text, and the version is not."""
    known, read = registry.digests(), Path.read_text

    def changed(path, *arguments, **options):
        text = read(path, *arguments, **options)
        return text.replace(before, after) if path.stem == page else text

    monkeypatch.setattr(Path, "read_text", changed)
    assert (registry.digests()["text"] == known["text"]) == (after == "attnspec 1")
