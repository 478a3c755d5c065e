"""Guesses what the parameters of a function are by their names, and the calls that would confirm a guess."""

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.user.convention import OTHER, Convention
from attnspec.backends.user.signature import required_parameters
from attnspec.operations.aliases import (
    JOINED,
    MODULES,
    NO_COUNTERPART,
    NO_RESULT,
    OF_COMPANIONS,
    PAST,
    SIZES,
    SLOPES,
    is_name_of,
    meant,
)

_OPERATION = OPERATIONS["attention"]
#: Arguments that are named by what they do, so that a function with another result is wrong.
_CLEAR = (
    *("scale", "softcap", "mask", "bias", "is_causal", "window", "sinks", "query_lengths", "key_lengths"),
    *("query_segment_ids", "key_segment_ids", "return_lse", "return_weights"),
)


class Guess(str):
    """The reason of a key that no call confirmed."""

    __slots__ = ()


#: What to do about a parameter that is never passed and has a number by default: one that may change
#: results, and the size or the number of parts of a computation, which changes none.
_NEUTRAL = "if that changes results, judge a wrapper that passes its neutral value"
_OTHERS = "others are not judged; a wrapper can pass each that callers use"
_PART = re.compile("block|tile|chunk|split|stage|warp")
#: The reason to write beside such an argument if no call has the results of the reference.
UNCONFIRMED = Guess("by its name alone: no call gave the specified results")
#: A bound of a window that excludes no key.
WIDE = 2**30
#: Arguments that need each other.
PARTNERS = {"query_segment_ids": "key_segment_ids", "key_segment_ids": "query_segment_ids"}


POSITIONS = ("query_positions", "key_positions")
_PLACES = (*POSITIONS, "query_offset")


def nearest_layout(operation: str, distance: float) -> Guess:
    """Return the reason of a layout with the nearest results, if no call computed an operation."""
    return Guess(f"no call computed {operation}; with this layout it is nearest, by {distance:.2g}")


def turn_of(guesses: tuple[str, ...], *, biased: bool) -> float:
    """Return when a parameter has its turn: after what can only be a bias, what may be a mask or a bias.

    Beside another bias this is the mask of pairs, and comes before a mask of keys alone. A window comes after
    causality, beside which alone some functions take it. Positions come late, because they change nothing
    without causality or a window.
    """
    if not guesses:
        return 3
    if biased and guesses == ("mask",):
        return 1.5
    return 2 if guesses[0] in _PLACES else int(guesses in (("mask", "bias"), ("window",)))


@dataclass(frozen=True)
class Inputs:
    """Mask and bias of the probed calls, of shape (B, H, L, S)."""

    mask: NDArray[np.bool_]
    bias: NDArray[Any]


@dataclass(frozen=True)
class Trial:
    """One guess."""

    convention: Convention
    #: The options of the call, and those with which the reference gives the same result.
    options: dict[str, Any]
    meaning: dict[str, Any]
    #: The variants that the function shows if the guess is right, and the reason to write then.
    variants: dict[str, str]
    why: str = ""
    #: The options and the meaning of more calls that must agree too.
    also: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = ()

    @property
    def calls(self) -> tuple[tuple[dict[str, Any], dict[str, Any]], ...]:
        """The options and the meaning of every call that must agree."""
        return ((self.options, self.meaning), *self.also)


def trials(named: Convention, ours: str, inputs: Inputs, opens: int | None = None) -> Iterator[Trial]:
    """Yield calls that would confirm that a parameter is a given canonical argument.

    `opens` is the number that opens a side of a window, as its default says.
    """
    queries, keys = inputs.mask.shape[-2:]
    at_end = {"query_offset": keys - queries}
    if ours == "mask":
        given = {"mask": inputs.mask}
        yield Trial(named, given, given, {}, "True means: attend")
        yield Trial(replace(named, mask="ignore"), given, given, {}, "True means: do not attend")
        given = {"mask": inputs.mask[:, :1, :1]}
        of_keys = replace(named, mask_of_keys=True)
        yield Trial(of_keys, given, given, {}, "of keys alone; True means: attend")
        inverted = replace(of_keys, mask="ignore")
        yield Trial(inverted, given, given, {}, "of keys alone; True means: do not attend")
        if "bias" in named.names:  # without another bias it is itself the bias
            given = {"mask": inputs.mask}
            yield Trial(replace(named, mask="add"), given, given, {}, "it is added to the scores")
    elif ours in ("is_causal", "window"):
        yield from _of_alignments(named, ours, at_end, opens)
        yield from _of_numbers(named, at_end, opens) if ours == "window" else ()
    elif ours in _PLACES:
        yield from _of_positions(named, ours, inputs)
    elif ours.startswith("return_"):
        if not named.returns:
            yield Trial(named, {ours: True}, {}, {})
            returns = ("output", ours.removeprefix("return_"), OTHER)  # as of flash-attn
            yield Trial(replace(named, returns=returns), {ours: True}, {}, {})
    elif ours in (values := _values(inputs)):
        both = (ours, PARTNERS[ours]) if PARTNERS.get(ours) in named.names else (ours,)
        given = {name: values[name] for name in both}
        if ours not in ("query_lengths", "key_lengths"):
            yield Trial(named, given, given, {})
            return
        also = (({ours: 5}, {ours: 5}),)
        yield Trial(named, given, given, {}, also=also)
        why = "it takes a number for each batch entry, and not one for all"
        yield Trial(replace(named, per_entry=True), given, given, {}, why, also)


def _of_alignments(
    named: Convention, ours: str, at_end: dict[str, Any], opens: int | None
) -> Iterator[Trial]:
    """Yield calls of causality or of a window, of both alignments."""
    if ours == "is_causal":
        on = {"is_causal": True}
        yield Trial(named, on, on, {}, "its causal mask is aligned at the top left")
        why = "its causal mask is aligned at the bottom right"
        yield Trial(named, on, on | at_end, {"MASK-3": "bottom-right"}, why)
        return
    words: dict[int | None, str] = {None: "None opens a side", -1: "-1 opens a side, not None"}
    words |= {WIDE: "a large number opens a side"} if opens is None else {}
    sides = product(words.items(), ({}, at_end))
    for (side, why), at in sides:
        calls = [(given, given | at) for given in ({"window": w} for w in ((1, 1), (1, None), (None, 1)))]
        variants = {"MASK-3": "bottom-right"} if at else {}
        yield Trial(
            replace(named, window="sides", open_side=side), *calls[0], variants, why, also=tuple(calls[1:])
        )


#: What one number for a window may be.
NUMBERS: Mapping[Literal["left", "keys", "both"], str] = MappingProxyType(
    {
        "keys": "one number, of the keys that end at the position of the query",
        "left": "one number, of the keys before the position of the query",
        "both": "one number, of the keys on either side",
    }
)


def _of_numbers(named: Convention, at_end: dict[str, Any], opens: int | None) -> Iterator[Trial]:
    """Yield calls of a window as one number, of both alignments.

    Keys on either side come first: beside causality, or of one query at the last key, such a number is one of
    the keys before too.
    """
    before = "is_causal" in named.always or bool(named.one_query)
    kinds = sorted(NUMBERS, key=lambda kind: kind != "both" and not before)
    for kind, at in product(kinds, ({}, at_end)):
        calls = [({"window": (n, right_side(kind, n))},) * 2 for n in (1, 2)]
        calls = [(given, meaning | at) for given, meaning in calls]
        variants = {"MASK-3": "bottom-right"} if at else {}
        number = replace(named, window=kind, open_side=opens)
        yield Trial(number, *calls[0], variants, NUMBERS[kind], also=tuple(calls[1:]))


def right_side(kind: str, left: int) -> int:
    """Return the right side of a window that one number of this kind can express."""
    return left if kind == "both" else 0


def _of_positions(named: Convention, ours: str, inputs: Inputs) -> Iterator[Trial]:
    """Yield the call of positions beside an option that they change, with both if it takes both.

    An offset is one number, or one for each batch entry.
    """
    shown = _showing_positions(named)
    for offset in (2, np.arange(len(inputs.mask)) + 1) if ours == "query_offset" and shown else ():
        given = {ours: offset, **shown}
        yield Trial(replace(named, per_entry=named.per_entry or np.ndim(offset) > 0), given, given, {})
    for together in (POSITIONS, (ours,)) if ours in POSITIONS else ():
        if {*together} <= {*named.names} and shown:
            given = {name: _positions(inputs)[name] for name in together}
            yield Trial(named, given | shown, given | shown, {})
            return


def _values(inputs: Inputs) -> dict[str, Any]:
    """Return a value for each other option that changes the result."""
    batch, heads, queries, keys = inputs.mask.shape
    return {
        "scale": 0.3,
        "softcap": 0.7,
        "bias": inputs.bias,
        "query_lengths": np.linspace(3, queries, batch, dtype=int),
        "key_lengths": np.linspace(4, keys, batch, dtype=int),
        "sinks": np.linspace(-1, 1, heads).astype(inputs.bias.dtype),
        "query_segment_ids": np.tile(np.arange(queries) * 2 // queries, (batch, 1)),
        "key_segment_ids": np.tile(np.arange(keys) * 2 // keys, (batch, 1)),
    }


def _showing_positions(named: Convention) -> dict[str, Any]:
    """Return an option beside which positions change the result; empty if the function has none."""
    if "is_causal" in (*named.names, *named.always):
        return {"is_causal": True}
    return {"window": (2, 1)} if "window" in named.names else {}


def _positions(inputs: Inputs) -> dict[str, Any]:
    """Return positions in another order than the indices, for which no row is empty."""
    batch, _, queries, keys = inputs.mask.shape
    return {
        "query_positions": np.tile(np.arange(queries)[::-1] + 1, (batch, 1)),
        "key_positions": np.tile(np.arange(keys)[::-1], (batch, 1)),
    }


def is_clear(ours: str, own: str) -> bool:
    """Whether a parameter can only be an argument of attention, whatever it does."""
    # A mask may be one of booleans or of numbers, and a flag of flash-attn returns an lse beside the weights.
    both = {*meant(own)} in ({"mask", "bias"}, {"return_lse", "return_weights"})
    return ours in _CLEAR and (is_name_of(ours, own) or both)


def number_of_open_sides(function: Callable[..., Any], own: str) -> int | None:
    """Return the number below 1 that a window is by default, or has on both sides, or None."""
    parameters = inspect.signature(function).parameters
    default = parameters[own].default if own in parameters else None
    if type(default) is int:
        return default if default <= 0 else None
    sides = set(default) if isinstance(default, tuple | list) and default else {None}
    number = sides.pop()
    return number if not sides and type(number) is int and number < 0 else None


def note_ignored(
    why: Mapping[str, str], function: Callable[..., Any], ignored: Sequence[str], flags: str
) -> dict[str, str]:
    """Add the reason beside the parameters that are never passed, and what they may be a cause of."""
    if not ignored:
        return dict(why)
    # Beside other keys, k has the new ones.
    new = {own: tuple(x for x in ("new_key", "new_value") if own in OF_COMPANIONS[x]) for own in ignored}
    guesses = {own: new[own] or meant(own) for own in ignored}
    known = [f"{own} ({' or '.join(ours)}?)" for own, ours in guesses.items() if ours]
    said = f"; no call confirmed {', '.join(known)}" if known else ""
    acting = numbers_in_every_call(function, ignored)
    beside = f"; {acting[_NEUTRAL]}" if _NEUTRAL in acting else ""
    unsure = {key: Guess(reason + beside) for key, reason in why.items() if reason == UNCONFIRMED}
    advice = "".join(f"; {numbers}: {what}" for what, numbers in acting.items())
    reason = f"never passed, so no case tests what these do{said}{advice}{flags}"
    return {**why, **unsure, "ignore": reason}


def numbers_in_every_call(function: Callable[..., Any], ignored: Collection[str]) -> dict[str, str]:
    """Say which parameters that are never passed have a number by default, by what to do about them."""
    defaults = {
        own: parameter.default
        for own, parameter in inspect.signature(function).parameters.items()
        if own in ignored and NO_COUNTERPART.get(own.lower()) != NO_RESULT
    }
    numbers = {own: x for own, x in defaults.items() if type(x) in (int, float) and x not in (0, -1)}
    parts = [own for own, number in numbers.items() if type(number) is int and _PART.search(own.lower())]
    kinds = {_NEUTRAL: [own for own in numbers if own not in parts], _OTHERS: parts}
    return {
        advice: " and ".join(f"{own} is {numbers[own]} in every call" for own in names)
        for advice, names in kinds.items()
        if names
    }


def _guesses(name: str) -> tuple[str, ...]:
    """Guess what a parameter is by its name. A mask may be one of numbers, which is a bias."""
    if name in _OPERATION.arguments:
        return (name, "bias") if name == "mask" else (name,)
    return tuple(ours for ours in meant(name) if ours in _OPERATION.arguments)


def unknown_required(function: Callable[..., Any], named: Collection[str]) -> list[str]:
    """Name the parameters without a default that have no known name and are no size."""
    guesses = guess_arguments(function)
    sizes = {word for words in SIZES.values() for word in words}
    return [
        own
        for own in required_parameters(function)
        if not guesses[own] and own not in named and own.lower() not in {*sizes, *SLOPES, *MODULES}
    ]


def guess_arguments(function: Callable[..., Any]) -> dict[str, tuple[str, ...]]:
    """Guess the canonical argument of each parameter, most likely first.

    The first parameters without a guess are taken for the missing arrays.
    """
    parameters = inspect.signature(function).parameters.values()
    own = [
        parameter.name
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    guesses = {name: _guesses(name) for name in own}
    needed = required_parameters(function)
    for array in _OPERATION.arrays:  # of two names for an array, as in a cache and new keys, the required one
        if any(array in guesses[name] for name in needed):
            guesses |= {name: () for name in own if array in guesses[name] and name not in needed}
    guesses |= {name: () for name in own if name.lower() in (*PAST[0], *PAST[1], *SLOPES)}
    taken = {ours for name, names in guesses.items() if name.lower() not in JOINED for ours in names}
    joined = {name: JOINED.get(name.lower(), ()) for name in own}
    guesses |= {name: arrays for name, arrays in joined.items() if arrays and not taken & {*arrays}}
    taken = {ours for names in guesses.values() for ours in names}
    left = [name for name in own if not guesses[name] and name.lower() not in (*PAST[0], *PAST[1], *SLOPES)]
    for array in _OPERATION.arrays:
        if array not in taken and left:
            guesses[left.pop(0)] = (array,)
    return guesses
