"""The chapter `numerics`: NaN and infinity where they are attended to."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.conformance.suite.decisions import decision
from attnspec.conformance.suite.drawn_stacks import Sizes, draw_call
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import sinks
from attnspec.conformance.suite.problem import GROUPED, MASKED, SHAPES, Shape
from attnspec.conformance.suite.tiled_masks import WIDTHS
from attnspec.conformance.suite.whole_calls import layers_of, of_operation
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.stacks import FORMS, STACKS
from attnspec.reference import function
from attnspec.sizes import bound

chapter = Chapter("numerics")

_WIDE = SHAPES[4]  # two batch entries of three heads, five queries, seven keys
_PLACES = {"first": 0, "middle": 2, "last": -1}


@chapter.group("NUM-11", each=("query", "key"))
def number_that_is_none(draw: Draw, name: str) -> Iterator[Yielded]:
    """One feature of one query or of one key is NaN or infinite, and its scores are NaN or infinite."""
    for number in (np.nan, np.inf, -np.inf):
        for place in _PLACES.values():
            for problem in draw.in_each_dtype(_WIDE):
                array = problem.arguments[name].copy()
                array[1, 2, place, 1] = number
                yield problem.arguments | {name: array}


@chapter.group("NUM-11", "HEAD-1")
def shared_key_that_is_none(draw: Draw) -> Iterator[Yielded]:
    """NaN in a shared key reaches the query heads that share it, and no other."""
    for problem in draw.in_each_dtype(GROUPED[0]):
        key = problem.key.copy()
        key[0, 1, 2, 0] = np.nan
        yield problem.arguments | {"key": key}


@chapter.group("NUM-11", each=(np.nan, np.inf))
def bias_that_is_none(draw: Draw, number: float) -> Iterator[Yielded]:
    """NaN or infinity in one place of the bias makes one row NaN."""
    for place in _PLACES.values():
        for problem in draw.in_each_dtype(_WIDE):
            bias = problem.array(*problem.shape)
            bias[0, 1, 2, place] = number
            yield problem.arguments | {"bias": bias}


@chapter.group("NUM-11", each=("mask", "sinks", "softcap"))
def query_that_is_none_beside_an_option(draw: Draw, option: str) -> Iterator[Yielded]:
    """NaN passes through a softcap, and neither a sink nor a mask turns it into a number."""
    for problem in draw.in_each_dtype(_WIDE):
        query = problem.query.copy()
        query[1, 0, 3] = np.nan
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": problem.mask()},
            "sinks": sinks(problem),
            "softcap": {"softcap": 2.0},
        }
        yield problem.arguments | {"query": query} | options[option]


@chapter.group("MASK-6", "NUM-11", each=("mask", "query_lengths", "is_causal"))
def query_that_is_none_and_attends_to_nothing(draw: Draw, source: str) -> Iterator[Yielded]:
    """A query of NaN that may attend to nothing gives 0, like any other row with no allowed key."""
    for problem in draw.in_each_dtype(_WIDE):
        query, mask = problem.query.copy(), problem.mask()
        row = 0 if source == "is_causal" else 4
        query[..., row, :] = np.nan
        mask[..., row, :] = False
        options: dict[str, dict[str, Any]] = {
            "mask": {"mask": mask},
            "query_lengths": {"query_lengths": 4},
            "is_causal": {"is_causal": True, "query_offset": -1},
        }
        yield problem.arguments | {"query": query} | options[source]


@chapter.group("NUM-12")
def nan_in_a_value(draw: Draw) -> Iterator[Yielded]:
    """NaN in one element of one value reaches one column of the rows of one head."""
    for place in _PLACES.values():
        for problem in draw.in_each_dtype(_WIDE):
            value = problem.value.copy()
            value[1, 0, place, 2] = np.nan
            yield problem.arguments | {"value": value}


@chapter.group("NUM-12")
def nan_in_a_value_of_no_weight(draw: Draw) -> Iterator[Yielded]:
    """NaN in a value reaches the output however small the weight is, even where it underflows."""
    for problem in draw.in_each_dtype(_WIDE):
        query, key, value = (array.copy() for array in problem.arguments.values())
        query[..., 0], key[..., 0], key[..., 3, 0] = 64, 0, -64  # some 2000 below the others
        value[..., 3, 1] = np.nan
        yield {"query": query, "key": key, "value": value}


@chapter.group("NUM-13", each=("plus", "minus", "both"))
def infinity_in_a_value(draw: Draw, signs: str) -> Iterator[Yielded]:
    """One infinity among the values stays infinite, and infinities of both signs give NaN."""
    for problem in draw.in_each_dtype(_WIDE, 0.125):
        value = problem.value.copy()
        value[0, 1, 2, 1] = -np.inf if signs == "minus" else np.inf
        if signs == "both":
            value[0, 1, 5, 1] = -np.inf
            value[0, 2, 0, 0] = np.inf
        yield problem.arguments | {"value": value}


@chapter.group("NUM-13", "DROP-1", each=(0.0, 0.5))
def infinity_in_a_value_that_is_kept(draw: Draw, rate: float) -> Iterator[Yielded]:
    """One infinity among the values stays infinite where dropout drops other weights of its rows."""
    for problem in draw.in_each_dtype(_WIDE, 0.125):
        value, kept = problem.value.copy(), problem.mask()
        value[0, 1, 2, 1], value[1, 0, 3, 0] = np.inf, -np.inf
        kept[0, 1, :, 2] = kept[1, 0, :, 3] = True
        yield problem.arguments | {"value": value, "dropout_mask": kept, "dropout_rate": rate}


@chapter.group("NUM-14")
def score_of_minus_infinity(draw: Draw) -> Iterator[Yielded]:
    """A key with scores of minus infinity has the weight 0, and the other keys share the rest."""
    for problem in draw.in_each_dtype(_WIDE):
        query, key = problem.query.copy(), problem.key.copy()
        query[..., 0] = np.abs(query[..., 0]) + 1
        key[..., 4, 0] = -np.inf
        yield problem.arguments | {"query": query, "key": key}


@chapter.group("NUM-14", "SOFT-5")
def scores_of_minus_infinity_beside_a_sink(draw: Draw) -> Iterator[Yielded]:
    """With every score of a row at minus infinity the sink takes all of the weight, and the output is 0."""
    for problem in draw.in_each_dtype(_WIDE):
        query, key = problem.query.copy(), problem.key.copy()
        query[..., 2, 0] = -np.inf
        key[..., 0] = np.abs(key[..., 0]) + 1
        yield problem.arguments | {"query": query, "key": key} | sinks(problem)


@chapter.group("NUM-12", "DROP-1")
def nan_in_a_value_that_is_dropped(draw: Draw) -> Iterator[Yielded]:
    """NaN in a value reaches its element in each row, where its weight is dropped too."""
    for problem in draw.in_each_dtype(_WIDE):
        value, kept = problem.value.copy(), problem.mask()
        value[1, 0, 3, 2] = np.nan
        kept[1, 0, ::2, 3] = False
        yield problem.arguments | {"value": value, "dropout_mask": kept, "dropout_rate": 0.5}


@chapter.group("NUM-11", "NUM-12")
def row_that_is_none_under_a_causal_mask(draw: Draw) -> Iterator[Yielded]:
    """NaN in the last query does not change the rows before it."""
    for problem in draw.in_each_dtype(MASKED[1]):
        query = problem.query.copy()
        query[..., -1, 0] = np.nan
        yield problem.arguments | {"query": query, "is_causal": True}


@chapter.group("NUM-11", "NUM-12", each=tuple(product(("query", "key", "bias", "value"), WIDTHS)))
def number_that_is_none_at_every_width(draw: Draw, which: tuple[str, int]) -> Iterator[Yielded]:
    """NaN and infinity with as many keys as a vector unit holds, and more."""
    name, keys = which
    numbers = (np.nan,) if name in ("bias", "value") else (np.nan, np.inf)
    for number, place in product(numbers, (2, -1)):
        for problem in draw.in_each_dtype(Shape((1, 2), 5, keys, 8, 8)):
            arguments = problem.arguments | (
                {"bias": problem.array(*problem.shape)} if name == "bias" else {}
            )
            array = arguments[name] = arguments[name].copy()
            if name == "bias":
                array[0, 1, 3, place] = number
            else:
                array[0, 1, place, 1] = number
            yield Call(arguments, ("NUM-12",) if name == "value" else ("NUM-11",))


#: The arrays that hold the queries, keys and values of a form. A scale of NaN makes NaN of codes.
STORED: Mapping[str, tuple[str, ...]] = {
    "query": ("query", "query_scales"),
    "key": ("key", "key_pages", "key_scales"),
    "value": ("value", "value_pages", "value_scales"),
    "latent": ("latent", "latent_pages", "latent_scales"),
    "key_rotary": ("key_rotary", "key_rotary_pages"),
}
_EVERY = (
    *(*FORMS, *STACKS),
    *("sharded_attention", "seeded_dropout_attention", "low_precision_attention"),
)


@chapter.group("NUM-11", "NUM-12", each=tuple(STORED)[:-2])
def number_that_is_none_in_a_form(draw: Draw, part: str) -> Iterator[Yielded]:
    """NaN in a query, a key or a value of a form reaches rows of its head and its sequence, and no other."""
    yield from _with_nan(draw, part, ("NUM-12",) if part == "value" else ("NUM-11",))


@chapter.group("NUM-11", "LATENT-1", each=("query", "latent", "key_rotary"))
def number_that_is_none_in_a_latent_form(draw: Draw, part: str) -> Iterator[Yielded]:
    """NaN in a query reaches its row, and in a key all rows of its sequence that attend to it."""
    yield from _with_nan(draw, part, ("NUM-11", "LATENT-1"))


def _with_nan(draw: Draw, part: str, rules: tuple[str, ...]) -> Iterator[Call]:
    """Put NaN into one array of a call of each form, with or without latent vectors."""
    latent = "LATENT-1" in rules
    forms = [replace(SIZES, name=name) for name in _EVERY if latent == ("latent" in name)]
    for random, dtype, sizes in (drawn for turn in (0, 1) for drawn in draw_in_turn(draw, *forms, turn=turn)):
        for _ in range(DRAWS):
            call = draw_call(random, dtype, layers_of(sizes.name), sizes)
            call = of_operation(random, sizes.name, call)
            if put_nan(random, sizes.name, call, part):
                break
        packed = ("PACK-4",) if "packed" in sizes.name and part != "query" else ()
        yield Call(call, (*rules, *packed), operation=sizes.name, outputs=("output",))


def put_nan(random: np.random.Generator, operation: str, call: dict[str, Any], part: str) -> bool:
    """Put NaN at a place of one array of a call. Return whether there is a place that fits."""
    name = next((own for own in STORED[part] if own in call and call[own].dtype.kind not in "iu"), "")
    tried: set[tuple[int, ...]] = set()
    for _ in range(_TRIALS if name else 0):
        array = call[name].copy()
        place = tuple(random.integers(array.shape))
        array[place] = np.nan
        if place[:-1] in tried:  # each feature of a key reaches the same rows
            continue
        tried.add(place[:-1])
        if _reaches_all_that_hold_it(operation, call | {name: array}, single=part == "query"):
            call[name] = array
            return True
    return False


#: Lists of most keys, and blocks of as many queries as a sequence has, so that a key reaches all of them.
SIZES = Sizes(encoding="int8", listed=16, blocks=(4, 3))
#: How often a call is drawn.
DRAWS = 20
#: How often a place is drawn. Most keys are in no list of a query, or in those of some queries only. A call
#: in which none fits stays as it is, so that each seed draws as many calls.
_TRIALS = 40


@decision
def _reaches_all_that_hold_it(name: str, call: Mapping[str, Any], *, single: bool) -> bool:
    """Whether some rows are NaN, and others not: one, or all whose keys hold the number, in whole heads.

    A row beside them that does not attend to the place may be NaN by MASK-13 or PAGE-5.
    """
    none = np.isnan(function(name)(**call)).any(axis=-1)  # (*B, Hq, L)
    if single or not none.any() or none.all():
        return bool(none.sum() == 1)
    if not np.array_equal(none, np.isnan(function(name)(**_open(name, call))).any(axis=-1)):
        return False
    starts = call.get("query_starts", np.array([0, none.shape[-1]]))
    parts = [none[..., start:end] for start, end in pairwise(starts) if end > start]
    held = (call[own] for own in ("key", "key_codes", "key_pages") if own in call)
    keys = next(held, None)  # none of latent vectors
    shared = 1 if keys is None else keys.shape[-3]
    groups = [np.split(part, shared, axis=-2) for part in parts]  # (*B, Hq / Hkv, L)
    return all((x.all(axis=(-1, -2)) == x.any(axis=(-1, -2))).all() for part in groups for x in part)


def _open(name: str, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call in which each row attends to all keys of its sequence, and to all of its pages."""
    masks, letters = OPERATIONS[name].names("masks"), bound(name, call)[0].letters
    left = {own: x for own, x in call.items() if own == "key_indices" or own not in masks}
    if "key_lengths" in left:
        left["key_lengths"] = -(-left["key_lengths"] // letters["K"]) * letters["K"]
    if "key_indices" in left:
        keys = letters["T"] * letters["K"] if "block_table" in call else letters["S"]
        left["key_indices"] = np.broadcast_to(np.arange(keys), (*left["key_indices"].shape[:-1], keys))
    return left
