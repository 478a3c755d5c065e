"""Latent attention: the chapter `latent`."""

import math
from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Array, Call, Given, step
from attnspec.reference.errors import need, same_dtype
from attnspec.reference.functions import public
from attnspec.reference.notation import narrow, stored, wide

#: The arrays, in order.
ARRAYS = ("query", "query_rotary", "latent", "key_rotary", "key_weight", "value_weight")


def latent_attention_of(call: Call, *arrays: Array, **given: Any) -> Any:
    """Attend with keys and values that are projections of one latent vector for each position.

    Notes
    -----
    DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1. This is the projected form.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import latent_attention
    >>> zero, one = np.zeros((1, 1, 1)), np.ones((1, 1, 1))
    >>> latent_attention(zero, zero, [[2.0], [4.0]], np.zeros((2, 1)), one, one).ravel().tolist()
    [3.0]
    """
    given = check_latent(call, dict(zip(ARRAYS, arrays, strict=False)) | given)
    storage = stored(call, given["query"])
    given |= {name: wide(call, given[name]) for name in ARRAYS}
    found = latent_attended(call, given | {"scale": latent_scale(call, given)}, storage)
    if not given["return_lse"]:
        return narrow(call, found, storage)
    return narrow(call, found[0], storage), found[1]


latent_attention = public(latent_attention_of)


@step
def check_latent(call: Call, given: Given) -> Given:
    """Check dtypes and shapes (ERR-1, ERR-5, ERR-16)."""
    same_dtype(call, **{name: given[name] for name in ARRAYS})
    shape = tuple(given["query"].shape)
    need("query", len(shape) >= 3, "three axes or more", f"shape {shape}", "ERR-16")
    count = len(shape)
    axes = {"query_rotary": count, "latent": count - 1, "key_rotary": count - 1, "key_weight": 3}
    for name, expected in (axes | {"value_weight": 3}).items():
        need(name, given[name].ndim == expected, f"{expected} axes", tuple(given[name].shape), "ERR-16")
    for name in ARRAYS:
        need(name, given[name].shape[-1] > 0, "a depth of 1 or more", 0, "ERR-5")
    *batch, heads, queries, depth = shape
    (keys, inner), rotary = given["latent"].shape[-2:], given["query_rotary"].shape[-1]
    fitting = {
        "query_rotary": (*batch, heads, queries, rotary),
        "latent": (*batch, keys, inner),
        "key_rotary": (*batch, keys, rotary),
        "key_weight": (heads, inner, depth),
        "value_weight": (heads, inner, given["value_weight"].shape[-1]),
    }
    for name, own in fitting.items():
        got = tuple(given[name].shape)
        need(name, got == own, f"shape {own}", got, "ERR-16")
    return given


@step
def latent_scale(_call: Call, given: Given) -> Any:
    """Return the given scale, or that of the depth of the projected form (LATENT-2)."""
    depth = given["query"].shape[-1] + given["query_rotary"].shape[-1]
    return 1 / math.sqrt(depth) if given["scale"] is None else given["scale"]


@step
def latent_attended(call: Call, given: Given, _storage: Any) -> Any:
    """Attend in the projected form (LATENT-1)."""
    query = call.xp.concat([given["query"], given["query_rotary"]], axis=-1)  # (*B, Hq, L, D + Dr)
    options = {name: thing for name, thing in given.items() if name not in ARRAYS}
    return attention_of(call, query, latent_keys(call, given), latent_values(call, given), **options)


@step
def latent_keys(call: Call, given: Given) -> Array:
    """Project the latent to the keys of each head, and join the shared rotary part (LATENT-1)."""
    xp, shared = call.xp, given["key_rotary"][..., None, :, :]
    own = given["latent"][..., None, :, :] @ given["key_weight"]  # (*B, Hq, S, D)
    return xp.concat([own, xp.broadcast_to(shared, (*own.shape[:-1], shared.shape[-1]))], axis=-1)


@step
def latent_values(_call: Call, given: Given) -> Array:
    """Project the latent to the values of each head, ``(*B, Hq, S, Dv)`` (LATENT-1)."""
    return given["latent"][..., None, :, :] @ given["value_weight"]
