"""Implementations of attention that are wrong in one named way, and correct ones. They test the suite."""

from functools import cache
from typing import Any

from attnspec import rules
from attnspec.conformance.gallery import (
    caching,
    captured,
    correct,
    correct_gradients,
    correct_shards,
    correct_tiles,
    dropout,
    edges,
    empty_rows,
    errors,
    gradients,
    gradients_memory,
    gradients_numerics,
    gradients_of_forms,
    gradients_of_options,
    gradients_of_shards,
    heads,
    invariance,
    latent,
    layouts,
    logarithms,
    masking,
    notation,
    numerics,
    packing,
    paging,
    positions,
    projection,
    quantization,
    scores,
    selection,
    serving,
    sharding,
    sharding_of_arrays,
    softmax,
    sparsity,
    splits,
    stacks,
    tiles,
    windows,
)
from attnspec.conformance.gallery.entry import KINDS, NEEDS, PLACE, Entry, entries_of

__all__ = ["KINDS", "NEEDS", "PLACE", "Entry", "correct_entries", "entry", "wrong_entries"]


_WRONG = (
    notation,
    projection,
    scores,
    masking,
    windows,
    empty_rows,
    softmax,
    tiles,
    splits,
    logarithms,
    heads,
    caching,
    packing,
    paging,
    quantization,
    positions,
    sparsity,
    selection,
    latent,
    stacks,
    sharding,
    sharding_of_arrays,
    serving,
    dropout,
    gradients,
    gradients_of_options,
    gradients_of_forms,
    gradients_of_shards,
    gradients_numerics,
    gradients_memory,
    numerics,
    layouts,
    invariance,
    errors,
    captured,
    *edges.MODULES,
)


@cache
def wrong_entries() -> tuple[Entry, ...]:
    """List the entries that break a rule, in the order of the rules in the standard."""
    place = {rule.id: number for number, rule in enumerate(rules())}
    return tuple(sorted(entries_of(*_WRONG), key=lambda entry: place[entry.rule]))


@cache
def correct_entries() -> tuple[Entry, ...]:
    """List the entries that break no rule."""
    return entries_of(correct, correct_tiles, correct_gradients, correct_shards)


def entry(name: str) -> Entry:
    """Find an entry by its name.

    Raises
    ------
    KeyError
        If there is none.

    Examples
    --------
    >>> from attnspec.conformance.gallery import entry
    >>> entry("key_heads_tiled").rule
    'HEAD-1'
    """
    return _by_name()[name]


@cache
def _by_name() -> dict[str, Entry]:
    return {entry.name: entry for entry in (*wrong_entries(), *correct_entries())}


def __getattr__(name: str) -> Any:
    """Load an entry's backend by ``attnspec.conformance.gallery:NAME``."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return entry(name).backend()
    except KeyError:
        raise AttributeError(name) from None
