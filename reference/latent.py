"""Latent attention: the chapter `latent`."""

import math
from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Arguments, Array, Call, step
from attnspec.reference.errors import check_declared
from attnspec.reference.functions import public
from attnspec.reference.notation import by_name, in_storage, out_dtype, wide

#: The arrays, in order.
ARRAYS = ("query", "query_rotary", "latent", "key_rotary", "key_weight", "value_weight")


def latent_attention_of(call: Call, **arguments: Any) -> Any:
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
    arguments = check_declared(call, "latent_attention", arguments)
    storage = out_dtype(call, arguments["query"])
    arguments |= {name: wide(call, arguments[name]) for name in ARRAYS}
    results = attend_latent(call, arguments | {"scale": latent_scale(call, arguments)}, storage)
    outputs = by_name("latent_attention", arguments, results)
    return in_storage(call, "latent_attention", outputs, storage)


latent_attention = public(latent_attention_of)


@step
def latent_scale(_call: Call, arguments: Arguments) -> Any:
    """Return the given scale, or that of the depth of the projected form (LATENT-2)."""
    depth = arguments["query"].shape[-1] + arguments["query_rotary"].shape[-1]
    return 1 / math.sqrt(depth) if arguments["scale"] is None else arguments["scale"]


@step
def attend_latent(call: Call, arguments: Arguments, _storage: Any) -> Any:
    """Attend in the projected form (LATENT-1)."""
    query = call.xp.concat([arguments["query"], arguments["query_rotary"]], axis=-1)  # (*B, Hq, L, D + Dr)
    options = {name: thing for name, thing in arguments.items() if name not in ARRAYS}
    return attention_of(call, query, latent_keys(call, arguments), latent_values(call, arguments), **options)


@step
def latent_keys(call: Call, arguments: Arguments) -> Array:
    """Project the latent to the keys of each head, and join the shared rotary part (LATENT-1)."""
    xp, shared = call.xp, arguments["key_rotary"][..., None, :, :]
    own = arguments["latent"][..., None, :, :] @ arguments["key_weight"]  # (*B, Hq, S, D)
    return xp.concat([own, xp.broadcast_to(shared, (*own.shape[:-1], shared.shape[-1]))], axis=-1)


@step
def latent_values(_call: Call, arguments: Arguments) -> Array:
    """Project the latent to the values of each head, ``(*B, Hq, S, Dv)`` (LATENT-1)."""
    return arguments["latent"][..., None, :, :] @ arguments["value_weight"]
