"""The chapter `numerics`: NaN and infinity where they are attended to, beside options."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attnspec.conformance.suite.drawn_stacks import draw_beside, options_of
from attnspec.conformance.suite.empty_beside_options import MANY
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import SHAPES
from attnspec.conformance.suite.special_numbers import DRAWS, SIZES, STORED, put_nan
from attnspec.conformance.suite.stacks import SERVED
from attnspec.conformance.suite.whole_calls import layers_of, of_operation
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.stacks import FORMS

chapter = Chapter("numerics")

_WIDE = SHAPES[4]
_DTYPES = ("float32", "bfloat16")
_OPERATIONS = (
    *(*FORMS, *SERVED),
    *("attention", "sharded_attention", "seeded_dropout_attention", "low_precision_attention"),
)
#: The first sequence has the most queries, as a batch entry has as many.
_SIZES = replace(SIZES, queries=(4, 1, 3))
#: Options that disallow no key, so that NaN in one reaches whole heads.
_OPEN = ("scale", "softcap", "bias", "sinks", "dropout")


@chapter.group("NUM-11", "DROP-1", each=("query", "key", "bias"))
def row_that_is_none_and_is_dropped(draw: Draw, name: str) -> Iterator[Yielded]:
    """A row with a score of NaN is NaN, if all of its weights are dropped too."""
    for problem in draw.in_each_dtype(_WIDE, dtypes=_DTYPES):
        call = problem.arguments | ({"bias": problem.array(*problem.shape)} if name == "bias" else {})
        call[name] = call[name].copy()
        call[name][1, 0, 3, 1] = np.nan
        kept = problem.mask()
        kept[1, 0, 3] = False
        yield call | {"dropout_mask": kept, "dropout_rate": 0.5}


@chapter.group("NUM-11", "SCORE-5", each=("query", "key"))
def infinity_under_a_softcap(draw: Draw, name: str) -> Iterator[Yielded]:
    """The score of an infinite product is the softcap with the sign of the product."""
    for problem in draw.in_each_dtype(_WIDE, dtypes=_DTYPES):
        query, key = problem.query.copy(), problem.key.copy()
        other = key if name == "query" else query
        other[..., 1] = np.where(other[..., 1] < 0, other[..., 1] - 1, other[..., 1] + 1)  # no 0
        array = query if name == "query" else key
        array[1, 2, 1, 1], array[0, 0, 2, 1] = np.inf, -np.inf
        yield problem.arguments | {"query": query, "key": key, "softcap": 1.5}


@chapter.group("NUM-11", "NUM-12", each=("query", "key", "value"), step=3)
def number_that_is_none_in_a_form_beside_options(draw: Draw, part: str) -> Iterator[Yielded]:
    """NaN in a query, a key or a value of a form reaches its rows beside many options, dropped or not."""
    names = [name for name in _OPERATIONS if part == "query" or "latent" not in name]
    calls = (replace(_SIZES, name=name) for name in names)
    for random, dtype, sizes in draw_in_turn(draw, *calls, turn=int(part == "key")):
        layers = layers_of(sizes.name)
        options = [x for x in (MANY if part == "query" else _OPEN) if x in options_of(layers)]
        for _ in range(DRAWS):
            call = of_operation(random, sizes.name, draw_beside(random, dtype, layers, sizes, *options))
            if put_nan(random, sizes.name, call, part):
                break
        if part == "query" and "dropout_mask" in call:
            array = next(
                call[own] for own in STORED[part] if own in call and call[own].dtype.kind not in "iu"
            )
            for *row, _ in np.argwhere(np.isnan(array)):
                call["dropout_mask"][*row] = False
        packed = ("PACK-4",) if "packed" in sizes.name and part != "query" else ()
        rules = ("NUM-12" if part == "value" else "NUM-11", *packed)
        yield Call(call, rules, operation=sizes.name, outputs=("output",))
