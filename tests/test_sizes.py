"""The judge of sized cases: right ones pass, wrong ones fail with the right words; what limits leave out."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import sized_results
from sized_results import ITEM, right, unchanged, without_lse

from attnspec.backends import load
from attnspec.backends.constraints import Constraints
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.sizes.limits import Limits, forget_peak, peak_memory, probe_of
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.formula import Formula

portable = load("numpy-portable")
GROUPS = ("covering", "codes", "decode", "views", "long", "sampled", "backward", "backward-of-some")
DTYPES = ("float32", "bfloat16", "float16", "float64")


@cache
def sample(group, dtype):
    """Some cases of a group and a dtype, with different options, that take no long time."""
    fits = [x for x in sized_cases() if x.group == f"sizes: {group}" and x.dtype == dtype and x.work <= 2**31]
    if group == "sampled":  # an exact row takes a time that grows with the keys, and not with the work
        found = {one.named: one for one in fits if one.formula.keys <= 300}
    else:
        found = {one.named: one for one in fits if one.work < 2**26 or group == "long"}
    return list(found.values())[:4] or fits[:1]


@pytest.mark.parametrize("name", ["numpy-portable", "torch-math"])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.sample(4)
def test_correct_functions_pass_in_each_dtype(name, group):
    backend, judged = load(name), []
    for dtype in DTYPES:
        for item in sample(group, dtype):
            verdict = judge(backend, replace(item))
            assert verdict.status in ("pass", "unsupported"), (verdict, verdict.difference)
            judged += [dtype] if verdict.status == "pass" else []
            assert 0 <= verdict.share <= 1
    if name != "numpy-portable":  # it lacks some options and layouts
        assert judged
        return
    assert set(judged) == {
        one.dtype for one in sized_cases() if one.group == f"sizes: {group}" and sample(group, one.dtype)
    }


def changed(change, item=ITEM):
    """Judge the portable backend with changed results."""
    return judge(sized_results.changed(change), item)


def test_the_unchanged_function_passes_with_or_without_an_lse():
    verdict = changed(unchanged)
    assert verdict.status == "pass"
    assert 0 < verdict.share < 1
    assert verdict.accuracy == "full"
    assert judge(replace(portable, attention=without_lse), ITEM).status == "pass"


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
    assert {"keys not a multiple of 2", "more than 512 keys", "shared heads", "is_causal"} <= set(ITEM.traits)
    for keys in (600, 511):
        other = replace(ITEM, formula=replace(ITEM.formula, keys=keys, options={}))
        assert changed(lose, other).status == "pass"


@pytest.mark.parametrize(
    ("changes", "output", "element", "count"),
    [
        ([("output", (1, 3, 17), 1)], "output", (1, 3, 17), 8),
        ([("output", (0, 0, 3, 2), 1), ("output", (1, 1, 5, 4), 1000)], "output", (1, 1, 5, 4), 2),
        ([("lse", (0, 2, 9), 0.01)], "lse", (0, 2, 9), 1),
    ],
)
def test_what_is_wrong_is_counted_and_the_worst_is_named(changes, output, element, count):
    def wrong(found, lse, _):
        for name, place, off in changes:
            (lse if name == "lse" else found)[place] += off
        return found, lse

    difference = changed(wrong).difference
    assert (difference.output, difference.count) == (output, count)
    assert difference.element[: len(element)] == element
    assert difference.got == pytest.approx(difference.expected + changes[-1][2])
    assert difference.size == 2 * 4 * 40 * (8 if output == "output" else 1)


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


def without_masks(query, key, value, *, return_lse=False):
    return right(query, key, value, return_lse=return_lse)


def test_what_is_not_offered_is_unsupported_before_arrays_are_made(monkeypatch):
    monkeypatch.setattr(Formula, "arguments", lambda *_: pytest.fail("arrays were made"))
    cases = {
        "has no argument is_causal, query_offset": replace(portable, attention=without_masks),
        "is judged in float64, not in float32": replace(portable, dtypes=("float64",)),
        "depth": replace(portable, constraints=Constraints(depths=(64,))),
    }
    for reason, backend in cases.items():
        verdict = judge(backend, replace(ITEM))
        assert verdict.status == "unsupported"
        assert reason in verdict.reason


@pytest.mark.parametrize("item", [one for one in sized_cases() if one.layout][:12], ids=lambda one: one.id)
def test_layouts_reach_the_function(item):
    seen = {}

    def attention(query, key, value, *, is_causal=False, query_offset=0, key_lengths=None):
        seen.update(query=query, key=key, value=value)
        options = {"is_causal": is_causal, "query_offset": query_offset, "key_lengths": key_lengths}
        return right(query, key, value, **options)

    verdict = judge(replace(portable, attention=attention), item)
    assert verdict.status == "pass", verdict
    for name, array in seen.items():
        assert (array.base is None) == (name not in item.layout), name


GIB = 2.0**30


def item(size, **options):
    return SizedCase(
        f"of-{size}", "", ("SOFT-3",), "sizes: long", Formula(size, size, 64, 64, options=options), "float32"
    )


@pytest.fixture
def machine():
    """The time, the largest memory so far, and whether that can be forgotten."""
    return SimpleNamespace(time=100.0, peak=GIB, forgets=True)


def limits(machine, seconds=60.0, octets=32 * GIB, **more):
    readings = {"clock": lambda: machine.time, "peak": lambda: machine.peak}
    return Limits(seconds, octets, **readings, forget=lambda: machine.forgets, **more)


def ran(found, machine, one, seconds, *, keeps=False):
    """Judge one case: so long, and with so much memory."""
    found.start()
    machine.time += seconds
    machine.peak += 8 * one.scores if keeps else 0
    found.took(one, seconds)


def test_time_and_its_own_limit_leave_a_case_out(machine):
    found = limits(machine)
    assert not found.reason_to_skip(item(16))
    machine.time += 59.9
    assert not found.reason_to_skip(item(16))
    machine.time += 0.1
    assert found.reason_to_skip(item(16)) == "left out: 0 s are left (--within)"
    found = limits(machine, seconds=6000.0, each=300.0)
    ran(found, machine, item(4096), 10.0)
    reason = "left out: it needs about 640 s, and may take 300 s (--time-limit)"
    assert found.reason_to_skip(item(2**15)) == reason
    found = limits(machine)
    ran(found, machine, item(4096), 1.0)
    assert not found.reason_to_skip(item(8192))  # 4 s
    assert found.reason_to_skip(item(2**15)) == "left out: it needs about 64 s, and 59 s are left (--within)"
    slower = limits(machine)
    ran(slower, machine, item(16), 50.0)  # a small case tells nothing about others
    assert not slower.reason_to_skip(item(8192))


def test_the_time_of_a_kind_grows_as_it_did(machine):
    """A window makes the time grow with the number of rows alone, which its first two cases show."""
    found = limits(machine, octets=64 * GIB)
    first, second, later = (item(size, is_causal=True, window=(9, None)) for size in (2**12, 2**13, 2**16))
    ran(found, machine, first, 1.0)
    assert "s are left" in found.reason_to_skip(later)
    ran(found, machine, second, 2.0)
    assert not found.reason_to_skip(later)  # 16 s
    assert "s, and 57 s are left" in found.reason_to_skip(item(2**16, is_causal=True))  # of another kind


def test_scores_count_until_a_large_case_shows_that_none_are_kept(machine):
    found = limits(machine)
    large = item(2**16)
    reason = "left out: it needs about 48.2 GiB of memory, and may use 32.0 (--memory)"
    assert found.reason_to_skip(large) == reason
    assert found.undecided(large)
    ran(found, machine, item(8192), 0.0)
    assert not found.undecided(large)
    assert not found.reason_to_skip(large)
    found = limits(machine)
    ran(found, machine, item(8192), 0.0, keeps=True)
    assert not found.undecided(item(2**16))
    assert "GiB of memory" in found.reason_to_skip(item(2**16))
    found = limits(machine)
    ran(found, machine, item(512), 0.0)
    assert found.undecided(item(2**16))
    found = limits(machine)
    assert not found.undecided(item(2**25))
    assert "GiB of memory" in found.reason_to_skip(item(2**25))
    machine.forgets = False
    found = limits(machine)
    ran(found, machine, replace(item(2048), formula=Formula(2**13, 2**13, 64, 64)), 0.0, keeps=True)
    found._keeps_scores = {}
    ran(found, machine, item(8192), 0.0)
    assert found.undecided(item(2**16))


def test_a_probe_has_fewer_rows_and_memory_is_measured():
    whole = item(2**20, is_causal=True, window=(9, None))
    probe = probe_of(whole)
    assert probe.formula.options == whole.formula.options
    assert probe.formula.queries == probe.formula.keys == 8192
    assert probe.dtype == whole.dtype
    assert probe_of(item(4096)) is None
    assert probe_of(item(2**20, query_offset=2**20)) is None
    forgets, before = forget_peak(), peak_memory()
    assert before > 2**20
    block = bytearray(2**28)
    assert peak_memory() - before > 2**27 or not forgets
    del block
    if forget_peak():
        assert peak_memory() < before + 2**27
