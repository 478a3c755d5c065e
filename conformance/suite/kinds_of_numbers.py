"""The chapter `errors`: dtypes and values of arrays in every operation, calls without heads, and kinds."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.case import Misuse
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.suite.alone import acts, each_acts, results
from attnspec.conformance.suite.decisions import decision
from attnspec.conformance.suite.drawn_stacks import Arguments
from attnspec.conformance.suite.faults import SIZES, fitting, with_needs
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.stacks import SERVED, STORED
from attnspec.conformance.suite.whole_calls import ATTENDING, OTHERS, draw_with, whole_calls
from attnspec.operations.operation import primal
from attnspec.operations.stacks import STACKS
from attnspec.sizes import bound, is_array, shape_of

chapter = Chapter("errors")

#: As many numbers of problems as the calls of one operation have.
_TURNS = 8
#: How often a call is drawn at most.
_MOST_DRAWS = 200
#: The quick part has one in so many cases, as each is of another operation.
_STEP = 6
#: The operations whose lists of blocks have 64 bits in the other groups.
_OF_WIDE_LISTS = ("packed_block_sparse_attention", "quantized_block_sparse_latent_attention")
#: The integer dtypes beside int32, int64, and those of one byte or two.
_DTYPES = ("uint64", "uint32", "uint16", "int16", "int8")
#: The arguments in which -1 stands for nothing. No unsigned dtype has it.
_OF_NONE = ("block_table", "key_indices", "key_positions")
#: Ids that are alike as booleans, as bytes, and, two of them, in 32 bits.
_IDS = (-256, 0, 2**33)
#: Ids that are alike in int64, or as floats.
_UNSIGNED: Mapping[str, Mapping[str, Any]] = {
    "signed": {"query": np.array([-1, 0]), "key": np.array([2**64 - 1, 0], np.uint64)},
    "unsigned": dict.fromkeys(("query", "key"), np.array([2**63, 2**63 + 1], np.uint64)),
}
#: The arguments that are places.
_PLACES = {
    "offsets": ("query_offset", "offset"),
    "positions": ("query_positions", "key_positions", "positions", "axis_positions"),
}
#: The operations that show what others, which combine their forms, have too.
_SHOWN = tuple(name for name in OPERATIONS if primal(name) not in STACKS or name in SERVED)
#: The bytes of a narrow integer.
_BYTE = 255
#: A common part of a bias, beside which half precision has steps of a half.
_LARGE = 1000
#: What is no number of the host language, and no boolean of it.
_OF_NO_KIND = {"number": ("1", np.ones(2)), "flag": ("yes", np.array([True, False]))}


@chapter.group("ERR-1", each=("int32", "a byte or two", *_DTYPES), step=_STEP)
def integers_of_every_operation(draw: Draw, width: str) -> Iterator[Yielded]:
    """The arrays of integers of a call have 32 bits, or fewer, or a dtype that few calls have."""
    for place, operation in enumerate(OPERATIONS):
        shown = STACKS if width in _DTYPES else STORED.keys() - {*_OF_WIDE_LISTS}
        if width != "int32" and operation in shown:
            continue  # others show it
        met: set[str] = set()
        calls = whole_calls(draw, operation, "float32", _TURNS * place)
        for call in (*calls, *_with_arrays(operation, calls)):
            integers = (name for name, x in call.items() if _is_of_integers(name, x, codes=width in _DTYPES))
            narrow = {name: _narrow(name, call[name], width) for name in integers}
            if not {*narrow} <= met:
                met |= {*narrow}
                yield Call({**call, **narrow}, operation=operation)


def _with_arrays(operation: str, calls: tuple[Arguments, ...]) -> Iterator[Arguments]:
    """Give a call an integer for each batch entry where no call has such an array."""
    known, call = OPERATIONS[operation].arguments, calls[0]
    for name, argument in known.items():
        if argument.kind == "integers" and not any(is_array(own.get(name)) for own in calls):
            ones = np.ones(shape_of(argument.shape, bound(operation, call)[0]), np.int64)
            apart = {own for own in known if own in argument.excludes or name in known[own].excludes}
            yield {own: x for own, x in call.items() if own not in apart} | {name: ones}


def _is_of_integers(name: str, x: Any, *, codes: bool) -> bool:
    """Whether an argument is an array of integers, and of no codes unless these count."""
    return is_array(x) and x.dtype.kind in "iu" and (codes or not name.endswith(("codes", "pages", "packed")))


def _narrow(name: str, x: Any, width: str) -> Any:
    if width in _DTYPES:  # or a signed one that holds the integers
        x = _without_none(name, x) if name in _OF_NONE and width.startswith("u") else x
        ends = x.min(initial=0), x.max(initial=0)
        limits = ((dtype, np.iinfo(dtype)) for dtype in (width, width.strip("u"), "int16", "int32", "int64"))
        return x.astype(next(dtype for dtype, own in limits if own.min <= ends[0] and ends[1] <= own.max))
    if width == "int32":
        return x.astype(np.int32)
    if x.max(initial=0) > _BYTE:
        return x.astype(np.int16)
    return x.astype(np.int16 if x.min(initial=0) < 0 else np.uint8)


def _without_none(name: str, x: Any) -> Any:
    """Write 0 for -1, but the first keys for a list with -1, which then has no key twice."""
    if name != "key_indices":
        return np.maximum(x, 0)
    return np.where((x < 0).any(axis=-1, keepdims=True), np.arange(x.shape[-1]), x)


@chapter.group("MASK-11", "STACK-2", step=_STEP)
def segment_ids_of_any_number(draw: Draw) -> Iterator[Yielded]:
    """Ids of segments are negative, 0 and past 32 bits, and are compared with all their digits."""
    names = ("query_segment_ids", "key_segment_ids")
    operations = [
        name for name in ATTENDING if names[0] in OPERATIONS[name].arguments and primal(name) != "attention"
    ]
    for place, operation in enumerate(operations):
        call = _with_ids(draw, operation, place, {name: np.array(_IDS) for name in names}, ("bool", "int32"))
        yield Call(call, ("MASK-11", *(("STACK-2",) if operation in STORED else ())), operation=operation)


@chapter.group("MASK-11", "ERR-1", each=("signed", "unsigned"), step=_STEP)
def segment_ids_of_unsigned_integers(draw: Draw, kind: str) -> Iterator[Yielded]:
    """Ids of keys are past every signed integer, and no id of another query, whose dtype may be signed."""
    for place, operation in enumerate(_SHOWN):
        if "query_segment_ids" in OPERATIONS[operation].arguments:
            ids = {f"{side}_segment_ids": x for side, x in _UNSIGNED[kind].items()}
            fold = "int64" if kind == "signed" else "float64"
            yield Call(_with_ids(draw, operation, place, ids, (fold,)), operation=operation)


def _with_ids(
    draw: Draw, operation: str, place: int, ids: Mapping[str, Any], folds: tuple[str, ...]
) -> Arguments:
    """Draw a call with some segment ids, which has other results if the ids are folded into another dtype."""
    for turn in range(_MOST_DRAWS):
        call = draw_with(draw, operation, "float32", "segments", index=_TURNS * place + turn)
        random = np.random.default_rng(draw.number(_TURNS * place + turn))
        call |= {name: random.choice(x, call[name].shape) for name, x in ids.items()}
        folded = ({name: call[name].astype(fold).astype(np.int64) for name in ids} for fold in folds)
        with np.errstate(invalid="ignore"):
            if all(_differ(operation, call, {**call, **own}) for own in folded):
                break
    return call


@decision
def _differ(operation: str, call: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    pairs = zip(results(operation, call), results(operation, other), strict=True)
    return any(bool((np.abs(a - b) > 1 / 16).any()) for a, b in pairs)


@chapter.group("ERR-1", each=tuple(_PLACES), step=_STEP)
def places_apart_by_32_bits(draw: Draw, option: str) -> Iterator[Yielded]:
    """An offset, or the positions of queries and of every second key, are 2^32 further than others."""
    for place, operation in enumerate(_SHOWN):
        if {*_PLACES[option]} & {*OPERATIONS[operation].arguments}:
            wraps = partial(_wraps, operation, option)
            if operation in ATTENDING:
                call = draw_with(draw, operation, "float32", option, index=_TURNS * place, suits=wraps)
            else:
                call = next(
                    filter(wraps, whole_calls(draw, operation, "float64"))
                )  # which tells angles apart
            far = _move_far(call, option)
            rules = (OPERATIONS[operation].arguments[name].rule for name in far)
            yield Call(call | far, ("ERR-1", *rules), operation=operation)


def _move_far(call: Arguments, option: str) -> Arguments:
    given = {name: call[name] for name in _PLACES[option] if name in call}
    far = {name: x.astype(np.int64) + 2**32 if is_array(x) else x + 2**32 for name, x in given.items()}
    if (keys := given.get("key_positions")) is not None:
        near = (keys < 0) | (np.arange(keys.shape[-1]) % 2 == 0)
        far["key_positions"] = np.where(near, keys, far["key_positions"])
    return far


def _wraps(operation: str, option: str, call: Arguments) -> bool:
    """Whether each place of a call that is taken modulo 2^32 changes a result."""
    far = _move_far(call, option)
    near = {name: call[name] for name in far}
    return bool(far) and "cosines" not in call and each_acts(operation, call | far, near)


@chapter.group("ERR-1", step=_STEP)
def biases_and_scales_of_two_dtypes(draw: Draw) -> Iterator[Yielded]:
    """A bias, sinks or scales of float32 beside half precision, or of half beside it, keep their values."""
    dtypes = ("float16", "float32")
    operations = (
        x for x in OPERATIONS if x in OTHERS or x.endswith("_vjp") or x == "low_precision_attention"
    )
    for place, operation in enumerate(operations):
        first, *others = OPERATIONS[operation].arguments.values()
        names = [
            x.name
            for x in others
            if x.kind == "array" and x.numbers == "floating" and "mixed" not in x.refusals
        ]
        both = {dtype: whole_calls(draw, operation, dtype, _TURNS * place) for dtype in dtypes if names}
        for turn, name in enumerate(names, start=place):
            own, other = dtypes[turn % 2], dtypes[(turn + 1) % 2]
            call = next(call for call in both[own] if name in call)
            scores = name == "bias" and "query" in first.name
            x = call[name] + _LARGE if scores and own == "float16" else call[name]
            rule = "ERR-14" if scores or name == "sinks" else "ERR-1"
            misuse = Misuse(name, (first.name,), allowed=True)
            yield Call({**call, name: x.astype(other)}, (rule,), operation, misuse=misuse)


@chapter.group("ERR-17", step=_STEP)
def no_heads_in_any_form(_draw: Draw) -> Iterator[Yielded]:
    """A call of a form without query heads is refused or gives empty results."""
    forms = [name for name in ATTENDING if primal(name) != "attention" and name not in STACKS]
    for place, operation in enumerate((*forms, "scores", "alibi_bias", "alibi_bias_vjp")):
        form = OPERATIONS[operation]
        call = fitting(operation, {**SIZES, "Hq": 0, "Hkv": place % 2 * 2})
        call |= {"dropout_p": 0.0} if "dropout_p" in call else {}  # without chance
        misuse = Misuse(form.arrays[0], tuple(form.arguments)[1:], allowed=True)
        yield Call(in_dtype(call, "float32"), operation=operation, misuse=misuse)


@chapter.group("SPARSE-3", "SPARSE-1", step=_STEP)
def blocks_in_a_mask_and_in_lists(draw: Draw) -> Iterator[Yielded]:
    """A mask of blocks and lists of them both take keys away in the backward pass and in a stack."""
    operations = [name for name in OPERATIONS if "block_counts" in OPERATIONS[name].arguments]
    for place, operation in enumerate(name for name in operations if name != "block_sparse_attention"):
        for turn in range(_MOST_DRAWS):
            call = draw_with(draw, operation, "float32", index=_TURNS * place + turn)
            random = np.random.default_rng(draw.number(_TURNS * place + turn))
            call |= {"block_mask": random.random(call["block_indices"].shape) < 0.6}
            if all(acts(operation, call, name) for name in ("block_mask", "block_counts")):
                break
        yield Call(call, operation=operation)


@chapter.group("ERR-16", step=_STEP)
def words_and_arrays_for_numbers_and_flags(_draw: Draw) -> Iterator[Yielded]:
    """A number or a flag of a companion that is a word or several numbers raises an error."""
    turn = count()
    companions = [name for name in OPERATIONS if primal(name) != "attention" and name not in STACKS]
    for place, operation in enumerate(companions):
        form, asks = OPERATIONS[operation], OPERATIONS[operation].names("asks")
        for argument in form.arguments.values():
            asked = argument.name not in asks or argument.name == asks[place % len(asks)]
            if asked and argument.kind in _OF_NO_KIND:
                wrong = {argument.name: _OF_NO_KIND[argument.kind][next(turn) % 2]}
                call = in_dtype(fitting(operation) | with_needs(operation, argument) | wrong, "float32")
                first = (form.results[0].name,)
                yield Call(call, operation=operation, misuse=Misuse(argument.name), outputs=first)
