"""The stored decisions on drawn calls are those of the reference, and each is about one call."""

import ml_dtypes
import numpy as np
import pytest

from attnspec.conformance.suite import decisions, groups
from attnspec.conformance.suite.alone import acts

#: Every so many of the groups, in as many parts.
PARTS = 30
CALL = {"query": np.ones((2, 1)), "key": np.ones((3, 1)), "value": np.ones((3, 1)), "window": (1, None)}


@pytest.fixture
def made(monkeypatch):
    """The decisions that are made in the test, none of which is known."""
    monkeypatch.setattr(decisions, "_stored", dict)
    monkeypatch.setattr(decisions, "_DECIDED", {})
    return decisions._DECIDED


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.sample(2)
def test_a_stored_decision_is_that_of_the_reference(part, made):
    for group in groups()[part::PARTS]:
        for _ in group.items():
            pass
    assert made
    assert {*(key | decided for key, decided in made.items())} <= {*np.load(decisions.PATH).tolist()}


def other(**changes):
    return "attention", {**CALL, **changes}, "window"


@pytest.mark.parametrize(
    "about",
    [
        other(key=2 * CALL["key"]),
        other(key=CALL["key"].astype(np.float32)),
        other(key=CALL["key"].astype(np.float32).view(np.int32)),
        other(key=CALL["key"].reshape(1, 3)),
        other(window=(None, 1)),
        other(scale=0.5),
        ("attention_vjp", CALL, "window"),
        ("attention", CALL, "key"),
    ],
)
def test_a_decision_is_about_one_call(about, made):
    for question in (
        ("attention", CALL, "window"),
        about,
        ("attention", dict(reversed(CALL.items())), "window"),
    ):
        decisions.decide(bool, *question)
    assert len(made) == 2


def test_the_formats_of_8_bits_are_not_one(made):
    codes = np.ones(3, np.int8)
    for dtype in (np.int8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu):
        decisions.decide(bool, codes.view(dtype))
    assert len(made) == 4


def test_a_decision_is_made_once_and_found_where_it_is_stored(made, monkeypatch, tmp_path):
    call = CALL | {"value": np.array([[0.0], [9.0], [0.0]]), "window": (0, None)}
    assert acts("attention", call, "window")
    assert decisions.write(tmp_path / "decisions.npy", only_check=False)
    assert not decisions.write(tmp_path / "decisions.npy", only_check=True)
    stored = {int(number) & ~1: not int(number) & 1 for number in np.load(tmp_path / "decisions.npy")}
    monkeypatch.setattr(decisions, "_stored", lambda: stored)  # the opposite of what is right
    assert acts("attention", call, "window"), "known in this process"
    made.clear()
    assert not acts("attention", call, "window")
