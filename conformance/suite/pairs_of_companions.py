"""The chapter `errors`: pairs of options of self-attention, rotary embedding, its frequencies and ALiBi."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.conformance.suite.alone import acting
from attnspec.conformance.suite.drawn_stacks import Arguments, Random
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.heads import tokens_and_weights
from attnspec.conformance.suite.pairs import Row, apart_in, cover
from attnspec.conformance.suite.problem import grid
from attnspec.operations.operation import primal
from attnspec.operations.positions import NEEDED
from attnspec.sizes import output_shapes

chapter = Chapter("errors")

#: How many options are in a call at most, and how often it is drawn.
_MANY, _MOST_DRAWS = 5, 200
#: How much an option changes a result at least. Most frequencies are far below 1.
_EFFECT = 1 / 64
_SELF = ("convention", "query_bias", "value_bias", "scale", "mask", "is_causal")
_HEADS = ("key_heads", "memory", *_SELF)
_ROTARY = (
    *("positions", "offset", "base", "inverse_frequencies", "attention_factor", "cosines"),
    *("axis_positions", "interleaved", "rotary_depth"),
)
_ALIBI = ("query_offset", "query_positions", "key_positions")
_YARN = ("beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_depth")
_LLAMA = ("low_frequency_factor", "high_frequency_factor")
#: The options of each operation, and of each scaling of frequencies. A bias of keys changes nothing, nor does
#: one of outputs in the backward pass.
OPTIONS_OF: Mapping[str, Row] = {
    "self_attention": _SELF,
    "multi_head_attention": (*_HEADS, "output_bias"),
    "multi_head_attention_vjp": _HEADS,
    "rotary": _ROTARY,
    "rotary_vjp": _ROTARY,
    "alibi_bias": (*_ALIBI, "slopes"),
    "alibi_bias_vjp": _ALIBI,
    **dict.fromkeys(("linear", "dynamic", "longrope"), ("base", "rotary_depth")),
    "yarn": ("base", "rotary_depth", *_YARN),
    "llama3": ("base", "rotary_depth", *_LLAMA),
}
#: Options that stand in the place of another one, which has no effect beside them.
_INSTEAD = frozenset({frozenset({"base", "cosines"}), frozenset({"base", "inverse_frequencies"})})


@chapter.group("ERR-3", each=tuple(OPTIONS_OF))
def pairs_of_options_of(draw: Draw, what: str) -> Iterator[Yielded]:
    """Several options act in one call, and any two options meet in one of the calls."""
    yield from _draw_rows(draw, what, pairs_of(what))


#: Biases that change no result: that of keys, and in the backward pass that of outputs.
_IDLE = ("key_bias", "output_bias")


@chapter.group("ERR-3", each=("self_attention", "multi_head_attention", "multi_head_attention_vjp"))
def options_beside_idle_biases_of(draw: Draw, what: str) -> Iterator[Yielded]:
    """Each option acts in a call that has all biases, also those that change nothing there."""
    yield from _draw_rows(draw, what, [(name,) for name in OPTIONS_OF[what]], _IDLE)


def _draw_rows(draw: Draw, what: str, wanted: Iterable[Row], beside: Row = ()) -> Iterator[Call]:
    operation = "rotary_frequencies" if what in NEEDED else what
    make = _MAKERS[primal(operation)]
    known = OPERATIONS[operation].arguments
    for row in cover(wanted, _MANY, apart_in(operation) | _INSTEAD):
        for number in range(_MOST_DRAWS):
            random = np.random.default_rng(draw.number(number))
            call = make(random, (*row, *NEEDED.get(what, ()), *beside))
            call |= {"scaling": what} if what in NEEDED else {}
            call |= _cotangent(random, operation, call) if operation != primal(operation) else {}
            if acting(operation, call, row, _EFFECT).issuperset(row):
                break
        rules = dict.fromkeys((known[row[0]].rule, "ERR-3"))
        yield Call(call, tuple(rules), operation=operation)


def pairs_of(what: str) -> list[Row]:
    """List the pairs of options, both of which have an effect."""
    return [pair for pair in combinations(OPTIONS_OF[what], 2) if {*pair} not in _INSTEAD]


def _numbers(random: Random, *shape: int) -> Any:
    return grid(random, shape, 0.7).astype(np.float32)


def _cotangent(random: Random, operation: str, call: Arguments) -> Arguments:
    """Draw the cotangent of the result of a call, and the slopes that gradients of ALiBi are about."""
    slopes = {"slopes": np.abs(_numbers(random, 4))} if primal(operation) == "alibi_bias" else {}
    ((name, shape), *_) = output_shapes(primal(operation), call).items()
    return slopes | {f"d_{name}": _numbers(random, *shape)}


def _of_heads(random: Random, row: Row) -> Arguments:
    """Draw tokens, weights and options of four heads."""
    memory = 4 if "memory" in row else 0
    call = tokens_and_weights(random, "float32", 4, 2 if "key_heads" in row else 4, memory=memory)
    mask = random.random((2, 4, 3, 6 if memory else 3)) < 0.7
    return call | _of_projections(random, call, row) | ({"mask": mask} if "mask" in row else {})


def _of_one_head(random: Random, row: Row) -> Arguments:
    """Draw tokens, square weights and options of one head."""
    names = ("tokens", *(f"{name}_weight" for name in ("query", "key", "value")))
    call = {name: _numbers(random, 4, 4) for name in names}
    mask = random.random((4, 4)) < 0.7
    return call | _of_projections(random, call, row) | ({"mask": mask} if "mask" in row else {})


def _of_projections(random: Random, call: Arguments, row: Row) -> Arguments:
    sizes = {name[:-7]: x.shape[-1] for name, x in call.items() if name.endswith("_weight")}
    drawn = {f"{name}_bias": _numbers(random, size) for name, size in sizes.items() if f"{name}_bias" in row}
    if "convention" in row:
        drawn |= {name: np.ascontiguousarray(x.T) for name, x in call.items() if name.endswith("_weight")}
    options = {"convention": "linear", "scale": -1.5, "is_causal": True}
    return drawn | {name: x for name, x in options.items() if name in row}


def _of_rotary(random: Random, row: Row) -> Arguments:
    """Draw features, all or half of which are rotated."""
    half = 2 if "rotary_depth" in row else 4
    places = {"axis_positions": random.integers(0, 9, (2, 2, 5)), "sections": np.array([1, half - 1])}
    options: Mapping[str, Any] = {
        "positions": random.integers(0, 9, (2, 5)),
        "offset": 3,
        "base": 20.0,
        "inverse_frequencies": np.abs(_numbers(random, half)),
        "attention_factor": 1.25,
        "cosines": _numbers(random, 16, half),
        "interleaved": True,
        "rotary_depth": 4,
    }
    call = {"features": _numbers(random, 2, 3, 5, 8)} | {
        name: options[name] for name in row if name in options
    }
    call |= places if "axis_positions" in row else {}
    return call | ({"sines": _numbers(random, 16, half)} if "cosines" in row else {})


def _of_frequencies(random: Random, row: Row) -> Arguments:
    """Draw numbers of a scaling near those of models."""
    half = 8 if "rotary_depth" in row else 16
    numbers: Mapping[str, Any] = {
        "base": (100.0, 1000.0, 500.0),
        "rotary_depth": (16,),
        "factor": (8.0,),
        "original_length": (100, 500, 2048),
        "length": (6000,),
        "short_factors": (np.ones(half, np.float32),),
        "long_factors": ((1 + np.arange(half) / 4).astype(np.float32),),
        "beta_fast": (4.0, 8.0, 16.0),
        "beta_slow": (2.0, 3.0, 0.25),
        "truncate": (False,),
        "mscale": (0.5,),
        "mscale_all_depth": (0.75,),
        "low_frequency_factor": (2.0,),
        "high_frequency_factor": (9.0,),
    }
    own = {name: numbers[name][int(random.integers(len(numbers[name])))] for name in row}
    return {"features": np.ones((1, 32), np.float32)} | own


def _of_alibi(random: Random, row: Row) -> Arguments:
    options = {
        "query_offset": random.integers(-1, 5, 2),
        "query_positions": random.integers(0, 7, (2, 5)),
        "key_positions": random.integers(0, 7, (2, 7)),
        "slopes": np.abs(_numbers(random, 4)),
    }
    arrays = {"query": _numbers(random, 2, 4, 5, 2), "key": _numbers(random, 2, 2, 7, 2)}
    return arrays | {name: x for name, x in options.items() if name in row}


_MAKERS: Mapping[str, Callable[[Random, Row], Arguments]] = {
    "self_attention": _of_one_head,
    "multi_head_attention": _of_heads,
    "rotary": _of_rotary,
    "rotary_frequencies": _of_frequencies,
    "alibi_bias": _of_alibi,
}
