"""The chapter `stacks`: decoding over long caches, and numbers, lists and codes that served models have."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from attnspec.case import Misuse
from attnspec.conformance.suite.drawn_stacks import (
    OPTIONS,
    TOGETHER,
    Arguments,
    Random,
    Sizes,
    draw_call,
    draw_finer,
    draw_together,
    options_of,
)
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.stacks import SERVED, STORED
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.dtypes import SHORT
from attnspec.operations.stacks import FORMS, STACKS

chapter = Chapter("stacks")

#: One query over a long cache and over an empty one, and a chunk over some pages.
_LONG = Sizes(queries=(1, 3, 1), keys=(150, 35, 0), heads=(4, 2), page=16, blocks=(2, 48), listed=80)
#: Rows whose queries begin far behind their first key, so that the windows of a tile begin in several tiles.
WIDE = Sizes(queries=(3, 70), keys=(70, 150), rest=(2, 3), heads=(2, 1), blocks=(32, 64), listed=80)
#: Causality and windows alone, with their rules.
_MASKS: dict[str, tuple[tuple[str, ...], Arguments]] = {
    "causality": (("MASK-3",), {"is_causal": True}),
    "window": (("MASK-8",), {"window": (20, 3)}),
    "window to the left": (("MASK-8",), {"window": (20, 0)}),
}
_BLOCKS = tuple(name for name in STACKS if {"paged", "block_sparse"} <= {*STACKS[name].layers})
_PACKED = tuple(name for name in STORED if {"packed", "paged"} & {*STORED[name].layers} == {"packed"})
#: The options of keys in pages, alone and together.
_OPTIONS = (*options_of(("paged",)), *TOGETHER)
_QUANTIZED = ("quantized_attention", "paged_quantized_attention", "packed_paged_quantized_attention")


def _long(random: Random, dtype: str, sizes: Sizes, option: str) -> Arguments:
    """Draw a call of decoding with an option, or with several, which reach past the first pages."""
    layers = STORED[sizes.name].layers
    if option in TOGETHER:
        call = draw_together(random, dtype, layers, sizes, option)
    else:
        call = draw_call(random, dtype, layers, sizes, option)
        call |= draw_finer(random, call, ("offsets", "positions", "ends")[len(option) % 3])
    keys = np.array(sizes.keys)
    if "query_offset" in call:
        call["query_offset"] = keys - random.integers(1, 40, len(keys))
    if "query_lengths" in call:
        call["query_lengths"] = np.minimum(call["query_lengths"], call["query"].shape[-2])
    if "left_padding" in call:
        call["left_padding"] = np.minimum(random.integers(0, 30, len(keys)), keys)
    if "key_positions" in call:
        call |= {"window": (2, 1)}
    if "key_indices" in call and "sinks" in call:
        call["key_indices"][..., 0, :] = -1  # the list of a query without keys
    return call


@chapter.group("STACK-2", each=_OPTIONS)
def decoding_over_a_long_cache(draw: Draw, option: str) -> Iterator[Yielded]:
    """One query attends to more keys than a kernel takes at once, with finer scales of codes."""
    place = _OPTIONS.index(option)
    own = OPTIONS[option][0] if option in OPTIONS else ("SOFT-8",)
    served = SERVED if option in TOGETHER else (SERVED[place % 4], SERVED[(place + 1) % 4])
    names = (*served, "paged_attention")
    for random, dtype, sizes in draw_in_turn(draw, *(replace(_LONG, name=name) for name in names)):
        call = _long(random, dtype, sizes, option)
        rules, more = tuple(dict.fromkeys(("STACK-2", *own))), ("max",) if "return_max" in call else ()
        yield Call(call, rules, operation=sizes.name, outputs=("output", "lse", *more))


@chapter.group("STACK-1", "SPARSE-1")
def blocks_that_are_not_pages(draw: Draw) -> Iterator[Yielded]:
    """A block of keys has three pages, and begins inside a tile of 64."""
    for random, dtype, sizes in draw_in_turn(draw, *(replace(_LONG, name=name) for name in _BLOCKS)):
        call = draw_call(random, dtype, STACKS[sizes.name].layers, sizes)
        yield Call(call, operation=sizes.name, outputs=("output", "lse"))


@chapter.group("STACK-2", "PACK-5", "MASK-8")
def offsets_and_windows_across_tiles(draw: Draw) -> Iterator[Yielded]:
    """The windows of the queries of a tile begin in several tiles of keys, as offsets are large."""
    for random, dtype, sizes in draw_in_turn(draw, *(replace(WIDE, name=name) for name in _PACKED)):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes)
        yield Call(call | far_window(sizes), operation=sizes.name, outputs=("output", "lse"))


def far_window(sizes: Sizes) -> Arguments:
    """Place the last query of a sequence at its last key, with a window that is shorter than a tile."""
    return {"query_offset": np.subtract(sizes.keys, sizes.queries), "window": (20, 3)}


@chapter.group("STACK-2", each=tuple(_MASKS))
def masks_in_forms_across_tiles(draw: Draw, mask: str) -> Iterator[Yielded]:
    """Causality or a window, without another option, ends inside the tiles of a sequence in each form."""
    rules, options = _MASKS[mask]
    names = (*FORMS, "packed_paged_attention")
    for random, dtype, sizes in draw_in_turn(
        draw, *(replace(WIDE, rest=(0, 0), name=name) for name in names)
    ):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes)
        yield Call(call | options, ("STACK-2", *rules), operation=sizes.name)


@chapter.group("STACK-2", "SCORE-3", "ERR-8")
def one_number_for_all_sequences(draw: Draw) -> Iterator[Yielded]:
    """A scale and an offset are 0, and lengths and padding are one number for all sequences."""
    for random, dtype, sizes in draw_in_turn(draw, *(Sizes(name=name) for name in (*FORMS, *SERVED))):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes)
        paged = {"left_padding": 1} if "block_table" in call else {}
        # The length is that of the shortest sequence, because the pages hold no more of it.
        call |= {"scale": 0.0, "key_lengths": min(sizes.keys), "window": (3, 0), "query_offset": 0, **paged}
        yield Call(call, operation=sizes.name)


@chapter.group("ERR-14", "STACK-2", each=("bias", "sinks"))
def option_of_another_dtype_in_forms(draw: Draw, name: str) -> Iterator[Yielded]:
    """A bias or sinks of float32 beside half precision are refused or taken at their values."""
    for index, form in enumerate(FORMS):
        random, dtype = np.random.default_rng(draw.number(index)), tuple(SHORT)[index % 2]
        sizes = Sizes(name=form)
        call = draw_call(random, dtype, STORED[form].layers, sizes, name)
        fine = np.round(random.normal(size=call[name].shape) * 1024) / 1024
        own = call | {name: (4 + fine).astype(np.float32)}
        yield Call(own, operation=form, misuse=replace(Misuse(name), allowed=True))


@chapter.group("QUANT-8", "ERR-1")
def scales_below_half_precision(draw: Draw) -> Iterator[Yielded]:
    """Scales of float32 below the normal numbers of float16 are refused or used at their values."""
    misuse = Misuse("key_scales", ("value_scales",), allowed=True)
    for index, name in enumerate(_QUANTIZED):
        random = np.random.default_rng(draw.number(index))
        call: dict[str, Any] = draw_call(random, "float16", STORED[name].layers, Sizes(name=name))
        call |= {own: x.astype(np.float32) for own, x in call.items() if own.endswith("_scales")}
        call |= {"key_scales": call["key_scales"] / 2**16, "scale": 2.0**15}
        yield Call(call, operation=name, misuse=misuse)


@chapter.group("QUANT-8", "QUANT-5")
def scales_of_zero(draw: Draw) -> Iterator[Yielded]:
    """The scales of some places are 0, as those of rows of zeros, also beside zero points."""
    names = (*_QUANTIZED, "packed_paged_quantized_listed_latent_attention")
    sizes = [Sizes(name=name, encoding=code) for code in ("int8", "e4m3fn") for name in names]
    for random, dtype, own in draw_in_turn(draw, *sizes):
        call = draw_call(random, dtype, STORED[own.name].layers, own)
        call |= draw_finer(random, call, "ends")
        for name in [name for name in call if name.endswith("_scales")]:
            call[name][random.random(call[name].shape) < 0.4] = 0
        yield Call(call, operation=own.name)


@chapter.group("QUANT-8", "QUANT-2")
def codes_near_their_zero_points(draw: Draw) -> Iterator[Yielded]:
    """Codes are near large zero points, so that products with each of them lose what is left."""
    sizes = [Sizes(name=name, encoding="int8") for name in _QUANTIZED]
    for turn in (0, 1):
        for random, dtype, own in draw_in_turn(draw, *sizes, turn=turn):
            call = draw_call(random, dtype, STORED[own.name].layers, own)
            for name in [name for name in call if name.endswith(("_codes", "_pages"))]:
                codes = call[name]
                origin = name.rsplit("_", 1)[0]
                shape = (*codes.shape[:-2], 1, 1)
                points = random.integers(200, 250, shape)
                call[name] = np.clip(points + random.integers(-2, 3, codes.shape), 0, 255).astype(np.uint8)
                call[f"{origin}_zero_points"] = points
            yield Call(call, operation=own.name)


@chapter.group("NUM-5", "STACK-2")
def long_sums_in_half_precision_in_forms(draw: Draw) -> Iterator[Yielded]:
    """Many keys have the same weight and value, whose sums lose the same part in half precision each time."""
    names = ("packed_attention", "paged_attention", "listed_attention", "latent_attention", *SERVED[::2])
    for index, name in enumerate(names):
        yield _equal_terms(np.random.default_rng(draw.number(index)), name, tuple(SHORT)[index % 2], 4096)


@chapter.group("NUM-5", "STACK-2", each=tuple(product((*FORMS, *SERVED, "paged_quantized_attention"), SHORT)))
def equal_terms_in_half_precision_in_forms(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """Some hundred keys have the same weight and value: few enough for the smallest calls."""
    yield _equal_terms(np.random.default_rng(draw.number()), *which, count=317)


def _equal_terms(random: Random, name: str, dtype: str, count: int) -> Call:
    """Make a call of one query, whose output is the value that all keys have."""
    sizes = Sizes(name=name, queries=(1,), keys=(count,), heads=(1, 1), depths=(4, 2), latent=(4, 2))
    sizes = replace(sizes, page=64, spare=0, listed=count, encoding="int8")
    call = draw_call(random, dtype, STORED[name].layers, sizes)
    call |= {own: 0 * call[own] for own in ("query", "query_rotary") if own in call}
    term = 1 + (1 / 128 if dtype == "float16" else 1 / 16)
    for own in {*call} & {"value", "value_pages", "value_codes", "latent", "latent_pages", "latent_codes"}:
        coded = call[own].dtype == np.int8
        call[own] = np.full_like(call[own], 1 if coded else term)
        if coded:
            stored = own.partition("_")[0]
            call[f"{stored}_scales"] = np.full_like(call[f"{stored}_scales"], term)
            call.pop(f"{stored}_zero_points")
    if "key_indices" in call:
        call["key_indices"] = np.arange(count).reshape((1,) * (call["key_indices"].ndim - 1) + (-1,))
    if "block_sparse" in STORED[name].layers:
        blocks = -(-count // call["key_block"])
        call = {own: x for own, x in call.items() if own not in ("block_counts", "block_indices")}
        call["block_mask"] = np.ones((1, 1, 1, blocks), bool)
    return Call(call, operation=name, outputs=("output", "lse"))
