"""Declarations apply to a range of releases, and not to others."""

from dataclasses import replace

import pytest

from attnspec.backends import Deviation, load
from attnspec.backends.backend import for_release
from attnspec.backends.deviation import holds
from attnspec.backends.outcome import Bound

ANY_SCALE = Deviation(("ERR-6",), "any scale is taken", "https://example.org/1", Bound())
DEPTH = Deviation(("ERR-5",), "a depth of 0 is taken", "https://example.org/2", Bound())


def declaring(version, **declared):
    numpy = load("numpy-portable")
    return replace(numpy, array_library=replace(numpy.array_library, version=version), **declared)


@pytest.mark.parametrize(
    ("versions", "version", "in_range"),
    [
        ("", "2.14.1", True),
        (">=2.13,<2.14", "2.13.0+cpu", True),
        (">=2.13,<2.14", "2.13.1", True),
        (">=2.13,<2.14", "2.14.0.dev20260801", False),
        (">=2.13,<2.14", "2.14.1", False),
        (">=2.13", "2.14.0rc1", True),
        (">=2.13", "nightly", False),
        ("", "nightly", True),
    ],
)
def test_a_release_in_a_range(versions, version, in_range):
    assert holds(versions, version) == in_range


def test_in_the_range_all_holds():
    backend = declaring("2.13.0+cpu", dialect={"MASK-6": "nan"}, deviations=(DEPTH,), versions=">=2.13,<2.14")
    assert for_release(backend) is backend


def test_with_another_release_nothing_is_declared_and_that_is_said():
    backend = declaring("2.14.1", dialect={"MASK-6": "nan"}, deviations=(DEPTH,), versions=">=2.13,<2.14")
    left = for_release(backend)
    assert (left.dialect, left.deviations) == ({}, ())
    assert left.notes == ("no deviation is declared for numpy 2.14.1 (declarations are for >=2.13,<2.14)",)


def test_a_deviation_may_have_a_range_of_its_own():
    wide = replace(ANY_SCALE, versions=">=2.10")
    left = for_release(declaring("2.14.1", deviations=(DEPTH, wide), versions=">=2.13,<2.14"))
    assert left.deviations == (wide,)
    assert left.notes == (
        "not every deviation is declared for numpy 2.14.1 (declarations are for >=2.13,<2.14)",
    )
    mended = replace(DEPTH, versions="<2.14")
    left = for_release(declaring("2.14.1", dialect={"MASK-6": "nan"}, deviations=(mended,)))
    assert (left.dialect, left.deviations) == ({"MASK-6": "nan"}, ())


def test_what_declares_nothing_has_nothing_to_note():
    assert for_release(declaring("2.14.1", versions=">=1,<2")).notes == ()


def test_an_adapter_of_another_release_is_loaded_without_what_is_declared(monkeypatch):
    pytest.importorskip("torch")
    from attnspec.backends.library import torch as file

    assert load("torch-sdpa").deviations
    monkeypatch.setattr(file, "LIBRARY", replace(file.LIBRARY, version="2.99.0"))
    later = load("torch-sdpa")
    assert (later.version, later.dialect, later.deviations) == ("2.99.0", {}, ())
    assert later.notes == ("no deviation is declared for torch 2.99.0 (declarations are for >=2.13,<2.14)",)
    assert load("torch-portable").notes == ()


def test_each_adapter_says_for_which_releases_it_speaks():
    from attnspec.backends import NAMES

    for backend in map(load, NAMES):
        assert bool(backend.versions) == bool(backend.dialect or backend.deviations)
