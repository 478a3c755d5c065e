"""The chapter `notation`: empty axes beside options. A sink is the whole denominator without keys."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attnspec import OPERATIONS
from attnspec.conformance.suite.drawn_stacks import Arguments, Random, Sizes, draw_call, options_of
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.stacks import SERVED
from attnspec.conformance.suite.whole_calls import ATTENDING, layers_of, of_operation
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import primal
from attnspec.operations.stacks import STACKS

chapter = Chapter("notation")

#: Options that a call may have at once.
MANY = (
    *("scale", "softcap", "bias", "offsets", "sinks", "query lengths", "dropout", "mask"),
    *("window", "segments", "key lengths", "left padding"),
)
_WITH_SINKS = tuple(name for name in ATTENDING if "sinks" in OPERATIONS[name].arguments)
_SINGLE = tuple(name for name in _WITH_SINKS if primal(name) not in STACKS)
#: Rows of no sequence have no sink.
_NO_KEYS = Sizes(keys=(0, 0, 0), spare=0, rest=(2, 0), encoding="int8")
_NO_QUERIES = Sizes(queries=(0, 0), keys=(5, 2), encoding="int8")
_NO_ENTRIES = Sizes(queries=(), keys=(), encoding="int8")


@chapter.group("SHAPE-7", "SOFT-7", "SOFT-9", "GRAD-7", each=("sinks", "many options", "positions"), step=4)
def no_keys_beside(draw: Draw, options: str) -> Iterator[Yielded]:
    """There is no key position at all: the lse of a row is its sink, whose gradient is the sum of `d_lse`."""
    # Each operation that is no stack, and each stack of served models, has a call in float32.
    many = options == "many options"
    turns = [(0, _WITH_SINKS), (1, (*SERVED[::2], *SERVED[1::2]))] if many else [(1, _SINGLE)]
    turns += [(0, ("attention",))] if options == "positions" else []  # in float32 too
    given = {"sinks": ("sinks",), "positions": ("sinks", "bias", "positions")}.get(options, MANY)
    for turn, names in turns:
        calls = (replace(_NO_KEYS, name=name) for name in names)
        for random, dtype, sizes in draw_in_turn(draw, *calls, turn=turn):
            own = ("GRAD-7",) if sizes.name.endswith("_vjp") else ("SOFT-7", "SOFT-9")
            call = _draw(random, dtype, sizes, given)
            yield Call(call, (*own, "SHAPE-7"), operation=sizes.name)


@chapter.group("SHAPE-7", each=("queries", "entries"), step=4)
def nothing_beside_options(draw: Draw, nothing: str) -> Iterator[Yielded]:
    """There are no queries, or no batch entries or sequences, and the call has many options."""
    names = _SINGLE[::2] if nothing == "queries" else (*_SINGLE[1::2], "attention")
    for random, dtype, sizes in draw_in_turn(draw, *(replace(_NO_QUERIES, name=name) for name in names)):
        packed = "packed" in layers_of(sizes.name)
        own = replace(_NO_ENTRIES, name=sizes.name) if packed and nothing == "entries" else sizes
        call = _draw(random, dtype, own, MANY)
        call = _without_entries(sizes.name, call) if nothing == "entries" else call
        yield Call(call, operation=sizes.name)


def _draw(random: Random, dtype: str, sizes: Sizes, options: tuple[str, ...]) -> Arguments:
    """Draw a call with some options, as far as its operation has them, and with each result."""
    layers = layers_of(sizes.name)
    given = (option for option in options if option in options_of(layers))
    call = draw_call(random, dtype, layers, sizes, *given) | {"return_max": True}
    return of_operation(random, sizes.name, call)


def _without_entries(operation: str, call: Arguments) -> Arguments:
    """Leave out each batch entry of a call."""
    shapes = {name: OPERATIONS[operation].arguments[name].shape for name in call}
    whole = {
        name for name, x in call.items() if shapes[name][:1] == (BATCH,) and np.ndim(x) == len(shapes[name])
    }
    return {name: x[:0] if name in whole else x for name, x in call.items()}
