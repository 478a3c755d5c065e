"""The chapter `stacks`: operations that combine several forms, and every option in each form."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np

from attnspec.case import Misuse
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.suite.alone import ALONE, draw_alone, optional_of
from attnspec.conformance.suite.drawn_stacks import (
    ENCODINGS,
    OPTIONS,
    TOGETHER,
    UNREAD,
    Arguments,
    Random,
    Sizes,
    draw_call,
    draw_finer,
    draw_together,
    of_width,
    options_of,
    with_batch_axes,
)
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.malformed import every
from attnspec.conformance.suite.malformed_call import Malformed
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.stacks import FORMS, STACKS

chapter = Chapter("stacks")

#: Every operation that has a form, or several.
STORED = {**FORMS, **STACKS}
#: The stacks of served models, which meet every option.
SERVED = (
    "packed_paged_attention",
    "packed_paged_quantized_attention",
    "packed_paged_latent_attention",
    "packed_paged_quantized_listed_latent_attention",
)
#: How many of the other stacks meet each option, and how many calls each of them refuses.
_OTHERS, _REFUSED = 6, 3
_REST = Sizes(rest=(2, 3))
#: A batch of decoding, of chunks of a prompt and of sequences without keys or without queries.
_MIXED = Sizes(queries=(1, 4, 0, 1, 2), keys=(9, 4, 3, 0, 7), heads=(4, 1), page=4)
#: One sequence has no queries, one has no keys, and one has more queries than keys.
UNEVEN = Sizes(queries=(4, 0, 2, 3, 2), keys=(9, 6, 0, 2, 7), rest=(2, 3), page=3, spare=0, listed=16)
#: As many sequences as two batch axes of two have.
FOUR = Sizes(queries=(3, 1, 4, 2), keys=(5, 7, 2, 6))
#: One query of each sequence, over few keys and over more than a tile of 16 or of 64 holds.
_DECODED = (
    Sizes(queries=(1, 1, 1), keys=(7, 4, 9)),
    Sizes(queries=(1, 1), keys=(17, 5)),
    Sizes(queries=(1,), keys=(65,), heads=(2, 1), page=16),
)
_UNPACKED = tuple(name for name in STORED if "packed" not in STORED[name].layers)
_FROM_CODES = (
    "paged_quantized_attention",
    "paged_quantized_latent_attention",
    "packed_paged_quantized_attention",
)
#: One query of each sequence over pages of codes, for kernels that take no zero points.
_OF_CODES: Mapping[str, Sizes] = {
    "one page": Sizes(queries=(1, 1), keys=(3, 2)),
    "full pages": Sizes(queries=(1, 1), keys=(8, 4), page=4),
    "equal heads": Sizes(queries=(1, 1, 1), keys=(7, 4, 9), heads=(2, 2)),
    "one key head": Sizes(queries=(1, 1, 1), keys=(7, 4, 9), heads=(4, 1)),
    "many keys": Sizes(queries=(1, 1), keys=(65, 17), heads=(2, 1), page=16),
}
#: The options of kernels that decode. The quick part has most of those with a scale and lengths alone.
_OF_DECODING: tuple[tuple[str, ...], ...] = (
    (),
    ("scale",),
    ("window",),
    ("scale", "key lengths"),
    ("key lengths",),
    ("sinks",),
)
#: Options of most kernels, which each form meets one by one and in pairs.
_COMMON = ("causality", "window", "sinks", "softcap", "scale", "key lengths", "bias")
_PAIRS = (*combinations(_COMMON, 1), *combinations(_COMMON, 2))
#: The sizes of calls whose sequences begin and end at tiles.
TILES: Mapping[str, Sizes] = {
    "16": Sizes(
        queries=(17, 15, 16), keys=(33, 17, 48), page=16, blocks=(16, 16), heads=(2, 1), depths=(8, 8)
    ),
    "64": Sizes(
        queries=(65, 3),
        keys=(65, 129),
        page=64,
        blocks=(32, 64),
        heads=(2, 1),
        depths=(8, 8),
        latent=(8, 2),  # as deep as the queries
    ),
}


def _turn(name: str, option: int) -> bool:
    """Whether an operation meets an option. Each option meets some of those that are not served."""
    return name in STACKS and (tuple(STACKS).index(name) + option) % (len(STACKS) // _OTHERS) == 0


def _case(random: Random, dtype: str, sizes: Sizes, option: str = "nothing") -> Call:
    """Draw a case of an operation."""
    sizes_of_tiles = replace(sizes, name="") in TILES.values()
    rules = OPTIONS[option][0]
    rules = rules if rules == ("STACK-1",) else tuple(dict.fromkeys(("STACK-2", *rules)))
    call = draw_call(random, dtype, STORED[sizes.name].layers, sizes, option)
    # The weights of tiles are ten times as large as all else, and few functions return them.
    outputs = ("output", "lse") if sizes_of_tiles else ()
    return Call(call, rules, operation=sizes.name, outputs=outputs)


@chapter.group("STACK-1")
def several_forms(draw: Draw) -> Iterator[Yielded]:
    """Several forms store one call, with and without rows and places that nothing reads."""
    calls = [replace(sizes, name=name) for sizes in (Sizes(), _REST) for name in STACKS]
    for turn in (0, 1):
        for random, dtype, sizes in draw_in_turn(draw, *calls, turn=turn):
            case = _case(random, dtype, sizes)
            own = {**case.arguments, "return_max": True}
            yield replace(case, arguments=own, rules=("STACK-1", "SOFT-8")) if any(sizes.rest) else case


@chapter.group("STACK-2", each=tuple(OPTIONS)[1:])
def forms_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option of attention acts in a form or a stack as it does without forms."""
    calls = [replace(_REST if len(name) % 2 else Sizes(), name=name) for name in _chosen(option)]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        yield _case(random, dtype, sizes, option)


def _chosen(option: str) -> list[str]:
    """Name the forms, the stacks of served models and a part of the others, if they have an option."""
    place = tuple(OPTIONS).index(option)
    names = [name for name in STORED if option in options_of(STORED[name].layers)]
    return [name for name in names if name in (*FORMS, *SERVED) or _turn(name, place)]


@chapter.group("STACK-2", each=tuple(ALONE))
def alone(draw: Draw, name: str) -> Iterator[Yielded]:
    """One argument acts in each form and stack, beside what it needs and nothing else."""
    option = ALONE[name]
    # Other groups have such calls in float32 of every second operation, and of every form.
    met = {own for own in _chosen(option)[::2] if "quantized" not in STORED[own].layers}
    met |= {*FORMS} if option in _COMMON and option != "bias" else set()
    met = set() if name in ("left_padding", "query_positions", "key_positions") else met
    yield from draw_alone(draw, name, [own for own in STORED if own not in met and name in optional_of(own)])


@chapter.group("SOFT-5", "STACK-2")
def sinks_of_minus_infinity(draw: Draw) -> Iterator[Yielded]:
    """A sink of minus infinity is no sink, beside others that are finite."""
    for random, dtype, sizes in draw_in_turn(draw, *(Sizes(name=name) for name in (*FORMS, *SERVED))):
        case = _case(random, dtype, sizes, "sinks")
        sinks = np.where([True, False] * 2, case.arguments["sinks"], -np.inf).astype(dtype)
        yield replace(case, arguments={**case.arguments, "sinks": sinks}, rules=("SOFT-5", "STACK-2"))


@chapter.group("STACK-2", each=_PAIRS, step=1)
def two_options(draw: Draw, pair: tuple[str, ...]) -> Iterator[Yielded]:
    """One or two options act in a form or a stack, for kernels that have few of them and one encoding."""
    names = [name for name in (*FORMS, SERVED[1]) if {*pair} <= {*options_of(STORED[name].layers)}]
    calls = [replace(_REST, name=name, encoding="int8") for name in names]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        call = draw_call(random, dtype, STORED[sizes.name].layers, sizes, *pair)
        call = {name: x for name, x in call.items() if not name.endswith("_zero_points")}
        yield Call(call, ("STACK-2",), operation=sizes.name)


@chapter.group("STACK-2", each=tuple(name for name in _UNPACKED if name not in FORMS))
@chapter.group("STACK-2", each=tuple(name for name in _UNPACKED if name in FORMS), step=1)
def a_step_of_decoding(draw: Draw, name: str) -> Iterator[Yielded]:
    """Each sequence has one query, for kernels that have no more, in int8 with and without zero points."""
    layers, one = STORED[name].layers, name in FORMS
    options = [own for own in _OF_DECODING if {*own} <= {*options_of(layers)}][: None if one else 2]
    pairs = list(product(_DECODED[: None if one else 2], options))
    calls = [replace(sizes, name=name, encoding="int8") for sizes, _ in pairs]
    for turn in (0, 1) if one else (0,):
        for (size, own), drawn in zip(pairs, draw_in_turn(draw, *calls, turn=turn), strict=True):
            random, dtype, sizes = drawn
            call = draw_call(random, dtype, layers, sizes, *own)
            left_out = "_zero_points" if size is _DECODED[turn] else "nothing"
            call = {argument: x for argument, x in call.items() if not argument.endswith(left_out)}
            yield Call(call, ("STACK-2", *(OPTIONS[option][0][0] for option in own)), operation=name)


@chapter.group("STACK-1", "STACK-2", each=tuple(product(_OF_CODES, ("no scale", "a scale"))))
def decoding_from_codes(draw: Draw, kind: tuple[str, str]) -> Iterator[Yielded]:
    """A step of decoding from codes of int8 without zero points, with and without a scale."""
    own = ("scale",) if kind[1] == "a scale" else ()
    for turn in (0, 1):
        calls = [replace(_OF_CODES[kind[0]], name=name, encoding="int8") for name in _FROM_CODES]
        for random, dtype, sizes in draw_in_turn(draw, *calls, turn=turn):
            call = draw_call(random, dtype, STORED[sizes.name].layers, sizes, *own)
            call = {name: x for name, x in call.items() if not name.endswith("_zero_points")}
            yield Call(call, ("STACK-2",), operation=sizes.name)


@chapter.group("STACK-2", each=tuple(TOGETHER))
def options_together(draw: Draw, together: str) -> Iterator[Yielded]:
    """Many options act at once in every form and stack, in float32 and in another dtype."""
    place = tuple(TOGETHER).index(together)
    for turn in (0, 1):
        codes = [ENCODINGS[(place + index) % len(ENCODINGS)] for index in range(len(STORED))]
        codes = codes if place % 2 else ["int8"] * len(STORED)
        calls = [replace(UNEVEN, name=name, encoding=code) for name, code in zip(STORED, codes, strict=True)]
        for random, dtype, sizes in draw_in_turn(draw, *calls, turn=turn):
            layers = STORED[sizes.name].layers
            call = of_width(draw_together(random, dtype, layers, sizes, together), place)
            if together == "ends" and "block_table" in call:
                call["block_table"] = np.maximum(call["block_table"], 0)
            yield Call(call, ("STACK-2", "SOFT-8"), operation=sizes.name)


@chapter.group("STACK-1", each=tuple(TOGETHER)[:3])
def finer_codes(draw: Draw, together: str) -> Iterator[Yielded]:
    """Scales and zero points belong to blocks, channels or places, and codes are integers of either sign."""
    quantized = [name for name in STACKS if "quantized" in STACKS[name].layers]
    own = {"offsets": "e4m3fnuz", "positions": "e5m2fnuz", "positions alone": "e2m1fn"}[together]
    for turn, code in ((0, "int8"), (1, "int8"), (0, own), (1, own)):
        calls = [replace(UNEVEN, name=name, encoding=code) for name in quantized]
        for random, dtype, sizes in draw_in_turn(draw, *calls, turn=turn):
            call = draw_call(random, dtype, STACKS[sizes.name].layers, sizes)
            yield Call(call | draw_finer(random, call, together), operation=sizes.name)


@chapter.group("STACK-2", "SHAPE-1", each=(0, 2))
def batch_axes(draw: Draw, count: int) -> Iterator[Yielded]:
    """A call of a form has no batch axis, or two."""
    names = [name for name in STORED if "packed" not in STORED[name].layers]
    for random, dtype, sizes in draw_in_turn(draw, *(replace(FOUR, name=name) for name in names)):
        case = _case(random, dtype, sizes, "offsets")
        yield replace(case, arguments=with_batch_axes(sizes.name, case.arguments, count))


@chapter.group("STACK-1", step=1)
def batch_of_decoding_and_prefill(draw: Draw) -> Iterator[Yielded]:
    """Sequences with one query, with a chunk of a prompt, without queries and without keys are in one row."""
    calls = [replace(_MIXED, name=name) for name in (*SERVED, SERVED[0]) * 2]
    for index, (random, dtype, sizes) in enumerate(draw_in_turn(draw, *calls)):
        option = "all together" if index <= len(SERVED) else "causality"
        case = _case(random, dtype, sizes, option)
        yield replace(case, rules=("STACK-1", "PACK-2", "PAGE-7", *OPTIONS[option][0]))


@chapter.group("STACK-2", each=tuple(name for name in OPTIONS if name not in ("nothing", "key lengths")))
def mixed_batch_with(draw: Draw, option: str) -> Iterator[Yielded]:
    """Each option acts on a batch of decoding and of chunks, at small sizes and at those of tiles."""
    place = tuple(OPTIONS).index(option)
    forms = [name for name in FORMS if option in options_of(FORMS[name].layers)]
    names = [name for name in SERVED if option in options_of(STACKS[name].layers)]
    calls = [replace(_MIXED, name=name) for name in names]
    # Every second call is in float32, so that each size of tiles is.
    calls += [replace(TILES[size], name=names[0]) for size in ("16", "64", "64", "16")]
    calls += [replace(TILES["16"], name=name) for name in forms]
    calls.append(replace(TILES["64"], name=forms[(place + 1) % len(forms)]))
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        yield _case(random, dtype, sizes, option)


@chapter.group("PACK-3")
def rows_past_the_last_sequence(draw: Draw) -> Iterator[Yielded]:
    """The row of packed queries is longer than its sequences, with sinks."""
    calls = [replace(_REST, name=name) for name in (*SERVED, "packed_quantized_attention")]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        yield replace(_case(random, dtype, sizes, "sinks"), rules=("PACK-3", "SOFT-5"))


@chapter.group("STACK-1", each=tuple(TILES))
def forms_across_tiles(draw: Draw, size: str) -> Iterator[Yielded]:
    """Sequences begin and end inside tiles, at their edges and one after them."""
    others = (name for name in STACKS if name not in SERVED and _turn(name, int(size)))
    names = [*SERVED, *others, *FORMS]
    for random, dtype, sizes in draw_in_turn(draw, *(replace(TILES[size], name=name) for name in names)):
        case = _case(random, dtype, sizes, "all together")
        yield replace(case, rules=("STACK-1", *case.rules))


@chapter.group("STACK-1")
def every_stack_across_tiles(draw: Draw) -> Iterator[Yielded]:
    """Sequences of the stacks that are not served begin and end inside tiles, in both dtypes."""
    calls = [replace(TILES["16"], name=name) for name in STACKS if name not in SERVED]
    for turn, option in enumerate(("nothing", "causality")):
        for random, dtype, sizes in draw_in_turn(draw, *calls, turn=turn):
            yield _case(random, dtype, sizes, option)


@chapter.group("STACK-1", "ERR-1", each=("int32", "uint8"))
def integers_of_other_dtypes(draw: Draw, width: str) -> Iterator[Yielded]:
    """Tables, lengths and boundaries have other dtypes of integers."""
    for random, dtype, sizes in draw_in_turn(draw, *(Sizes(name=name) for name in SERVED)):
        case = _case(random, dtype, sizes)
        names = ("block_table", "key_lengths", "query_starts")
        arguments = dict(case.arguments)
        arguments["block_table"] = np.maximum(arguments["block_table"], 0)
        yield replace(case, arguments=arguments | {own: arguments[own].astype(width) for own in names})


@chapter.group("STACK-3")
def used_lengths(draw: Draw) -> Iterator[Yielded]:
    """Sequences of a row use fewer queries and keys than they have rows."""
    calls = [replace(_REST, name=name) for name in STORED if name.startswith("packed")]
    for random, dtype, sizes in draw_in_turn(draw, *calls):
        case = _case(random, dtype, sizes, "sinks")
        lengths: Arguments = {"query_lengths": random.integers(0, 4, len(_REST.queries))}
        if "key_starts" in case.arguments:
            lengths["key_lengths"] = random.integers(0, 5, len(_REST.keys))
        yield replace(case, arguments={**case.arguments, **lengths}, rules=("STACK-3", "SOFT-5"))


@chapter.group("STACK-4")
def not_a_number_in_unread_places(draw: Draw) -> Iterator[Yielded]:
    """NaN and infinity stand in rows of no sequence, and in unread places of pages and their scales."""
    calls = [replace(_REST, name=name) for name in STACKS if {"packed", "paged"} & {*STACKS[name].layers}]
    for turn in (0, 1):
        for random, dtype, sizes in draw_in_turn(draw, *calls, turn=turn):
            case = _case(random, dtype, sizes)
            yield replace(case, arguments=poison_unread(random, sizes, case.arguments), rules=("STACK-4",))


def poison_unread(random: Random, sizes: Sizes, arguments: Mapping[str, Any]) -> Arguments:
    """Put NaN or infinity where no query reads."""
    call = {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in arguments.items()}
    poison = (np.nan, np.inf)[int(random.integers(2))]
    for name, array in call.items():
        if name.endswith("_pages") and array.dtype.kind == "f":
            array[array == UNREAD] = poison
        if name in ("query", "query_rotary") and "query_starts" in call:
            array[:, call["query_starts"][-1] :] = poison
        if name in ("key", "value", "latent", "key_rotary") and "key_starts" in call:
            array[..., call["key_starts"][-1] :, :] = poison
    return call | _poisoned_scales(call, poison, sizes)


def _poisoned_scales(call: Arguments, poison: float, sizes: Sizes) -> Arguments:
    """Give each place of the pages a scale of its own, which is a number where the place is read."""
    scales: Arguments = {}
    if "block_table" not in call:
        for name in [name for name in call if name.endswith("_scales")]:
            codes = call[name.replace("_scales", "_codes")]
            row = np.arange(codes.shape[-2])[:, None] < call["key_starts"][-1]
            shape = (*codes.shape[:-1], 1)
            scales[name] = np.broadcast_to(np.where(row, 0.25, poison), shape).astype(call[name].dtype)
        return scales
    for name in [name for name in call if name.endswith("_scales")]:
        pages = call[name.replace("_scales", "_pages")]
        read = np.zeros((len(pages), sizes.page), bool)
        for entry, length in enumerate(sizes.keys):
            for j in range(length):
                read[call["block_table"][entry, j // sizes.page], j % sizes.page] = True
        shape = (len(pages), *(1,) * (pages.ndim - 3), sizes.page, 1)
        scales[name] = np.where(read.reshape(shape), 0.25, poison).astype(call[name].dtype)
    return scales


@chapter.group("SOFT-8")
def maxima_in_forms(draw: Draw) -> Iterator[Yielded]:
    """The maximum of a row is that of its sequence, of its blocks or of its lists."""
    for random, dtype, sizes in draw_in_turn(draw, *(replace(_REST, name=name) for name in FORMS)):
        case = _case(random, dtype, sizes)
        yield replace(case, arguments={**case.arguments, "return_max": True}, rules=("STACK-2", "SOFT-8"))


@chapter.group("STACK-1", each=tuple(STACKS), step=5)
def refused_in_a_stack(_draw: Draw, operation: str) -> Iterator[Yielded]:
    """A call that a form of a stack refuses, or attention, raises an error."""
    for call in refusals()[operation]:
        misuse = Misuse(call.argument, call.names)
        yield Call(in_dtype(call.arguments, "float32"), (call.rule, "STACK-1"), operation, misuse=misuse)


@cache
def refusals() -> Mapping[str, tuple[Malformed, ...]]:
    """Choose calls to refuse: one for each argument and rule of a served stack, and rare ones of others."""
    chosen: dict[str, tuple[Malformed, ...]] = {}
    met = Counter[Any]()
    for name in sorted(STACKS, key=lambda name: name not in SERVED):
        calls = [call for call in every() if call.operation == name and call.asked]
        first: dict[Any, Malformed] = {}
        if name not in SERVED:
            calls.sort(key=lambda call: (met[call.argument, call.rule], met[_fault(call)]))
        for call in calls:
            first.setdefault((call.argument, call.rule) if name in SERVED else call.rule, call)
        chosen[name] = tuple(first.values())[: len(first) if name in SERVED else _REFUSED]
        for call in chosen[name]:
            met.update([(call.argument, call.rule), _fault(call)])
    return chosen


def _fault(call: Malformed) -> str:
    """Return the name of a call without its operation."""
    return call.name.removesuffix(f" in {call.operation}")
