"""A call that changes an input breaks NUM-4, and its values are judged beside that."""

from dataclasses import replace

import numpy as np
import pytest

from attnspec import Case
from attnspec.backends import Backend, load
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.judge.judge import judge

PORTABLE = load("numpy-portable")


def asked(rule, arguments, operation="attention", **options):
    """A generated call that bears on a rule."""
    return Case("masking-own-1", "", "masking", operation, (rule,), arguments, group="own", **options)


@pytest.mark.parametrize("name", ["query", "mask", "bias"])
def test_any_input_that_is_changed_is_noticed(name):
    def changing(query, key, value, *, mask=None, bias=None):
        output = PORTABLE.attention(query, key, value, mask=mask, bias=bias)
        {"query": query, "mask": mask, "bias": bias}[name][...] = 0
        return output

    one = dict.fromkeys(("query", "key", "value", "bias"), np.ones((2, 2))) | {"mask": np.ones((2, 2), bool)}
    backend = Backend("changing", PORTABLE.array_library, changing)
    verdict = judge(backend, asked("MASK-1", one))
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
    verdict = judge(backend, asked("SOFT-1", arguments))
    assert verdict.reason == f"key: expected to be unchanged, got changed by the call{said}"
    assert verdict.code == f"argument changed, values {'wrong' if added else 'right'}"
    verdict = judge(backend, asked("SOFT-1", arguments, outputs=("lse",)))
    assert (verdict.status, verdict.rule) == ("fail", "NUM-4"), "it returns nothing that the case is about"


def test_the_values_of_a_call_for_weights_are_not_those_of_the_case():
    def changing(query, key, value):
        output = PORTABLE.attention(query, key, value)
        if (value == np.eye(*value.shape[-2:])).all():
            key += 1
        return output

    backend = replace(PORTABLE, attention=changing, companions={})
    arguments = dict(zip(("query", "key", "value"), np.ones((3, 2, 2)), strict=True))
    verdict = judge(backend, asked("SOFT-1", arguments))
    assert verdict.reason == "key: expected to be unchanged, got changed by the call"
