"""The judge of sized cases: correct functions pass, and each wrong one fails with the right words."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from attnspec.backends import Deviation, Unsupported, load
from attnspec.backends.constraints import Constraints
from attnspec.conformance.judge.by_formula import judge_sized
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.judge.sized import Sized
from attnspec.conformance.suite.sizes import sized
from attnspec.formula import Formula

portable = load("numpy-portable")
right = portable.attention
GROUPS = ("covering", "decode", "views", "long")
DTYPES = ("float32", "bfloat16", "float16", "float64")


@cache
def sample(group, dtype):
    """Some cases of a group and a dtype, with different options, that take no long time."""
    fits = [one for one in sized() if one.group.endswith(group) and one.dtype == dtype and one.work <= 2**31]
    found = {one.named: one for one in fits if one.work < 2**26 or group == "long"}
    return list(found.values())[:4] or fits[:1]


@pytest.mark.parametrize("name", ["numpy-portable", "torch-math"])
@pytest.mark.parametrize("group", GROUPS)
def test_correct_functions_pass_in_each_dtype(name, group):
    if name.startswith("torch"):
        pytest.importorskip("torch")
    backend, judged = load(name), []
    for dtype in DTYPES:
        for item in sample(group, dtype):
            verdict = judge_sized(backend, replace(item))
            assert verdict.status in ("pass", "unsupported"), (verdict, verdict.difference)
            assert verdict.traits == item.traits
            judged += [dtype] if verdict.status == "pass" else []
            assert 0 <= verdict.share <= 1
    if name != "numpy-portable":  # it lacks some options and layouts
        assert judged
        return
    assert set(judged) == {
        one.dtype for one in sized() if one.group.endswith(group) and sample(group, one.dtype)
    }


#: A causal problem with fewer queries than keys, more than 512 of them, an odd number.
OPTIONS = {"is_causal": True, "query_offset": 561}
ITEM = Sized(
    "one",
    "",
    ("MASK-3", "SOFT-3"),
    "sizes: one",
    Formula(40, 601, 16, 8, batch=(2,), heads=4, key_heads=2, options=OPTIONS),
    "float32",
)


def changed(change, item=ITEM, **options):
    """Judge the portable backend, with its results changed by `change(output, lse, arguments)`."""

    def attention(query, key, value, *, return_lse=False, **given):
        every = {"query": query, "key": key, "value": value, **given}
        output, lse = right(query, key, value, return_lse=True, **given)
        output, lse = change(output, lse, every)
        return (output, lse) if return_lse else output

    # It has the arguments of the function that it calls.
    attention.__wrapped__ = right
    return judge_sized(replace(portable, name="changed", attention=attention, **options), item)


def test_the_unchanged_function_passes():
    verdict = changed(lambda output, lse, _: (output, lse))
    assert verdict.status == "pass"
    assert 0 < verdict.share < 1
    assert verdict.accuracy == "full"


def test_a_last_key_lost_past_512_is_told_where_it_is_odd():
    def lose(output, lse, every):
        keys = every["key"].shape[-2]
        if keys <= 512 or keys % 2 == 0:
            return output, lse
        fewer = {**every, "key": every["key"][..., :-1, :], "value": every["value"][..., :-1, :]}
        query, key, value = (fewer.pop(name) for name in ("query", "key", "value"))
        return right(query, key, value, return_lse=True, **fewer)

    verdict = changed(lose)
    assert (verdict.status, verdict.rule, verdict.group) == ("fail", "MASK-3", "sizes: one")
    difference = verdict.difference
    assert (difference.kind, difference.output, difference.size) == ("value", "output", 2 * 4 * 40 * 8)
    assert difference.element[2] == 39  # only the last query has this key
    assert 0 < difference.count <= 2 * 4 * 8
    assert difference.share > 1
    assert abs(difference.got - difference.expected) > difference.allowed
    assert {"keys not a multiple of 2", "more than 512 keys", "shared heads", "is_causal"} <= set(
        verdict.traits
    )
    for keys in (600, 511):
        other = replace(ITEM, formula=replace(ITEM.formula, keys=keys, options={}))
        assert changed(lose, other).status == "pass"


def test_one_wrong_row_is_counted_and_named():
    def wrong(output, lse, _):
        output[1, 3, 17] += 1
        return output, lse

    verdict = changed(wrong)
    assert verdict.difference.element[:3] == (1, 3, 17)
    assert verdict.difference.count == 8
    assert verdict.difference.got == pytest.approx(verdict.difference.expected + 1)


def test_the_worst_of_several_is_named():
    def wrong(output, lse, _):
        output[0, 0, 3, 2] += 1
        output[1, 1, 5, 4] += 1000
        return output, lse

    verdict = changed(wrong)
    assert verdict.difference.element == (1, 1, 5, 4)
    assert verdict.difference.count == 2


def test_an_lse_alone_is_told_as_the_lse():
    def wrong(output, lse, _):
        lse[0, 2, 9] += 0.01
        return output, lse

    verdict = changed(wrong)
    assert (verdict.status, verdict.difference.output) == ("fail", "lse")
    assert verdict.difference.element == (0, 2, 9)
    assert (verdict.difference.count, verdict.difference.size) == (1, 2 * 4 * 40)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_a_pattern(number):
    def wrong(output, lse, _):
        output[0, 1, 2, 3] = number
        output[0, 1, 3] += 1000  # a pattern comes before a value
        return output, lse

    verdict = changed(wrong)
    assert verdict.difference.kind == "pattern"
    assert verdict.difference.element == (0, 1, 2, 3)


def test_shapes_and_dtypes_come_before_values():
    cut = changed(lambda output, lse, _: (output[..., :-1], lse))
    assert (cut.status, cut.difference.kind, cut.difference.got) == ("fail", "shape", "(2, 4, 40, 7)")
    assert cut.rule.startswith("SHAPE-")
    of_lse = changed(lambda output, lse, _: (output, lse[..., None]))
    assert (of_lse.difference.kind, of_lse.difference.output) == ("shape", "lse")
    wide = changed(lambda output, lse, _: (output.astype(np.float64), lse))
    assert (wide.rule, wide.difference.kind, wide.difference.got) == ("NUM-1", "dtype", "float64")
    narrow = changed(lambda output, lse, _: (output, lse.astype(np.float16)))
    assert (narrow.rule, narrow.difference.output) == ("NUM-7", "lse")


def test_a_changed_input_is_told():
    def wrong(output, lse, every):
        every["value"][0, 0, 0, 0] += 1
        return output, lse

    verdict = changed(wrong)
    assert (verdict.status, verdict.rule) == ("fail", "NUM-4")
    assert verdict.reason.startswith("value: expected to be unchanged")


def test_raising_is_an_error_and_declining_is_not():
    def raising(_output, _lse, _every):
        raise ValueError("too long")

    def declining(_output, _lse, _every):
        raise NotImplementedError("no")

    def excluded(_output, _lse, _every):
        raise Unsupported("of its documentation")

    verdict = changed(raising)
    assert (verdict.status, verdict.rule, verdict.raised.type) == ("error", "MASK-3", "ValueError")
    assert verdict.raised.message == "too long"
    assert [changed(one).status for one in (declining, excluded)] == ["unsupported"] * 2
    assert changed(declining).declined


SHORT = replace(ITEM, formula=replace(ITEM.formula, options={"is_causal": True}))


def bottom_right(query, key, value, *, is_causal=False, return_lse=False):
    offset = key.shape[-2] - query.shape[-2] if is_causal else 0
    return right(query, key, value, is_causal=is_causal, query_offset=offset, return_lse=return_lse)


def test_a_variant_fails_undeclared_and_is_a_deviation_declared():
    backend = replace(portable, name="own", attention=bottom_right)
    verdict = judge_sized(backend, SHORT)
    assert (verdict.status, verdict.rule, verdict.difference.output) == ("fail", "MASK-3", "output")
    declared = judge_sized(replace(backend, dialect={"MASK-3": "bottom-right"}), SHORT)
    assert (declared.status, declared.rule, declared.variant) == ("deviation", "MASK-3", "bottom-right")
    assert "MASK-3" in declared.rules
    # Where the variant is what the rule says, it is no deviation.
    square = replace(SHORT, formula=replace(SHORT.formula, keys=40))
    assert judge_sized(replace(backend, dialect={"MASK-3": "bottom-right"}), square).status == "pass"
    # What is declared and not done fails.
    assert judge_sized(replace(portable, dialect={"MASK-3": "bottom-right"}), SHORT).status == "fail"


EMPTY = replace(ITEM, rules=("MASK-9",), formula=replace(ITEM.formula, options={"key_lengths": (0, 600)}))


def test_rows_without_a_key_are_compared_unless_a_variant_is_declared():
    def nan(output, lse, _):
        output[0] = np.nan
        return output, lse

    def wrong(output, lse, _):
        output[0], output[1, 0, 0] = np.nan, 7
        return output, lse

    assert changed(lambda output, lse, _: (output, lse), EMPTY).status == "pass"
    verdict = changed(nan, EMPTY)
    assert (verdict.status, verdict.difference.kind, verdict.difference.element[0]) == ("fail", "pattern", 0)
    assert changed(nan, EMPTY, dialect={"MASK-6": "nan"}).status in ("pass", "deviation")
    other = changed(wrong, EMPTY, dialect={"MASK-6": "nan"})
    assert (other.status, other.difference.element[:3]) == ("fail", (1, 0, 0))


def test_an_lse_in_base_2():
    def halved(output, lse, _):
        return output, lse / np.log(np.float32(2))

    assert changed(halved).difference.output == "lse"
    declared = changed(halved, dialect={"SOFT-6": "base-2"})
    assert (declared.status, declared.rule) == ("deviation", "SOFT-6")
    assert changed(lambda output, lse, _: (output, lse), dialect={"SOFT-6": "base-2"}).status == "fail"


def test_a_declared_deviation_covers_its_rule_alone():
    def wrong(output, lse, _):
        return output + 1, lse

    covers, other = (Deviation((rule,), "it is off", "one") for rule in ("MASK-3", "SOFT-5"))
    verdict = changed(wrong, deviations=(covers,))
    assert (verdict.status, verdict.reason, verdict.declared) == ("deviation", "it is off", (covers.id,))
    assert changed(wrong, deviations=(other,)).status == "fail"


def without_masks(query, key, value, *, return_lse=False):
    return right(query, key, value, return_lse=return_lse)


def test_what_is_not_offered_is_unsupported_before_arrays_are_made(monkeypatch):
    monkeypatch.setattr(Formula, "arguments", lambda *_: pytest.fail("arrays were made"))
    cases = {
        "has no argument is_causal, query_offset": replace(portable, attention=without_masks),
        "has no float32": replace(portable, dtypes=("float64",)),
        "depth": replace(portable, constraints=Constraints(depths=(64,))),
    }
    for reason, backend in cases.items():
        verdict = judge_sized(backend, replace(ITEM))
        assert verdict.status == "unsupported"
        assert reason in verdict.reason


def test_one_whose_lse_is_not_offered_is_judged_by_its_output():
    def attention(query, key, value, *, is_causal=False, query_offset=0):
        return right(query, key, value, is_causal=is_causal, query_offset=query_offset)

    assert judge_sized(replace(portable, attention=attention), ITEM).status == "pass"


@pytest.mark.parametrize("item", [one for one in sized() if one.layout][:12], ids=lambda one: one.id)
def test_layouts_reach_the_function(item):
    seen = {}

    def attention(query, key, value, *, is_causal=False, query_offset=0, key_lengths=None):
        seen.update(query=query, key=key, value=value)
        options = {"is_causal": is_causal, "query_offset": query_offset, "key_lengths": key_lengths}
        return right(query, key, value, **options)

    verdict = judge_sized(replace(portable, attention=attention), item)
    assert verdict.status == "pass", verdict
    for name, array in seen.items():
        assert (array.base is None) == (name not in item.layout), name


def test_the_judge_of_all_cases_judges_sized_ones():
    assert judge(portable, ITEM) == judge_sized(portable, ITEM)
