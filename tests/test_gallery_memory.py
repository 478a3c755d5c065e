"""Entries that need several calls have other results after or beside other calls than alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from attnspec.conformance.gallery import entry
from attnspec.conformance.gallery.edges import memory
from attnspec.conformance.gallery.edges.entries import Sized
from attnspec.conformance.gallery.entry import entries_of
from attnspec.conformance.suite.problem import Shape, problem_of

ENTRIES = entries_of(memory)


def arguments(keys=100, seed=1, **options):
    return problem_of(Shape((2,), 40, keys, 4, 16), "float64", seed).arguments | options


def alone(name, given):
    return entry(name).backend().attention(**given)


def _of(beginning):
    found = [one.name for one in ENTRIES if one.name.startswith(beginning)]
    assert found
    return found


@pytest.mark.parametrize("name", _of("output_buffer"))
def test_an_output_changes_with_the_next_call(name):
    attend = entry(name).backend().attention
    output = attend(**arguments())
    before = output.copy()
    attend(**arguments(seed=2))
    assert not np.array_equal(output, before)


@pytest.mark.parametrize("name", _of("mask_by_its_identity"))
def test_a_mask_that_is_changed_is_not_noticed(name):
    attend = entry(name).backend().attention
    given = arguments(mask=np.ones((40, 100), bool))
    before = attend(**given)
    given["mask"][:, 50:] = False
    assert np.array_equal(attend(**given), before)
    assert not np.array_equal(alone(name, given), before)


@pytest.mark.parametrize("name", _of("keys_by_their_identity"))
def test_keys_that_are_changed_are_not_noticed(name):
    attend = entry(name).backend().attention
    given = arguments()
    before = attend(**given)
    given["key"] *= -1
    assert np.array_equal(attend(**given), before)
    assert not np.array_equal(alone(name, given), before)


@pytest.mark.parametrize("name", _of("padding_of_an_earlier_call"))
def test_a_longer_call_shows_in_a_shorter_one(name):
    attend = entry(name).backend().attention
    attend(**arguments(keys=128))
    assert not np.array_equal(attend(**arguments()), alone(name, arguments()))


@pytest.mark.parametrize(
    ("name", "options"),
    [("causal_flag_of_a_refused_call", {"is_causal": True}), ("scale_of_a_refused_call", {"scale": 3.0})],
)
def test_a_refused_call_shows_in_the_next(name, options):
    attend = entry(name).backend().attention
    attend(**arguments(**options))  # one that is not refused does not
    assert np.array_equal(attend(**arguments()), alone(name, arguments()))
    with pytest.raises(ValueError, match="softcap"):
        attend(**arguments(softcap=-1.0, **options))
    assert not np.array_equal(attend(**arguments()), alone(name, arguments()))
    assert np.array_equal(attend(**arguments()), alone(name, arguments()))


@pytest.mark.exhaustive
def test_one_call_in_a_hundred_is_wrong():
    (name,) = _of("tile_missing_once")
    attend = entry(name).backend().attention
    wrong = [not np.array_equal(attend(**arguments()), alone(name, arguments())) for _ in range(200)]
    assert [number for number, one in enumerate(wrong, 1) if one] == [100, 200]


@pytest.mark.parametrize(
    "name",
    [
        "sums_in_scratch_of_all_threads",
        "scores_in_scratch_of_all_threads",
        "options_in_a_place_of_all_threads",
    ],
)
def test_several_calls_at_once_disturb_each_other(name):
    given = [arguments(seed=seed, scale=0.25 * seed) for seed in range(1, 5)]
    wanted = [alone(name, one) for one in given]
    attend = entry(name).backend().attention
    assert all(np.array_equal(attend(**one), found) for one, found in zip(given, wanted, strict=True))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: attend(**given[number % 4]), range(40)))
    assert any(not np.array_equal(one, wanted[number % 4]) for number, one in enumerate(found))


def test_each_of_them_is_right_when_called_once():
    sized = Sized(Shape((2, 2), 40, 150, 4, 16), "causal")
    wanted = entry("plain").backend().attention(**sized.arguments)
    for one in ENTRIES:
        found = zip(one.backend().attention(**sized.arguments), wanted, strict=True)
        assert all(np.allclose(got, good, rtol=0, atol=1e-13) for got, good in found), one.name
