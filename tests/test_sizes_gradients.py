"""The judge of gradients of sized cases: right ones pass, and each wrong one fails with the right words."""

from dataclasses import replace

import numpy as np
import pytest
from sized_results import PORTABLE

from attnspec.conformance import expected, find
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.sizes.chosen import (
    chosen_heads,
    gradients_in_float64,
    gradients_of_heads,
    head_call,
)
from attnspec.conformance.sizes.judge import values_of
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.formula import Formula
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact.evaluate import evaluate

right = PORTABLE.function("attention_vjp")
FORMULA = Formula(
    140, 301, 16, 8, batch=(2,), heads=4, key_heads=2, options={"is_causal": True, "query_offset": 161}
)
ITEM = SizedCase(
    "one", "", ("GRAD-19", "GRAD-1"), "sizes: backward", FORMULA, "float32", operation="attention_vjp"
)
#: Options of pairs, with which some heads are judged.
PAIRED = (
    {"mask": ("S",)},
    {"mask": ("B", "H", "L", "S"), "is_causal": True, "query_offset": 4},
    {"bias": ("L", "S"), "softcap": 0.5},
    {"bias": ("B", "H", "L", "S"), "mask": ("H", "L", "S")},
    {"dropout_mask": ("B", "H", "L", "S"), "dropout_rate": 0.25, "sinks": True},
    {"window": (2, 1), "query_offset": (3, -2)},
    {"key_lengths": (0, 7), "query_lengths": (3, 5)},
    {"segments": 3, "is_causal": True, "query_offset": 4},
    {"sinks": True, "d_lse": True, "scale": -0.75},
)
SAMPLED = Formula(5, 9, 6, 3, batch=(2,), heads=4, key_heads=2, words=0, seed=5)


def backend(change, **options):
    """A backend whose gradients are changed: a function takes d_query, d_key and d_value."""

    def attention_vjp(*arrays, **given):
        return change(*right(*arrays, **given))

    attention_vjp.__wrapped__ = right
    return having(attention_vjp, **options)


def having(attention_vjp, **options):
    companions = {**PORTABLE.companions, "attention_vjp": attention_vjp}
    return replace(PORTABLE, name="changed", companions=companions, **options)


def test_shapes_and_dtypes_come_before_values_and_the_unchanged_function_passes():
    verdict = judge(backend(lambda *found: found), ITEM)
    assert (verdict.status, verdict.operation) == ("pass", "attention_vjp")
    assert 0 < verdict.share < 1
    cut = judge(backend(lambda q, k, v: (q, k[..., :-1, :], v + 1)), ITEM)
    assert (cut.rule, cut.difference.kind, cut.difference.output) == ("GRAD-2", "shape", "d_key")
    wide = judge(backend(lambda q, k, v: (q, k, v.astype(np.float64))), ITEM)
    assert (wide.rule, wide.difference.kind, wide.difference.got) == ("GRAD-2", "dtype", "float64")


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("number", [1.0, np.nan])
def test_one_wrong_number_is_counted_and_named(place, number):
    def wrong(*found):
        found[place][1, 1, 130, 5] += number
        return found

    verdict = judge(backend(wrong), ITEM)
    name = ("d_query", "d_key", "d_value")[place]
    difference = verdict.difference
    assert (verdict.status, verdict.rule, difference.output) == ("fail", "GRAD-19", name)
    assert (difference.element, difference.count) == ((1, 1, 130, 5), 1)
    assert difference.kind == ("pattern" if np.isnan(number) else "value")
    assert difference.size == (2 * 4 * 140 * 16, 2 * 2 * 301 * 16, 2 * 2 * 301 * 8)[place]


@pytest.mark.parametrize("lost", ["query", "key", "head"])
def test_what_is_lost_is_told(lost):
    """The last query of the sum for keys, the last key of that for queries, the last head of a group."""

    def attention_vjp(query, key, value, d_output, **given):
        d_query, d_key, d_value = right(query, key, value, d_output, **given)
        if lost == "key":
            d_query = right(query, key[..., :-1, :], value[..., :-1, :], d_output, **given)[0]
            return d_query, d_key, d_value
        less = d_output.copy()
        if lost == "query":
            less[..., -1, :] = 0
        else:
            less[:, 3] = 0
        return d_query, *right(query, key, value, less, **given)[1:]

    attention_vjp.__wrapped__ = right
    verdict = judge(having(attention_vjp), ITEM)
    assert (verdict.status, verdict.rule) == ("fail", "GRAD-19")
    assert verdict.difference.output == ("d_query" if lost == "key" else "d_key")
    if lost == "head":
        assert verdict.difference.element[1] == 1
    if lost == "key":
        assert verdict.difference.element[2] == 139  # only the last query has the key


def test_results_of_the_forward_pass_are_those_of_the_oracle():
    seen = {}

    def taking(query, key, value, d_output, *, output, lse, is_causal=False, query_offset=0):
        seen.update(output=output, lse=lse)
        return right(query, key, value, d_output, is_causal=is_causal, query_offset=query_offset)

    assert judge(having(taking), ITEM).status == "pass"
    for name, values in values_of(FORMULA).items():
        np.testing.assert_array_equal(seen[name], values.astype(np.float32))


def test_a_declared_variant_of_the_lse_is_verified():
    item = replace(ITEM, formula=replace(FORMULA, options={"d_lse": True}))

    def ignoring(query, key, value, d_output, *, d_lse=None):
        return right(query, key, value, d_output)

    found = having(ignoring)
    assert judge(found, item).status == "fail"
    declared = judge(replace(found, dialect={"GRAD-6": "ignored"}), item)
    assert (declared.status, declared.rule, declared.variant) == ("deviation", "GRAD-6", "ignored")
    assert judge(replace(PORTABLE, dialect={"GRAD-6": "ignored"}), item).status == "fail"


def test_empty_rows_in_a_variant_are_left_out():
    dialect = replace(PORTABLE, dialect={"GRAD-10": "nan"})
    assert judge(dialect, ITEM).status == "pass"  # no row is empty
    empty = replace(ITEM, formula=replace(FORMULA, options={"query_lengths": (3, 9)}))
    assert "GRAD-10" in judge(dialect, empty).reason
    masked = replace(SAMPLED, options={"mask": ("S",), "key_lengths": (0, 9)})
    assert "GRAD-10" in judge(dialect, replace(ITEM, formula=masked)).reason
    assert judge(PORTABLE, empty).status == "pass"


@pytest.mark.parametrize("options", PAIRED, ids="-".join)
def test_the_gradients_of_a_head_are_those_of_the_whole_problem(options):
    """By the exact oracle, which shares nothing with the formulas in float64."""
    arguments = replace(SAMPLED, options=options).arguments_of_gradients("float64")
    want = evaluate("attention_vjp", arguments)
    allowed = budget("attention_vjp", arguments, "float64")
    for head in np.ndindex(2, 2):
        found = gradients_in_float64(head_call(arguments, head))
        own = (head[0], slice(2 * head[1], 2 * head[1] + 2))
        for name in ("d_query", "d_key", "d_value"):
            exact = want[name].values[own if name == "d_query" else head]
            assert np.abs(found[name] - exact).max() < 2.0**-46
    parts = list(gradients_of_heads(arguments, "float64", [(0, 1), (1, 0)]))
    assert {part.name for part in parts} == set(want)
    for part in parts:
        assert np.abs(part.values - want[part.name].values[part.head]).max() < 2.0**-46
        np.testing.assert_allclose(part.budget, 2 * allowed[part.name][part.head], rtol=1e-9)


@pytest.mark.parametrize("options", PAIRED, ids="-".join)
def test_the_portable_backend_passes_with_options_of_pairs(options):
    for dtype in ("float32", "float64", "bfloat16"):
        item = replace(ITEM, formula=replace(SAMPLED, options=options), dtype=dtype)
        verdict = judge(PORTABLE, item)
        assert verdict.status == "pass", verdict


def test_the_drawn_heads_differ_and_tell_a_wrong_one():
    for seed in range(30):
        heads = chosen_heads((2, 3), seed)
        assert heads[0] == (1, 2)
        assert len(set(heads)) == 2
    assert len({chosen_heads((2, 3), seed)[1] for seed in range(60)}) == 5
    item = replace(ITEM, formula=replace(SAMPLED, options={"mask": ("L", "S")}))
    told = []
    for head in np.ndindex(2, 2):

        def wrong(d_query, d_key, d_value, head=head):
            d_key[head] *= 1.01
            return d_query, d_key, d_value

        told.append({judge(backend(wrong), replace(item)).status for _ in range(60)})
    assert told[3] == {"fail"}  # the last head is always judged
    assert all(one == {"pass", "fail"} for one in told[:3])


def test_cases_of_gradients_have_sizes_beside_the_tiles_and_expected_values():
    found = [one for one in sized_cases() if one.gradients]
    assert 30 <= len(found) <= 60
    keys, depths = ({getattr(one.formula, name) for one in found} for name in ("keys", "depth"))
    assert {255, 257, 513, 1023, 1025, 2047, 2049, 4097, 16384} <= keys
    assert {40, 64, 96, 128, 160, 192, 256} <= depths
    assert {one.formula.heads // one.formula.key_heads for one in found} >= {1, 2, 3, 8, 17}
    assert any(one.formula.queries == 1 for one in found)
    assert {one.dtype for one in found} == {"float16", "bfloat16", "float32", "float64"}
    assert all(one.outputs[:3] == ("d_query", "d_key", "d_value") for one in found)
    item = next(one for one in sized_cases() if one.group == "sizes: backward")
    case = find(item.name)
    assert case.operation == "attention_vjp"
    arguments = {**case.arguments}
    arrays = [arguments.pop(name).astype(np.float64) for name in ("query", "key", "value", "d_output")]
    for name, got in zip(("d_query", "d_key", "d_value"), right(*arrays, **arguments), strict=True):
        np.testing.assert_allclose(got, expected(case)[name], atol=1e-12)
