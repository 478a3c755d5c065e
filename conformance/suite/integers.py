"""The chapter `masking`: large positions, offsets, lengths and ids are exact.

If an implementation holds them in a byte, in half precision or in another dtype that is too
short, they wrap around or different ones become equal.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import Shape

chapter = Chapter("masking")

#: More keys, and more queries, than a byte can count.
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
#: Offsets that do not fit into 16, 32 and 53 bits.
_OFFSETS = (2**15 + 1, 2**16, 2**31, 2**32 + 1, 2**53 + 1)
#: Pairs of ids that become equal in a shorter integer or a floating-point number.
_IDS = ((0, 256), (256, 257), (2048, 2049), (0, 2**16), (2**24, 2**24 + 1), (-(2**31), 2**31 - 1))
_LONG_IDS = ((0, 2**32), (2**31 - 1, -(2**31) - 1), (2**53, 2**53 + 1))
_FLOAT32 = ("float32",)


@chapter.group("MASK-3", "MASK-7", "MASK-8", "MASK-9", "MASK-10", each=tuple(_FAR))
def positions_past_a_byte(draw: Draw, name: str) -> Iterator[Yielded]:
    """The 127th position, the 255th and later ones are told apart, as keys and as queries."""
    shape, rule, options = _FAR[name]
    for problem in draw.in_each_dtype(shape, dtypes=_FLOAT32):
        yield Call(problem.arguments | options, (rule,))


@chapter.group("MASK-7", each=_OFFSETS)
def offsets_far_away(draw: Draw, offset: int) -> Iterator[Yielded]:
    """An offset far beyond the keys allows all of them or none, for all batch entries or for one."""
    (one,) = draw.in_each_dtype(Shape((), 3, 5, 2, 3), dtypes=_FLOAT32)
    (batch,) = draw.in_each_dtype(Shape((2, 1), 3, 4, 2, 3), dtypes=_FLOAT32)
    for far in (offset, -offset):
        yield one.arguments | {"is_causal": True, "query_offset": far}
        yield one.arguments | {"window": (offset, offset), "query_offset": far}
        yield one.arguments | {"window": (1, 1), "query_offset": far}
        yield batch.arguments | {"is_causal": True, "query_offset": np.array([far, 1])}


@chapter.group("MASK-11", each=(*_IDS, *_LONG_IDS))
def ids_are_told_apart(draw: Draw, pair: tuple[int, int]) -> Iterator[Yielded]:
    """Two ids that are not equal are told apart, in the shortest dtype that holds both."""
    ids = np.array(pair, np.int64 if pair in _LONG_IDS else np.int32)
    for problem in draw.in_each_dtype(Shape((), 4, 6, 2, 3), dtypes=_FLOAT32):
        yield problem.arguments | {
            "query_segment_ids": ids[np.resize([0, 1, 1, 0], problem.shape[0])],
            "key_segment_ids": ids[np.resize([1, 0, 0, 1, 0, 1], problem.shape[1])],
        }
