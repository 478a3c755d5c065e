"""Correct entries that compute latent attention in another form."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, correct
from attnspec.reference.attention import attention_of
from attnspec.reference.call import Call, Given
from attnspec.reference.latent import ARRAYS


def absorbed(call: Call, given: Given, values: Array | None = None, dtype: Any = None) -> Any:
    """Attend over the latent with one key head, and project the result."""
    query = given["query"] @ np.swapaxes(given["key_weight"], -1, -2)  # (*B, Hq, L, Dc)
    query = query if dtype is None else query.astype(dtype).astype(query.dtype)
    query = np.concatenate([query, given["query_rotary"]], axis=-1)
    key = np.concatenate([given["latent"], given["key_rotary"]], axis=-1)[..., None, :, :]
    value = (given["latent"] if values is None else values)[..., None, :, :]
    options = {name: thing for name, thing in given.items() if name not in ARRAYS}
    found = attention_of(call, query, key, value, **options)
    context, *lse = found if given["return_lse"] else (found,)
    context = context if dtype is None else context.astype(dtype).astype(context.dtype)
    output = context @ given["value_weight"]
    return (output, *lse) if lse else output


@correct("latent_attended")
def latent_absorbed(call: Call, given: Given, _storage: Any) -> Any:
    """Multiply queries by the key weight, and the result by the value weight, as decoding kernels do."""
    return absorbed(call, given)


@correct("latent_attended")
def latent_absorbed_and_stored(call: Call, given: Given, storage: Any) -> Any:
    """Round the absorbed queries and the attended latent to the dtype of the call."""
    return absorbed(call, given, dtype=storage)


@correct("latent_keys")
def latent_part_by_part(call: Call, given: Given) -> Any:
    """Project the keys by one feature of the latent after the other."""
    found = base.latent_keys(call, given)
    own = np.zeros_like(found[..., : given["query"].shape[-1]])
    for feature in range(given["latent"].shape[-1]):
        row = given["key_weight"][:, None, feature, :]  # (Hq, 1, D)
        own = own + given["latent"][..., None, :, feature, None] * row
    return np.concatenate([own, found[..., own.shape[-1] :]], axis=-1)
