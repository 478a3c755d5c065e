"""What the limits of a run of the sizes leave out, with a clock and a memory made by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from attnspec.conformance.sizes.limits import Limits, forget_peak, peak_memory, probe_of
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.formula import Formula

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
    return Limits(
        seconds,
        octets,
        clock=lambda: machine.time,
        peak=lambda: machine.peak,
        forget=lambda: machine.forgets,
        **more,
    )


def ran(found, machine, one, seconds, *, keeps=False):
    """Judge one case: so long, and with so much memory."""
    found.start()
    machine.time += seconds
    machine.peak += 8 * one.scores if keeps else 0
    found.took(one, seconds)


def test_a_small_case_is_judged_until_the_time_is_over(machine):
    found = limits(machine)
    assert not found.left_out(item(16))
    machine.time += 59.9
    assert not found.left_out(item(16))
    machine.time += 0.1
    assert found.left_out(item(16)) == "left out: 0 s are left (--within)"


def test_the_time_of_a_case_follows_from_its_work(machine):
    found = limits(machine)
    ran(found, machine, item(4096), 1.0)
    assert not found.left_out(item(8192))  # 4 s
    assert found.left_out(item(2**15)) == "left out: it needs about 64 s, and 59 s are left (--within)"
    slower = limits(machine)
    ran(slower, machine, item(16), 50.0)  # a small case tells nothing about others
    assert not slower.left_out(item(8192))


def test_the_time_of_a_kind_grows_as_it_did(machine):
    """A window makes the time grow with the number of rows alone, which its first two cases show."""
    found = limits(machine, octets=64 * GIB)
    first, second, later = (item(size, is_causal=True, window=(9, None)) for size in (2**12, 2**13, 2**16))
    ran(found, machine, first, 1.0)
    assert "s are left" in found.left_out(later)
    ran(found, machine, second, 2.0)
    assert not found.left_out(later)  # 16 s
    assert "s, and 57 s are left" in found.left_out(item(2**16, is_causal=True))  # of another kind


def test_a_case_longer_than_its_own_limit_is_left_out(machine):
    found = limits(machine, seconds=6000.0, each=300.0)
    ran(found, machine, item(4096), 10.0)
    assert found.left_out(item(2**15)) == "left out: it needs about 640 s, and may take 300 s (--time-limit)"


def test_scores_count_until_the_implementation_keeps_none(machine):
    found = limits(machine)
    large = item(2**16)
    assert found.left_out(large) == "left out: it needs about 48.2 GiB of memory, and may use 32.0 (--memory)"
    assert found.undecided(large)
    ran(found, machine, item(8192), 0.0)
    assert not found.undecided(large)
    assert not found.left_out(large)


def test_an_implementation_that_keeps_scores_is_known_for_it(machine):
    found = limits(machine)
    ran(found, machine, item(8192), 0.0, keeps=True)
    assert not found.undecided(item(2**16))
    assert "GiB of memory" in found.left_out(item(2**16))


def test_a_small_case_does_not_show_whether_scores_are_kept(machine):
    found = limits(machine)
    ran(found, machine, item(512), 0.0)
    assert found.undecided(item(2**16))


def test_a_peak_that_an_earlier_case_hides_shows_nothing(machine):
    machine.forgets = False
    found = limits(machine)
    ran(found, machine, replace(item(2048), formula=Formula(2**13, 2**13, 64, 64)), 0.0, keeps=True)
    found._keeps_scores = {}
    ran(found, machine, item(8192), 0.0)
    assert found.undecided(item(2**16))


def test_arrays_alone_may_need_too_much(machine):
    found = limits(machine)
    assert not found.undecided(item(2**25))
    assert "GiB of memory" in found.left_out(item(2**25))


def test_a_probe_has_the_options_and_fewer_rows():
    whole = item(2**20, is_causal=True, window=(9, None))
    probe = probe_of(whole)
    assert probe.formula.options == whole.formula.options
    assert probe.formula.queries == probe.formula.keys == 8192
    assert probe.dtype == whole.dtype
    assert probe_of(item(4096)) is None
    assert probe_of(item(2**20, query_offset=2**20)) is None


def test_the_memory_of_this_machine_is_measured():
    forgets, before = forget_peak(), peak_memory()
    assert before > 2**20
    block = bytearray(2**28)
    assert peak_memory() - before > 2**27 or not forgets
    del block
    if forget_peak():
        assert peak_memory() < before + 2**27
