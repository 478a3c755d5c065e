"""Wrong about options that have no effect on one path: beside another option, or in one kind of call."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Entry, base, family
from attnspec.reference.call import Step
from attnspec.reference.notation import Attention


@dataclass(frozen=True)
class _Option:
    """How an option is named in entries and in words, its rule, its class, and what it is where not given."""

    name: str
    words: str
    rule: str
    kind: str
    none: Mapping[str, Any]

    def is_given(self, call: Attention) -> bool:
        """Tell whether a call has it."""
        return any(
            getattr(call, field) is not None and bool(np.any(np.not_equal(getattr(call, field), none)))
            for field, none in self.none.items()
        )

    def lost(self, condition: Callable[[Attention], bool]) -> Step:
        """Replace the operator: the option is not there where the condition holds."""
        return lambda call: base.attend(call.but(**self.none) if condition(call) else call)


_SEGMENTS = {"query_segment_ids": None, "key_segment_ids": None}
_OPTIONS = (
    _Option("scale", "the scale", "SCORE-3", "K", {"scale": None}),
    _Option("softcap", "the softcap", "SCORE-5", "F", {"softcap": None}),
    _Option("bias", "the bias", "SCORE-4", "L", {"bias": None}),
    _Option("mask", "the mask", "MASK-1", "R", {"mask": None}),
    _Option("causal", "the causal mask", "MASK-3", "A", {"is_causal": False}),
    _Option("offset", "the query offset", "MASK-7", "A", {"query_offset": 0}),
    _Option("window", "the window", "MASK-8", "E", {"window": None}),
    _Option("query_lengths", "the query lengths", "MASK-10", "R", {"query_lengths": None}),
    _Option("key_lengths", "the key lengths", "MASK-9", "R", {"key_lengths": None}),
    _Option("segments", "the segments", "MASK-11", "R", _SEGMENTS),
    _Option("sinks", "the sinks", "SOFT-5", "M", {"sinks": None}),
    _Option("dropout", "the dropout mask", "DROP-1", "J", {"dropout_mask": None}),
)
#: Pairs that another chapter has an entry for, and a causal mask without which no offset shows.
_ELSEWHERE = (
    ("scale", "mask"),
    ("softcap", "sinks"),
    ("mask", "bias"),
    ("mask", "causal"),
    ("causal", "mask"),
    ("causal", "window"),
    ("causal", "sinks"),
    ("causal", "dropout"),
    ("key_lengths", "mask"),
    ("segments", "bias"),
    ("sinks", "key_lengths"),
    ("softcap", "one query"),
    ("causal", "one query"),
    ("query_lengths", "one query"),
    ("bias", "shared heads"),
)


def _beside(pair: tuple[_Option, _Option]) -> tuple[str, str, Step]:
    option, other = pair
    sentence = f"Forget {option.words} on the path for {other.words.removeprefix('the ')}."
    return f"{option.name}_dropped_beside_{other.name}", sentence, option.lost(other.is_given)


def _for_one_query(option: _Option) -> tuple[str, str, Step]:
    sentence = f"Forget {option.words} on the path for decoding, where there is one query."
    return f"{option.name}_dropped_for_one_query", sentence, option.lost(lambda call: call.queries == 1)


def _in_shared_heads(option: _Option) -> tuple[str, str, Step]:
    def shared(call: Attention) -> bool:
        return bool(call.key.shape[-3] != call.query.shape[-3])

    sentence = f"Forget {option.words} where key heads are shared."
    return f"{option.name}_dropped_in_shared_heads", sentence, option.lost(shared)


def _past_a_tile(size: int) -> Callable[[_Option], tuple[str, str, Step]]:
    def past(option: _Option) -> tuple[str, str, Step]:
        sentence = f"Forget {option.words} on the path for more than {size} keys."
        return f"{option.name}_dropped_past_{size}_keys", sentence, option.lost(lambda call: call.keys > size)

    return past


def _each(condition: str) -> Iterator[_Option]:
    return (option for option in _OPTIONS if (option.name, condition) not in _ELSEWHERE)


BESIDE: tuple[Entry, ...] = tuple(
    one
    for pair in permutations(_OPTIONS, 2)
    if (pair[0].name, pair[1].name) not in _ELSEWHERE
    for one in family(_beside, "attend", "ERR-3", pair[0].kind, pair)
)
IN_SHARED_HEADS: tuple[Entry, ...] = tuple(
    one
    for option in _each("shared heads")
    for one in family(_in_shared_heads, "attend", "ERR-3", option.kind, option)
)
FOR_ONE_QUERY: tuple[Entry, ...] = tuple(
    one
    for option in _each("one query")
    for one in family(_for_one_query, "attend", option.rule, option.kind, option)
)
PAST_A_TILE: tuple[Entry, ...] = tuple(
    one
    for size in (16, 64)
    for option in _each("a tile")
    for one in family(_past_a_tile(size), "attend", option.rule, option.kind, option)
)
