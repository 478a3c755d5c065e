"""The memory layouts in which the arguments of a call are passed."""

from types import SimpleNamespace

import numpy as np
import pytest

from attnspec.backends import Backend, load, load_library
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.layout import LAYOUTS, OF_ANY_NUMBERS, SURROUNDED

PORTABLE = load("numpy-portable")


@pytest.mark.parametrize("layout", ["repeated", "expanded"])
def test_a_layout_that_repeats_numbers_is_refused_for_other_numbers(layout):
    """A view with a stride of 0 would give the backend another call than the one that is judged."""
    random, one = np.random.default_rng(1), np.ones((2, 3, 5, 4))
    arguments = {"query": random.normal(size=one.shape), "key": one, "value": random.normal(size=one.shape)}
    repeated = call(PORTABLE, "attention", arguments, {"key": layout})["output"]
    np.testing.assert_array_equal(repeated, call(PORTABLE, "attention", arguments)["output"])
    for name in ("query", "value"):
        with pytest.raises(ValueError, match=f"{name}: expected equal numbers for the layout {layout}, got"):
            call(PORTABLE, "attention", arguments, {name: layout})
    for kind in OF_ANY_NUMBERS:
        call(PORTABLE, "attention", arguments, dict.fromkeys(arguments, kind))


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arguments_that_are_shared_are_one_array_in_memory(library):
    given = {}

    def attention(query, key, value):
        given.update(query=query, key=key, value=value)
        return query

    arguments = {name: np.ones((2, 3)) for name in ("query", "key", "value")}
    backend = Backend("seeing", load_library(library), attention)
    call(backend, "attention", arguments, {"key": "shared with query"})
    query, key, value = map(np.asarray, given.values())
    assert np.shares_memory(query, key)
    assert not np.shares_memory(query, value)


class Placed(np.ndarray):
    """An array that says that it is on another device."""

    device = "another"


@pytest.mark.parametrize("name", [*LAYOUTS, *SURROUNDED])
def test_a_layout_stays_on_the_device_of_its_array(name):
    devices = []

    def full(*given, device="cpu", **options):
        devices.append(device)
        return np.full(*given, **options)

    xp = SimpleNamespace(full=full, broadcast_to=np.broadcast_to)
    {**LAYOUTS, **SURROUNDED}[name](xp, np.ones((2, 3, 4)).view(Placed))
    assert set(devices) <= {"another"}
