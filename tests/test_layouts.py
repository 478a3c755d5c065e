"""The memory layouts of the arguments of a call; a call that changes one breaks NUM-4, beside its values."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests_support import own_case

from attnspec.backends import Backend, load, load_library
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.judge.judge import judge
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


@pytest.mark.parametrize("name", ["query", "mask", "bias"])
def test_any_input_that_is_changed_is_noticed(name):
    def changing(query, key, value, *, mask=None, bias=None):
        output = PORTABLE.attention(query, key, value, mask=mask, bias=bias)
        {"query": query, "mask": mask, "bias": bias}[name][...] = 0
        return output

    one = dict.fromkeys(("query", "key", "value", "bias"), np.ones((2, 2))) | {"mask": np.ones((2, 2), bool)}
    backend = Backend("changing", PORTABLE.array_library, changing)
    verdict = judge(backend, own_case("MASK-1", one))
    assert (verdict.status, verdict.rule) == ("fail", "NUM-4")
    assert verdict.reason.startswith(f"{name}: expected to be unchanged")
    with pytest.raises(Failure):
        call(backend, "attention", one)


@pytest.mark.parametrize(
    ("added", "said"), [(0, "; its values are right"), (1, "; its values are wrong too")]
)
def test_the_values_of_a_call_that_changes_an_input_are_judged(added, said):
    def changing(query, key, value):
        output = PORTABLE.attention(query, key, value) + added
        key -= key.mean()
        return output

    backend = replace(PORTABLE, attention=changing, companions={})
    arguments = dict(zip(("query", "key", "value"), np.ones((3, 2, 2)), strict=True))
    verdict = judge(backend, own_case("SOFT-1", arguments))
    assert verdict.reason == f"key: expected to be unchanged, got changed by the call{said}"
    assert verdict.code == f"argument changed, values {'wrong' if added else 'right'}"
    verdict = judge(backend, own_case("SOFT-1", arguments, outputs=("lse",)))
    assert (verdict.status, verdict.rule) == ("fail", "NUM-4"), "it returns nothing that the case is about"


def test_the_values_of_a_call_for_weights_are_not_those_of_the_case():
    def changing(query, key, value):
        output = PORTABLE.attention(query, key, value)
        if (value == np.eye(*value.shape[-2:])).all():
            key += 1
        return output

    backend = replace(PORTABLE, attention=changing, companions={})
    arguments = dict(zip(("query", "key", "value"), np.ones((3, 2, 2)), strict=True))
    verdict = judge(backend, own_case("SOFT-1", arguments))
    assert verdict.reason == "key: expected to be unchanged, got changed by the call"
