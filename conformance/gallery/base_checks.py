"""The steps that refuse what cannot be computed: they take the arguments of a call and give them back."""

import math
from typing import Any

import numpy as np

from attnspec.backends import DTYPES
from attnspec.conformance.gallery.base import Steps

Given = dict[str, Any]
#: In this order; later ones rely on those before.
CHECKS = (
    "check_dtypes",
    "check_axes",
    "check_heads",
    "check_scale",
    "check_softcap",
    "check_bias",
    "check_masks",
    "check_rate",
    "check_window",
    "check_integers",
    "check_ranges",
    "check_segments",
    "check_sinks",
)


class RefusedError(ValueError):
    """A call that cannot be honoured."""


def need(name: str, good: Any, expected: str, got: Any) -> None:
    """Refuse an argument, naming it (ERR-12)."""
    if not good:
        raise RefusedError(f"{name}: expected {expected}, got {got}")


def checked(own: Steps, given: Given) -> Given:
    """Refuse what does not fit (ERR-3)."""
    for check in CHECKS:
        given = getattr(own, check)(given)
    return given


def check_dtypes(given: Given) -> Given:
    """Floating-point numbers, the three of one dtype (ERR-1, ERR-2)."""
    for name in ("query", "key", "value", "bias", "sinks"):
        array = given[name]
        need(name, array is None or array.dtype.name in DTYPES, "floating-point numbers", array)
    for name in ("key", "value"):
        own, other = given[name].dtype, given["query"].dtype
        need(name, own == other, f"dtype {other} as in query", own)
    return given


def check_axes(given: Given) -> Given:
    """Depths, positions and batch axes that fit (SHAPE-6, ERR-5)."""
    query, key, value = (given[name].shape for name in ("query", "key", "value"))
    for name, shape in (("query", query), ("key", key), ("value", value)):
        need(name, len(shape) >= 2 and shape[-1], "two axes and a depth", shape)
        need(name, len(shape) == len(query) and shape[:-3] == query[:-3], f"batch {query[:-3]}", shape)
    need("key", key[-1] == query[-1], f"depth {query[-1]} as in query", key[-1])
    need("value", value[-2] == key[-2], f"{key[-2]} positions as in key", value[-2])
    return given


def check_heads(given: Given) -> Given:
    """Key heads that divide the query heads (HEAD-2)."""
    query, key, value = (given[name].shape[-3:-2] for name in ("query", "key", "value"))
    good = not query or (query[0] and key[0] and query[0] % key[0] == 0)
    need("key", good, f"a number of heads that divides {query}", key)
    need("value", value == key, f"{key} heads as in key", value)
    return given


def is_number(thing: Any) -> bool:
    """Whether it is a finite real number, and no boolean."""
    real = isinstance(thing, int | float | np.integer | np.floating) and not isinstance(thing, bool)
    return real and math.isfinite(thing)


def check_scale(given: Given) -> Given:
    """Ask for a finite number (ERR-6)."""
    need("scale", given["scale"] is None or is_number(given["scale"]), "a finite number", given["scale"])
    return given


def check_softcap(given: Given) -> Given:
    """Ask for a positive finite number (SCORE-6)."""
    cap = given["softcap"]
    need("softcap", cap is None or (is_number(cap) and cap > 0), "a positive finite number", cap)
    return given


def score_shape(given: Given) -> tuple[int, ...]:
    """Shape of the scores, ``(*B, Hq, L, S)``."""
    return (*given["query"].shape[:-1], given["key"].shape[-2])


def broadcasts(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Whether trailing axes are equal or 1, and no axes are left over."""
    pairs = zip(reversed(shape), reversed(full), strict=False)
    return len(shape) <= len(full) and all(own in (1, other) for own, other in pairs)


def check_bias(given: Given) -> Given:
    """Of a shape that broadcasts to the scores (SCORE-4)."""
    bias, full = given["bias"], score_shape(given)
    need("bias", bias is None or broadcasts(bias.shape, full), f"a shape that broadcasts to {full}", bias)
    return given


def check_masks(given: Given) -> Given:
    """Booleans that broadcast to the scores (MASK-1, DROP-1, ERR-4)."""
    full = score_shape(given)
    for name in ("mask", "dropout_mask"):
        mask = given[name]
        need(name, mask is None or mask.dtype == bool, "booleans", mask)
        need(name, mask is None or broadcasts(mask.shape, full), f"a shape that broadcasts to {full}", mask)
    return given


def check_rate(given: Given) -> Given:
    """From 0 to below 1, and not without a mask (DROP-4)."""
    rate = given["dropout_rate"]
    need("dropout_rate", is_number(rate) and 0 <= rate < 1, "a number from 0 to below 1", rate)
    need("dropout_rate", rate == 0 or given["dropout_mask"] is not None, "0 without a dropout_mask", rate)
    return given


def check_window(given: Given) -> Given:
    """Ask for a pair of None or integers from 0 on (ERR-7)."""
    window = given["window"]
    good = window is None or (isinstance(window, tuple | list) and len(window) == 2)
    for bound in window if good and window is not None else ():
        good = good and (bound is None or (isinstance(bound, int) and bound >= 0))
    need("window", good, "a pair of None or integers from 0 on", window)
    return given


def check_integers(given: Given) -> Given:
    """One integer, or one for each batch entry (ERR-8)."""
    batch = given["query"].shape[:-3]
    for name in ("query_offset", "query_lengths", "key_lengths"):
        if given[name] is not None:
            array = np.asarray(given[name])
            good = array.dtype.kind in "iu" and array.shape in ((), batch)
            need(name, good, f"an integer or integers of shape {batch}", given[name])
    return given


def check_ranges(given: Given) -> Given:
    """Lengths within their axis (ERR-9)."""
    for name, axis in (("query_lengths", "query"), ("key_lengths", "key")):
        if given[name] is not None:
            lengths, most = np.asarray(given[name]), given[axis].shape[-2]
            need(name, ((lengths >= 0) & (lengths <= most)).all(), f"0 to {most}", given[name])
    return given


def check_segments(given: Given) -> Given:
    """Both of them, integers, one for each position (ERR-10)."""
    batch = given["query"].shape[:-3]
    both = given["query_segment_ids"] is not None or given["key_segment_ids"] is not None
    for axis in ("query", "key") if both else ():
        name, shape = f"{axis}_segment_ids", (*batch, given[axis].shape[-2])
        ids = given[name]
        good = ids is not None and ids.dtype.kind in "iu" and ids.shape == shape
        need(name, good, f"integers of shape {shape}, as for the other side", ids)
    return given


def check_sinks(given: Given) -> Given:
    """One for each query head (ERR-11)."""
    heads = given["query"].shape[-3:-2] or (1,)
    sinks = given["sinks"]
    need("sinks", sinks is None or sinks.shape == heads, f"shape {heads}", sinks)
    return given
