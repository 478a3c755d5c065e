"""Implementations of attention that are wrong in one named way, and correct ones. They test the suite."""

from functools import cache
from typing import Any

from attnspec.conformance.gallery import (
    bounds,
    caching,
    correct,
    correct_bases,
    correct_codes,
    correct_gradients,
    correct_latent,
    correct_orders,
    correct_sparsity,
    correct_tiles,
    denominator,
    dropout,
    edges,
    effects,
    empty_rows,
    errors,
    factors,
    firsts,
    float32,
    folded,
    frequencies,
    gradients,
    gradients_memory,
    gradients_numerics,
    gradients_of_companions,
    gradients_of_lengths,
    gradients_of_masks,
    gradients_of_nothing,
    gradients_of_options,
    gradients_of_parameters,
    heads,
    inputs,
    integers,
    invariance,
    latent,
    layouts,
    listed_keys,
    logarithms,
    low_precision,
    masking,
    maxima,
    notation,
    numerics,
    offsets,
    packing,
    paging,
    positions,
    projection,
    quantization,
    quantized_attention,
    rescaling,
    rotary,
    rows,
    scores,
    seeded_dropout,
    sinks,
    softmax,
    sources,
    sparsity,
    special_numbers,
    splits,
    tiled_masks,
    tiles,
    windows,
)
from attnspec.conformance.gallery.entry import KINDS, NEEDS, PLACE, Entry, entries_of

__all__ = ["KINDS", "NEEDS", "PLACE", "Entry", "correct_entries", "entry", "wrong_entries"]


@cache
def wrong_entries() -> tuple[Entry, ...]:
    """List the entries that break a rule, in the order of the chapters."""
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
        maxima,
        heads,
        caching,
        packing,
        paging,
        quantization,
        quantized_attention,
        low_precision,
        positions,
        sparsity,
        listed_keys,
        rotary,
        frequencies,
        latent,
        dropout,
        seeded_dropout,
        gradients_of_companions,
        numerics,
        layouts,
        special_numbers,
        invariance,
        gradients,
        gradients_of_options,
        gradients_of_parameters,
        gradients_of_masks,
        gradients_of_nothing,
        gradients_memory,
        gradients_of_lengths,
        gradients_numerics,
        errors,
        effects,
        factors,
        sinks,
        bounds,
        offsets,
        sources,
        rows,
        tiles,
        tiled_masks,
        splits,
        rescaling,
        folded,
        firsts,
        logarithms,
        float32,
        inputs,
        *edges.MODULES,
    )


@cache
def correct_entries() -> tuple[Entry, ...]:
    """List the entries that break no rule."""
    return entries_of(
        correct,
        correct_tiles,
        correct_bases,
        correct_codes,
        correct_orders,
        correct_sparsity,
        correct_gradients,
        correct_latent,
    )


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
    return {each.name: each for each in (*wrong_entries(), *correct_entries())}[name]


def __getattr__(name: str) -> Any:
    """Load an entry's backend by ``attnspec.conformance.gallery:NAME``."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return entry(name).backend()
    except KeyError:
        raise AttributeError(name) from None
