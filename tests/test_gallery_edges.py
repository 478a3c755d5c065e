"""Bases are correct at every size. Entries of edges fail a stored call, or remember and disturb calls."""

import numpy as np
import pytest

from attnspec.conformance.gallery import correct, edges, entry, wrong_entries
from attnspec.conformance.gallery.bases.online import TILED
from attnspec.conformance.gallery.bases.splitting import DECODING
from attnspec.conformance.gallery.edges import memory
from attnspec.conformance.gallery.edges.entries import CALLS, SHOWN, Sized, at, on
from attnspec.conformance.gallery.entry import NEEDS, entries_of
from attnspec.conformance.suite.edges import AT_EDGES
from attnspec.conformance.suite.options import OPTIONS
from attnspec.conformance.suite.problem import Shape, problem_of

BASES = (*correct.LOOPS, *correct.WINDOWS, *correct.SPLITS)
EDGES = entries_of(*edges.MODULES)
SHAPES = (
    Shape((2, 4), 133, 300, 4, 3, 2),
    Shape((2, 4), 1, 300, 4, 3, 2),
    Shape((1, 2), 7, 128, 3, 5),
    Shape((2, 2, 1), 64, 64, 72, 80),
)


def off(name, sized):
    """How far what an entry gives is from what the plain one gives, relative to the largest number."""
    return apart(name, sized.arguments, entry("plain").backend().attention(**sized.arguments))


def apart(name, arguments, wanted):
    """The same where it is known what the plain one gives."""
    return max(map(_apart, entry(name).backend().attention(**arguments), wanted))


def _apart(got, wanted):
    finite = np.isfinite(wanted)
    if got.shape != wanted.shape or not np.array_equal(got[~finite], wanted[~finite], equal_nan=True):
        return np.inf
    if not np.isfinite(got[finite]).all():
        return np.inf
    return np.abs(got[finite] - wanted[finite]).max(initial=0.0) / max(
        np.abs(wanted[finite]).max(initial=0.0), 1
    )


@pytest.mark.parametrize("options", AT_EDGES)
@pytest.mark.sample(20)
def test_bases_are_correct_past_their_tiles(options):
    # Scores of 2000 lose as many digits as they have before the point.
    limit = 1e-9 if "far" in options or "large" in options else 1e-13
    for shape in SHAPES:
        arguments = Sized(shape, options).arguments
        wanted = entry("plain").backend().attention(**arguments)
        assert [base.name for base in BASES if apart(base.name, arguments, wanted) > limit] == []


@pytest.mark.parametrize("base", BASES, ids=lambda one: one.name)
def test_a_base_takes_numbers_that_are_not_finite(base):
    sized = Sized(Shape((2,), 3, 150, 4, 3))
    arguments = sized.arguments
    arguments["value"][0, 140, 0], arguments["value"][1, 3, 1] = np.inf, np.nan
    arguments["key"][1, 70] = np.inf
    arguments["mask"] = np.arange(150) != 70
    got, wanted = (entry(each).backend().attention(**arguments) for each in (base.name, "plain"))
    assert max(map(_apart, got, wanted)) < 1e-13
    assert not np.isfinite(wanted[0]).all()


@pytest.mark.parametrize("sized", CALLS, ids=str)
@pytest.mark.sample(20)
def test_the_call_that_is_stored_shows_the_entry(sized):
    unseen = [name for name in CALLS[sized] if off(name, sized) < 1e-10]
    assert unseen == []


def test_what_needs_sizes_has_a_call_and_nothing_else_has_one():
    needy = {one.name for one in wrong_entries() if one.needs == "sizes"}
    assert needy == set(SHOWN)
    assert len(needy) >= 80
    assert {one.needs for one in wrong_entries()} <= {"", *NEEDS}
    assert sum(map(len, CALLS.values())) == len(SHOWN)


def test_every_option_has_entries_and_at_least_three_bases_do():
    rules = {one.rule for one in EDGES}
    assert {option.rule for option in OPTIONS.values()} <= rules
    for base in (*TILED, *DECODING):
        assert sum(one.name.endswith(base.name) for one in EDGES) >= 8
    assert len(EDGES) >= 100


def test_entries_are_made_for_each_base_and_for_each_size():
    made = on("row_tiles", "SOFT-3", "G", *TILED)(_nothing_visited)
    assert [one.name for one in made] == [f"_nothing_visited_{base.name}" for base in TILED]
    (sized,) = at("factor", "SCORE-3", "K", 7)(_scale_of_some)
    assert (sized.name, sized.sentence) == ("_scale_of_7", "Scale by 7.")
    assert sized.steps["factor"](None) == 7.0
    with pytest.raises(ValueError, match="step: expected one of"):
        at("no_such_step", "SCORE-3", "K", 7)(_scale_of_some)


def _nothing_visited(_one, _call):
    """Visit nothing."""
    return []


def _scale_of_some(size, _call):
    """Scale by {}."""
    return float(size)


ENTRIES = entries_of(memory)


def arguments(keys=100, seed=1, **options):
    return problem_of(Shape((2,), 40, keys, 4, 16), "float64", seed).arguments | options


def alone(name, given):
    return entry(name).backend().attention(**given)


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


def test_each_of_them_is_right_when_called_once():
    sized = Sized(Shape((2, 2), 40, 150, 4, 16), "causal")
    wanted = entry("plain").backend().attention(**sized.arguments)
    for one in ENTRIES:
        found = zip(one.backend().attention(**sized.arguments), wanted, strict=True)
        assert all(np.allclose(got, good, rtol=0, atol=1e-13) for got, good in found), one.name
