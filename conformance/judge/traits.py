"""The traits of a call: its options, and other properties that a bug may depend on."""

import contextlib
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Case, SpecError
from attnspec.backends.errors import Unsupported
from attnspec.backends.preconditions import breach_of
from attnspec.backends.user.slopes import slopes_of
from attnspec.conformance.judge.dtypes import is_real
from attnspec.conformance.judge.judge import Judgeable
from attnspec.conformance.traits import (
    ANY_ORDER,
    AXES_OF_PAIRS,
    CLOSED_LEFT,
    EMPTY,
    FAR,
    GRADIENT,
    HUGE,
    LARGE,
    LAST_BLOCK,
    LINEAR,
    MASKED,
    MORE_QUERIES,
    NO_SCALE,
    NOTHING,
    ODD_DEPTH,
    ONE_QUERY,
    OPEN_LEFT,
    OPEN_RIGHT,
    OTHER_DEPTH,
    OTHER_STRIDES,
    REFUSED,
    RELATED,
    RISING,
    RISING_32,
    RISING_64,
    ROWS_PAST,
    SHARED,
    SPECIAL,
    TILED,
    TILED_32,
    TILED_64,
    UNEQUAL,
    UNEQUAL_BLOCKS,
    VIEWED,
    WHOLE_PAGES,
    by_entry,
    negative,
    of_dtype,
    repeated,
    repeated_inside,
    zero,
)
from attnspec.dtypes import FORMATS, name_of
from attnspec.operations.operation import primal
from attnspec.reference.masking import allowed_keys
from attnspec.sizes import bound

#: A score above this, or a row of scores all below its negative, counts as large.
_LARGE = 80.0
#: From this share of the largest number of its dtype on, or from this integer on, a number is near the end.
_NEAR, _FAR = 1 / 16, 2**31 - 1
#: Leaves room for what is rounded in a bound.
_ROUNDED = 0.999
#: More keys, or queries, than these fill a tile.
_TILES = {TILED: 16, TILED_32: 32, TILED_64: 64}
_RISING = {RISING: 16, RISING_32: 32, RISING_64: 64}
#: The numbers of a vector, and the most products of scores that are made to describe a call.
_VECTOR, _MOST = 8, 2**22
#: Options that are one number, or one number for each batch entry.
_NUMBERS = ("query_offset", "key_lengths", "query_lengths")
_OPTIONS = OPERATIONS["attention"].options
_MASKING = OPERATIONS["attention"].names("masks")
#: Options with an entry for each pair of a query and a key.
_PAIRS = ("mask", "bias", "dropout_mask")


def describe(item: Case | Judgeable) -> tuple[tuple[str, ...], int, tuple[int, ...]]:
    """Return the traits of what is judged, how many numbers its arrays have, and the sizes of a call."""
    if not isinstance(item, Case):
        return item.traits, item.numbers, ()
    return traits(item), numbers(item.calls), sizes_of(item)


def sizes_of(case: Case) -> tuple[int, ...]:
    """Return the sizes of a call in the order of `Verdict.sizes`, if it has queries and keys."""
    found = bound(case.operation, case.arguments)[0]
    letters = {"Hkv": found.letters.get("Hq", 1), **found.letters}
    if case.must_raise or not {"Hq", "L", "S", "D", "Dv"} <= letters.keys():
        return ()
    return prod(found.batch or ()), *(letters[letter] for letter in ("Hq", "Hkv", "L", "S", "D", "Dv"))


def traits(case: Case) -> tuple[str, ...]:
    """Return the traits of a call."""
    return tuple(sorted(traits_of_call(case)))


def traits_of_relation(calls: tuple[Case, ...], *, bits: bool) -> tuple[str, ...]:
    """Return the traits of all calls of a relation.

    The calls of a relation between bits have large arrays with alike numbers, so that only the options
    of the later calls are looked at.
    """
    later = calls[1:] if bits else ()
    found = {RELATED, *(name for case in later for name in options(case))}
    first = calls[: len(calls) - len(later)]
    return tuple(sorted(found.union(*map(traits_of_call, first))))


def numbers(calls: Iterable[Case]) -> int:
    """Count the numbers in the arrays of calls. A failure with fewer numbers is easier to debug."""
    return sum(np.asarray(thing).size for case in calls for thing in case.arguments.values())


def traits_of_call(case: Case) -> set[str]:
    """Return the traits of a call, without an order."""
    operation = OPERATIONS[case.operation]
    found = options(case) | _dtypes(case)
    if case.must_raise:
        return found | {REFUSED}
    if any(is_real(x) and not _is_plain(name, x) for name, x in case.arguments.items()):
        found.add(SPECIAL)
    found |= _ends(case.arguments)
    if case.layout:
        found.add(VIEWED)
        found |= {OTHER_STRIDES} if case.layout.get("key") != case.layout.get("value") else set()
    found |= {GRADIENT} if operation.differentiates else set()
    if primal(case.operation) == "attention":
        return found | _attention_traits(case.arguments)
    reduces = OPERATIONS[primal(case.operation)].reduces == "attention"
    return found | _form_traits(case) if reduces else found


def _ends(arguments: Mapping[str, Any]) -> set[str]:
    """Return the traits of numbers near the ends of what arguments hold."""
    real = ((x, FORMATS[name_of(x.dtype)].largest) for x in arguments.values() if is_real(x))
    found = {
        HUGE for x, most in real if (np.isfinite(x) & (np.abs(x).astype(np.float64) > _NEAR * most)).any()
    }
    numbers = (number for x in arguments.values() for number in (x if isinstance(x, tuple) else (x,)))
    return found | {FAR for x in numbers if type(x) is int and abs(x) >= _FAR}


def _dtypes(case: Case) -> set[str]:
    """Return the dtypes of integers that are not codes, other than the two that most callers use."""
    declared = OPERATIONS[case.operation].arguments
    return {
        of_dtype(name, x.dtype.name)
        for name, x in case.arguments.items()
        if isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x.dtype.name not in ("int32", "int64")
        if name in declared and "data" not in declared[name].role
    }


def options(case: Case) -> set[str]:
    """Return the names of the options of a call."""
    return {name for name in case.arguments if name not in OPERATIONS[case.operation].arrays}


def _is_plain(name: str, array: Any) -> bool:
    """Whether all numbers are finite. Minus infinity in a bias or a sink is allowed: it masks."""
    is_word = (array == -np.inf) & (name in ("bias", "sinks"))
    return bool((np.isfinite(array) | is_word).all())


def _attention_traits(arguments: Mapping[str, Any]) -> set[str]:
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    queries, keys = query.shape[-2], key.shape[-2]
    has = {
        NO_SCALE: "scale" not in arguments,
        SHARED: query.shape[:-2] != key.shape[:-2],
        MORE_QUERIES: queries > keys,
        OTHER_DEPTH: value.shape[-1] != query.shape[-1],
        ONE_QUERY: queries == 1,
        NOTHING: 0 in (*query.shape, *key.shape),
        LARGE: _has_large_scores(arguments),
        ODD_DEPTH: query.shape[-1] % _VECTOR != 0,
        **_mask_traits((*query.shape[:-1], keys), arguments),
        LINEAR: _has_linear_bias(arguments),
        **{trait: max(queries, keys) > size for trait, size in _TILES.items()},
        **_number_traits(arguments),
        **_broadcast_traits((*query.shape[:-1], keys), arguments),
    }
    return {trait for trait, holds in has.items() if holds} | _rising_traits(arguments)


def _form_traits(case: Case) -> set[str]:
    """Return the traits of a call of a form, or of a stack of forms."""
    arguments, letters = case.arguments, bound(case.operation, case.arguments)[0].letters
    queries, keys = letters.get("L", 0), letters.get("S", letters.get("T", 0) * letters.get("K", 0))
    rows = [np.diff(arguments[name]) for name in ("query_starts", "key_starts") if name in arguments]
    lengths = np.asarray(arguments.get("key_lengths", 0)) if "block_table" in arguments else np.zeros(1)
    has = {
        SHARED: letters.get("Hkv", 0) not in (0, letters.get("Hq")),
        ONE_QUERY: queries == 1,
        UNEQUAL_BLOCKS: len({arguments[x] for x in ("query_block", "key_block") if x in arguments}) > 1,
        UNEQUAL: any(counts.size > 1 and counts.min() < counts.max() for counts in rows),
        ROWS_PAST: bool(breach_of(("rows",), arguments)),
        LAST_BLOCK: bool(keys % (arguments.get("key_block") or 1)),
        ANY_ORDER: _falls(arguments),
        LINEAR: _has_linear_bias(arguments),
        WHOLE_PAGES: bool(((lengths > 0) & (lengths % (letters.get("K") or 1) == 0)).any()),
        **{trait: max(queries, keys) > size for trait, size in _TILES.items()},
        # A table of pages and the starts of sequences have a 0 in most calls.
        **_number_traits({name: x for name, x in arguments.items() if name in _OPTIONS}),
    }
    return {trait for trait, holds in has.items() if holds}


def _falls(arguments: Mapping[str, Any]) -> bool:
    """Whether a list has a block after a later one, before its count."""
    if not {"block_indices", "block_counts"} <= arguments.keys():
        return False
    indices, counts = (np.asarray(arguments[name]) for name in ("block_indices", "block_counts"))
    falls = np.diff(indices.astype(np.float64), axis=-1) < 0
    return bool((falls & (np.arange(1, indices.shape[-1]) < counts[..., None])).any())


def _has_linear_bias(arguments: Mapping[str, Any]) -> bool:
    """Whether a function that takes slopes in place of a bias can be asked, with a slope other than 0."""
    if arguments.get("bias") is None or "query" not in arguments:
        return False
    for from_end in (False, True):
        with contextlib.suppress(Unsupported, ValueError, TypeError):
            return bool(slopes_of(arguments, from_end=from_end).any())
    return False


def _number_traits(arguments: Mapping[str, Any]) -> dict[str, bool]:
    """Return the traits of the numbers in options and of the bounds of a window."""
    left, right = arguments.get("window", (0, 0))
    there = "window" in arguments
    found = {OPEN_LEFT: left is None, OPEN_RIGHT: right is None, CLOSED_LEFT: there and left == 0}
    # A right bound of 0 is that of each window of keys that end at the query.
    for name, x in ((name, x) for name, x in arguments.items() if name != "window"):
        numbers = np.asarray(x)
        if numbers.dtype.kind in "iu" or (numbers.dtype.kind == "f" and not numbers.ndim):
            found[negative(name)] = bool((numbers < 0).any())
            found[zero(name)] = bool((numbers == 0).any())
            found[by_entry(name)] = numbers.size > 1 and name in _NUMBERS and numbers.min() != numbers.max()
    return found


def _broadcast_traits(scores: tuple[int, ...], arguments: Mapping[str, Any]) -> dict[str, bool]:
    """Return the traits of the axes of 1 that an array of pairs has for several rows, heads or others."""
    found: dict[str, bool] = {}
    for name in _PAIRS:
        shape = np.asarray(arguments.get(name)).shape
        for axis in range(1, min(len(shape), len(scores)) + 1):
            trait = repeated(name, AXES_OF_PAIRS[min(axis, len(AXES_OF_PAIRS)) - 1])
            found[trait] = found.get(trait, False) or shape[-axis] == 1 < scores[-axis]
        found[repeated_inside(name)] = any(1 in shape[axis:] for axis, size in enumerate(shape) if size > 1)
    return found


def _has_large_scores(arguments: Mapping[str, Any]) -> bool:
    query, key = (arguments[name].astype(np.float64) for name in ("query", "key"))
    if arguments.get("bias") is None and _are_small(query, key, _scale(arguments)):
        return False
    try:
        products, scores = _scores(arguments)
    except (ValueError, TypeError):
        return False
    overflows = np.isfinite(query).all() and np.isfinite(key).all() and not np.isfinite(products).all()
    return bool(overflows or (np.abs(scores[np.isfinite(scores)]) > _LARGE).any())


def _scale(arguments: Mapping[str, Any]) -> Any:
    depth = arguments["query"].shape[-1]
    return arguments.get("scale", depth**-0.5 if depth else 1.0)


def _scores(arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the products of queries and keys, and the scores with their bias."""
    query, key = (arguments[name].astype(np.float64) for name in ("query", "key"))
    bias = arguments.get("bias")
    if key.ndim > 2 and key.shape[-3] and query.shape[-3] % key.shape[-3] == 0:
        key = np.repeat(key, query.shape[-3] // key.shape[-3], axis=-3)
    with np.errstate(all="ignore"):
        products = query @ np.swapaxes(key, -1, -2)
        return products, _scale(arguments) * products + (0 if bias is None else bias)


def _rising_traits(arguments: Mapping[str, Any]) -> set[str]:
    """Return the tiles after the first of which the largest score of some row lies."""
    query, key = arguments["query"], arguments["key"]
    if key.shape[-2] <= min(_RISING.values()) or query.size * key.shape[-2] > _MOST:
        return set()
    masking = {name: arguments[name] for name in _MASKING if name in arguments}
    try:
        scores = _scores(arguments)[1]
        scores = np.where(allowed_keys(scores.shape, **masking), scores, -np.inf)
    except (SpecError, ValueError, TypeError):
        return set()
    found = set()
    for trait, size in _RISING.items():
        first, later = (
            part.max(axis=-1, initial=-np.inf) for part in (scores[..., :size], scores[..., size:])
        )
        if bool(((later > first) & np.isfinite(first)).any()):
            found.add(trait)
    return found


def _are_small(query: Any, key: Any, scale: Any) -> bool:
    """Whether no score can be large, by the lengths of the vectors: a product of long arrays takes long."""
    with np.errstate(all="ignore"):
        longest = [np.sqrt((array * array).sum(axis=-1).max(initial=0)) for array in (query, key)]
        return bool(np.all(np.abs(scale) * longest[0] * longest[1] < _LARGE * _ROUNDED))


def _mask_traits(shape: tuple[int, ...], arguments: Mapping[str, Any]) -> dict[str, bool]:
    masking = {name: arguments[name] for name in _MASKING if name in arguments}
    try:
        allowed = allowed_keys(shape, **masking)
    except (SpecError, ValueError, TypeError):  # a call that does not fit has no rows
        return {}
    some = allowed.any(axis=-1)
    return {EMPTY: not some.all(), MASKED: bool((some & ~allowed.all(axis=-1)).any())}
