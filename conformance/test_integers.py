"""The chapter `masking`: positions, offsets, lengths and ids are integers, exact as far as they reach.

They wrap around, or two of them become one, where an implementation holds them in a
byte, in half precision or in another dtype that is too short.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from attnspec.backends import Backend
from attnspec.conformance.suite.problem import Shape, problem_of
from attnspec.conformance.suite import Record, check, rule

#: More keys than a byte counts, and more queries.
_KEYS, _QUERIES = Shape((), 4, 300, 2, 3), Shape((), 300, 5, 2, 3)
#: Shape, rule, options.
_FAR: Mapping[str, tuple[Shape, str, dict[str, Any]]] = MappingProxyType(
    {
        "causal, late keys": (_KEYS, "MASK-7", {"is_causal": True, "query_offset": 290}),
        "causal, early keys": (_KEYS, "MASK-7", {"is_causal": True, "query_offset": 126}),
        "causal, late queries": (_QUERIES, "MASK-3", {"is_causal": True, "query_offset": -296}),
        "causal, all queries": (_QUERIES, "MASK-3", {"is_causal": True}),
        "window, late keys": (_KEYS, "MASK-8", {"window": (2, 1), "query_offset": 294}),
        "window, wide": (_KEYS, "MASK-8", {"window": (257, None), "query_offset": 296}),
        "length, late keys": (_KEYS, "MASK-9", {"key_lengths": 258}),
        "length, late queries": (_QUERIES, "MASK-10", {"query_lengths": 258}),
    }
)
#: Beyond what 16, 32 and 53 bits hold.
_OFFSETS = (2**15 + 1, 2**16, 2**31, 2**32 + 1, 2**53 + 1)
#: Ids of which a shorter integer or a floating-point number makes one.
_IDS = ((0, 256), (256, 257), (2048, 2049), (0, 2**16), (2**24, 2**24 + 1), (-(2**31), 2**31 - 1))
_LONG_IDS = ((0, 2**32), (2**31 - 1, -(2**31) - 1), (2**53, 2**53 + 1))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=rule(broken)) for name, (_, broken, _) in _FAR.items()]
)
def test_positions_past_a_byte(name: str, backend: Backend, record_property: Record) -> None:
    """The 127th, the 255th and later ones, as keys and as queries."""
    shape, broken, options = _FAR[name]
    check(backend, broken, problem_of(shape, "float32", 255).arguments | options, record_property)


@rule("MASK-7")
@pytest.mark.parametrize("offset", _OFFSETS)
@pytest.mark.parametrize("sign", [1, -1])
def test_offsets_far_away(sign: int, offset: int, backend: Backend, record_property: Record) -> None:
    """Causal, all keys or none; within a window, none or all: the offset of one entry, and of a batch."""
    one, batch = (
        problem_of(Shape((), 3, 5, 2, 3), "float32", 7),
        problem_of(Shape((2, 1), 3, 4, 2, 3), "float32", 8),
    )
    far = sign * offset
    options: tuple[dict[str, Any], ...] = (
        {"is_causal": True, "query_offset": far},
        {"window": (offset, offset), "query_offset": far},
        {"window": (1, 1), "query_offset": far},
    )
    for each in options:
        check(backend, "MASK-7", one.arguments | each, record_property)
    offsets = {"is_causal": True, "query_offset": np.array([far, 1])}
    check(backend, "MASK-7", batch.arguments | offsets, record_property)


@rule("MASK-11")
@pytest.mark.parametrize("pair", [*_IDS, *_LONG_IDS], ids=lambda pair: f"{pair[0]}, {pair[1]}")
def test_ids_are_told_apart(pair: tuple[int, int], backend: Backend, record_property: Record) -> None:
    """Two ids that are not equal, in the shortest dtype that holds both."""
    dtype = np.int64 if pair in _LONG_IDS else np.int32
    problem = problem_of(Shape((), 4, 6, 2, 3), "float32", 11)
    ids = {
        "query_segment_ids": np.array([pair[0], pair[1], pair[1], pair[0]], dtype),
        "key_segment_ids": np.array([pair[1], pair[0], pair[0], pair[1], pair[0], pair[1]], dtype),
    }
    check(backend, "MASK-11", problem.arguments | ids, record_property)
