"""What the rules judge: the forward pass of attention in the gallery, and cheats."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from inspect import signature
from typing import Any

import numpy as np

from attnspec.conformance.gallery import Entry, correct_entries, entry, wrong_entries
from attnspec.reference import functions
from attnspec.reference.call import STEPS
from tools.rivals.rival import Array, Given


@dataclass(frozen=True)
class Subject:
    """An implementation to judge."""

    name: str
    make: Callable[[], Callable[..., Any]]  # makes the function, with a memory of its own
    #: The steps of the reference that it replaces. Empty if it is not an entry of the gallery.
    steps: frozenset[str] = frozenset()
    lacks: tuple[str, ...] = ()  # the arguments that it does not take


def wrong() -> tuple[Subject, ...]:
    """List the wrong entries that differ from the reference in the forward pass of attention.

    Entries that only fail to refuse a call are left out.
    """
    return tuple(_subject(entry) for entry in wrong_entries() if _is_forward(entry))


def right() -> tuple[Subject, ...]:
    """List the correct entries that compute the forward pass of attention in another way."""
    return tuple(_subject(entry) for entry in correct_entries() if not entry.steps or _is_forward(entry))


def subject(name: str) -> Subject:
    """Return the entry of a name."""
    return _subject(entry(name))


def _subject(entry: Entry) -> Subject:
    return Subject(entry.name, lambda: entry.backend().attention, frozenset(entry.steps), entry.lacks)


def _is_forward(entry: Entry) -> bool:
    return any(step in forward_steps() and not step.startswith("check") for step in entry.steps)


@cache
def forward_steps() -> frozenset[str]:
    """Return the steps of a call of attention with every option."""
    array, lengths = np.ones((1, 1, 2, 2)), np.array([2])
    with record_steps() as (attention, called):
        attention(
            *(array, array, array),
            scale=1.0,
            softcap=1.0,
            bias=array,
            mask=array > 0,
            is_causal=True,
            query_offset=lengths,
            window=(1, 1),
            query_lengths=lengths,
            key_lengths=lengths,
            query_segment_ids=np.array([[0, 0]]),
            key_segment_ids=np.array([[0, 0]]),
            sinks=np.ones(1),
            dropout_mask=array > 0,
            dropout_rate=0.5,
            return_lse=True,
            return_weights=True,
        )
        return frozenset(called)


@contextmanager
def record_steps() -> Iterator[tuple[Callable[..., Any], set[str]]]:
    """Make the reference without replaced steps, and a set of the steps that its calls run."""
    called: set[str] = set()

    def note(name: str) -> Callable[..., Any]:
        def run(call: Any, *rest: Any, **options: Any) -> Any:
            called.add(name)
            return STEPS[name](call, *rest, **options)

        return run

    yield functions({name: note(name) for name in STEPS})["attention"], called


def steps_of(given: Given) -> frozenset[str]:
    """Return the steps that the reference runs for a call."""
    with record_steps() as (attention, called):
        attention(**given)
        return frozenset(called)


def _fill(of: Callable[[Array, Given], Array]) -> Callable[..., Any]:
    """Make a function whose output, lse and weights are all filled in the same careless way."""

    def attention(query: Array, key: Array, value: Array, **options: Any) -> Any:
        given = {"query": query, **options}
        if query.ndim > 2:
            value = np.repeat(value, query.shape[-3] // key.shape[-3], axis=-3)
        output = np.empty((*query.shape[:-1], value.shape[-1]), query.dtype)
        output[...] = of(value, given)
        filler = output.ravel()[0] if output.size else 0
        returned = [output]
        if given.get("return_lse"):
            returned.append(np.full(query.shape[:-1], filler, np.float32))
        if given.get("return_weights"):
            returned.append(np.full((*query.shape[:-1], key.shape[-2]), filler, query.dtype))
        return tuple(returned) if len(returned) > 1 else output

    attention.__signature__ = signature(functions({})["attention"])  # type: ignore[attr-defined] # read by inspect
    return attention


def _copy_rows(value: Array, given: Given) -> Array:
    rows = np.arange(given["query"].shape[-2]) % value.shape[-2]
    return value[..., rows, :]


#: What needs no attention to be computed.
_CHEATS: Mapping[str, Callable[[Array, Given], Array]] = {
    "zeros": lambda value, _: np.zeros_like(value[..., :1, :]),
    "a constant, 0.5": lambda value, _: np.full_like(value[..., :1, :], 0.5),
    "NaN": lambda value, _: np.full_like(value[..., :1, :], np.nan),
    "the mean of the values": lambda value, _: value.astype(np.float32).mean(axis=-2, keepdims=True),
    "a copy of the values": _copy_rows,
}


def cheats() -> tuple[Subject, ...]:
    """List functions that do not compute attention at all."""
    return tuple(Subject(name, partial(_fill, of)) for name, of in _CHEATS.items())
