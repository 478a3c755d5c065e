"""Wrong implementations of kinds that the gallery does not have: the portable source with one change."""

from dataclasses import replace
from functools import wraps

import numpy as np

from attnspec.backends import load

portable = load("numpy-portable")
right = portable.attention


def changed(change):
    """Attention whose call is changed on the way: change(all arguments by name) -> those to be replaced."""

    @wraps(right)
    def attention(query, key, value, **options):
        every = {"query": query, "key": key, "value": value, **options}
        every |= change(every)
        arrays = [every.pop(name) for name in ("query", "key", "value")]
        return right(*arrays, **every)

    return replace(portable, name=change.__name__, attention=attention)


def companion(function):
    """The portable backend with one of its companions replaced."""
    run = portable.companions[function.__name__]

    @wraps(run)
    def whole(*arrays, **options):
        return function(run, *arrays, **options)

    return replace(
        portable, name=function.__name__, companions={**portable.companions, function.__name__: whole}
    )


@changed
def window_lost_beside_a_mask(every):
    return {"window": None} if every.get("mask") is not None else {}


@changed
def segments_of_sign(every):
    """Ids that have one sign are one."""
    return {name: np.sign(x) for name, x in every.items() if "segment_ids" in name and x is not None}


@changed
def sink_of_first_head(every):
    sinks = every.get("sinks")
    return {} if sinks is None or not len(sinks) else {"sinks": np.full_like(sinks, sinks[0])}


@changed
def infinity_as_zero(every):
    """An infinite feature of a key is left out of the sum."""
    key = every["key"]
    return {"key": np.where(np.isinf(key), 0, key).astype(key.dtype)}


@changed
def first_offset_of_two_calls(every, _kept={}):  # noqa: B006 - it remembers, which is what is wrong with it
    """An offset is taken from the first call of a shape that has one."""
    if not np.any(every.get("query_offset", 0)):
        return {}
    return {"query_offset": _kept.setdefault(every["query"].shape, every["query_offset"])}


def _noisy(query, key, value):
    output = right(query, key, value)
    step = np.spacing(np.abs(output))
    return np.where(np.random.default_rng().random(output.shape) < 0.5, output, output + step)


noisy = replace(portable, name="noisy", attention=_noisy)


@companion
def multi_head_attention(run, *arrays, memory=None, **options):
    """The memory from its last position to its first, and the mask as it is."""
    return run(*arrays, memory=None if memory is None else memory[..., ::-1, :], **options)


@companion
def split_heads(run, features, *, heads):
    """Features that are left over are left out."""
    depth = features.shape[-1] // max(heads, 1)
    return run(features[..., : heads * depth], heads=heads)


@companion
def gather_pages(run, pages, block_table):
    """Pages are counted round and round."""
    return run(pages, block_table % max(len(pages), 1))


@companion
def rotary(run, features, *, offset=0, **options):
    """The offset is left out."""
    return run(features, **options)


@companion
def append_cache(run, cache, new, *, lengths):
    """New positions are written from the last to the first."""
    return run(cache, new[..., ::-1, :], lengths=lengths)
