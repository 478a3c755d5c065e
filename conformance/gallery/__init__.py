"""Attention that is wrong in one named way, and attention that is correct: what the suite is tested by."""

from functools import cache
from typing import Any

from attnspec.conformance.gallery import (
    caching,
    correct,
    correct_tiles,
    denominator,
    dropout,
    effects,
    empty_rows,
    errors,
    gradients_of_companions,
    heads,
    integers,
    layouts,
    masking,
    notation,
    numerics,
    positions,
    projection,
    scores,
    softmax,
    special_numbers,
    windows,
)
from attnspec.conformance.gallery.entry import KINDS, PLACE, Entry, entries_of

__all__ = ["KINDS", "PLACE", "Entry", "correct_entries", "entry", "wrong_entries"]


@cache
def wrong_entries() -> tuple[Entry, ...]:
    """List those that break a rule, in the order of the chapters."""
    return entries_of(
        notation,
        projection,
        scores,
        masking,
        windows,
        integers,
        empty_rows,
        softmax,
        denominator,
        heads,
        caching,
        positions,
        dropout,
        gradients_of_companions,
        numerics,
        layouts,
        special_numbers,
        errors,
        effects,
    )


@cache
def correct_entries() -> tuple[Entry, ...]:
    """List those that break none."""
    return entries_of(correct, correct_tiles)


def entry(name: str) -> Entry:
    """Find an entry by its name.

    Raises
    ------
    KeyError
        When there is none.

    Examples
    --------
    >>> from attnspec.conformance.gallery import entry
    >>> entry("key_heads_tiled").rule
    'HEAD-1'
    """
    return {each.name: each for each in (*wrong_entries(), *correct_entries())}[name]


def __getattr__(name: str) -> Any:
    """Load an entry's backend by ``attnspec.conformance.gallery:NAME``."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return entry(name).backend()
    except KeyError:
        raise AttributeError(name) from None
