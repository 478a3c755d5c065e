"""Correct sparse attention of other builds."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, correct
from attnspec.reference.sparsity import Sparse


@correct("attended")
def listed_keys_gathered(given: Sparse) -> Any:
    """Gather the listed keys and values of each query, and attend to each of them once."""
    options = (given.softcap, given.bias, given.mask, given.window, given.key_lengths, given.sinks)
    if given.key_indices is None or given.is_causal or any(one is not None for one in options):
        return base.attended(given)
    work = np.float64 if given.query.dtype == np.float64 else np.float32
    query, key, value = (x.astype(work) for x in (given.query, given.key, given.value))
    lists = given.key_indices
    lists = np.broadcast_to(lists, (*key.shape[:-2], query.shape[-2], lists.shape[-1]))
    if query.ndim > 2:
        group = query.shape[-3] // key.shape[-3]
        key, value, lists = (np.repeat(x, group, axis=-3) for x in (key, value, lists))
    width = lists.shape[-1]
    before = np.tril(np.ones((width, width), bool), -1)
    again = ((lists[..., :, None] == lists[..., None, :]) & before).any(axis=-1)
    none = (lists < 0) | again  # (*B, Hq, L, W)
    scale = 1 / np.sqrt(query.shape[-1]) if given.scale is None else given.scale
    scores = (query[..., :, None, :] * _gathered(key, lists, none)).sum(axis=-1) * work(scale)
    scores = np.where(none, -np.inf, scores)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(top == -np.inf, 0, top)
    rates = np.exp(scores - top)
    total = rates.sum(axis=-1, keepdims=True)
    weights = rates / np.where(total == 0, 1, total)
    output = (weights[..., None] * _gathered(value, lists, none)).sum(axis=-2).astype(given.query.dtype)
    lse = np.where(total == 0, -np.inf, top + np.log(np.where(total == 0, 1, total)))[..., 0].astype(work)
    return (output, lse) if given.return_lse else output


def _gathered(array: Array, lists: Array, none: Array) -> Array:
    """Gather rows of an array, ``(*B, Hq, L, W, D)``, and 0 for no key."""
    places = np.where(none, 0, lists)[..., None]
    return np.where(none[..., None], 0, np.take_along_axis(array[..., None, :, :], places, axis=-2))
