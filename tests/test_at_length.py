"""Functions whose last query is at the last key of the length, for every operation."""

from contextlib import suppress

import numpy as np
import pytest

from attnspec import OPERATIONS, cases
from attnspec.backends import Unsupported, describe
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.windows import with_own_places
from attnspec.conformance.suite.drawn_stacks import Sizes, draw_call
from attnspec.conformance.suite.stacks import STORED
from attnspec.reference import attention
from attnspec.sizes import sizes


def test_another_offset_than_that_of_the_length_is_declined():
    def decode(query, key, value, *, key_lengths=None, is_causal=False):
        offset = key.shape[-2] - query.shape[-2]
        return attention(query, key, value, query_offset=offset, is_causal=is_causal)

    backend = describe(decode, at_length=True)
    query, key = np.ones((3, 4)), np.ones((5, 4))
    assert backend.attention(query, key, key, is_causal=True, query_offset=2).shape == (3, 4)
    for options in ({}, {"query_offset": 1}):
        with pytest.raises(
            Unsupported, match="the last query of the function is at the last key of the length"
        ):
            backend.attention(query, key, key, is_causal=True, **options)
    # An offset of 0 is none, and the last query is at the last key, which is past this length.
    backend = describe(
        decode, at_length=True, names={"key_lengths": "key_lengths"}, dialect={"MASK-3": "bottom-right"}
    )
    with pytest.raises(Unsupported, match="at the last key of the length"):
        backend.attention(query, key, key, is_causal=True, query_offset=0, key_lengths=3)
    assert backend.attention(query, key, key, is_causal=True, query_offset=0).shape == (3, 4)


@pytest.mark.parametrize("operation", STORED)
def test_the_last_key_of_a_length_is_that_of_the_arrays_of_a_form(operation):
    call = draw_call(np.random.default_rng(1), "float32", STORED[operation].layers, Sizes(), "causality")
    queries = np.diff(call["query_starts"]) if "query_starts" in call else call["query"].shape[-2]
    keys = np.diff(call["key_starts"]) if "key_starts" in call else sizes(operation, call).letters.get("S")
    end = call.get("key_lengths", keys) - queries
    convention = Convention(at_length=True)
    taken = with_own_places(call | {"query_offset": end}, convention, (), operation)
    assert taken.keys() == call.keys() - {"query_offset"}
    with pytest.raises(Unsupported, match="at the last key of the length"):
        with_own_places(call | {"query_offset": end + 1}, convention, (), operation)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_calls_of_every_operation_end_at_a_length_or_are_declined(operation):
    for case in cases():
        if case.operation == operation:
            with suppress(Unsupported):
                taken = with_own_places(case.arguments, Convention(at_length=True), (), operation)
                assert taken.keys() == case.arguments.keys() - {"query_offset"}
