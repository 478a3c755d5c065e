"""The chapter `stacks`: NaN and infinity beside options, in places that most rows do not read."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attnspec.conformance.suite.alone import results
from attnspec.conformance.suite.decisions import decision
from attnspec.conformance.suite.drawn_stacks import (
    OPTIONS,
    Arguments,
    Sizes,
    draw_beside,
    draw_call,
    options_of,
)
from attnspec.conformance.suite.empty_beside_options import MANY
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.stacks import SERVED, STORED, poison_unread
from attnspec.conformance.suite.whole_calls import gives_numbers
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.stacks import STACKS

chapter = Chapter("stacks")

_SIZES = Sizes(queries=(4, 1, 3), keys=(5, 7, 4), rest=(2, 3), encoding="int8", listed=12)
_PACKED = "packed_attention"
#: The forms and stacks in which no unread number may change a result.
_STRICT = (_PACKED, *(name for name in STACKS if {"packed", "paged"} & {*STACKS[name].layers}))
#: How often a call is drawn.
_DRAWS = 200
_NAMES = tuple(name for name in OPTIONS if name not in ("nothing", "all together"))


@chapter.group("PACK-4", "STACK-4", each=_NAMES)
def not_a_number_in_unread_places_beside(draw: Draw, option: str) -> Iterator[Yielded]:
    """NaN and infinity stand in rows of no sequence and in unread places, beside one option."""
    names = [name for name in (_PACKED, SERVED[0]) if option in options_of(STORED[name].layers)]
    calls, turn = (replace(_SIZES, name=name) for name in names), _NAMES.index(option) % 2
    for random, dtype, sizes in draw_in_turn(draw, *calls, turn=turn):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes, option)
        yield _case(sizes.name, poison_unread(random, sizes, call), *OPTIONS[option][0])


@chapter.group("PACK-4", "STACK-4", step=5)
def not_a_number_in_unread_places_beside_many_options(draw: Draw) -> Iterator[Yielded]:
    """NaN and infinity stand in rows of no sequence and in unread places, beside many options at once."""
    for random, dtype, sizes in draw_in_turn(draw, *(replace(_SIZES, name=name) for name in _STRICT)):
        layers = STORED[sizes.name].layers
        options = [option for option in MANY if option in options_of(layers)]
        for _ in range(_DRAWS):
            call = draw_beside(random, dtype, layers, sizes, *options)
            if gives_numbers(sizes.name, call):
                break
        yield _case(sizes.name, poison_unread(random, sizes, call))


@chapter.group("PACK-4", operation=_PACKED, each=tuple(name for name in _NAMES if name != "left padding"))
def another_sequence_of_nan_beside(draw: Draw, option: str) -> Iterator[Yielded]:
    """One whole sequence is NaN, beside one option. Each of its rows is, and no row of another sequence."""
    for random, dtype, sizes in draw_in_turn(draw, _SIZES):
        for _ in range(_DRAWS):
            call = draw_beside(random, dtype, STORED[_PACKED].layers, sizes, option)
            for name, of in (("query", "query"), ("key", "key"), ("value", "key")):
                start, end, *_ = call[f"{of}_starts"][1:]
                call[name][:, start:end] = np.nan
            if _is_whole(_PACKED, call):
                break
        else:
            raise AssertionError(
                f"{option}: expected a call in which each row of a sequence is NaN, got none"
            )
        yield _case(_PACKED, call, *OPTIONS[option][0])


@chapter.group("STACK-2", "PACK-4", each=(np.nan, np.inf), step=3)
def bias_across_sequences(draw: Draw, number: float) -> Iterator[Yielded]:
    """NaN or infinity in the bias of a query and a key of two sequences, or of none, changes nothing."""
    place = int(number == np.inf)
    rows = [name for name in STACKS if "packed" in STACKS[name].layers and "paged" not in STACKS[name].layers]
    names = (_PACKED, *rows[place::2], SERVED[place])
    for random, dtype, sizes in draw_in_turn(draw, *(replace(_SIZES, name=name) for name in names)):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes, "bias")
        queries, keys = (np.arange(count) for count in call["bias"].shape)
        own = np.searchsorted(call["query_starts"], queries, side="right")[:, None]
        apart = own > len(sizes.queries)
        if "key_starts" in call:
            apart = apart | (own != np.searchsorted(call["key_starts"], keys, side="right"))
        call["bias"] = np.where(apart, number, call["bias"]).astype(dtype)
        yield _case(sizes.name, call, "STACK-2", "SCORE-4")


def _case(operation: str, call: Arguments, *rules: str) -> Call:
    own = "PACK-4" if operation == _PACKED else "STACK-4"
    rules = rules if "STACK-2" in rules else (own, *rules)
    return Call(call | {"return_max": True}, (*rules, "SOFT-8"), operation=operation)


@decision
def _is_whole(operation: str, call: dict[str, Any]) -> bool:
    """Whether all rows of the second sequence are NaN, so that MASK-13 has none, and others are not."""
    start, end, *_ = call["query_starts"][1:]
    output = results(operation, call)[0]
    return bool(np.isnan(output[:, start:end]).all() and output[:, :start].any())
