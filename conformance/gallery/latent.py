"""Wrong about latent attention."""

import math
from typing import Any

import numpy as np

from attnspec.conformance.gallery.correct import absorbed
from attnspec.conformance.gallery.entry import base, wrong
from attnspec.reference.call import Call, Given


@wrong("latent_scale", "LATENT-2", "K", "ollama/ollama#13893")
def scale_of_the_absorbed_depth(_call: Call, given: Given) -> Any:
    """Take the scale of the depth of the latent and the rotary part."""
    depth = given["latent"].shape[-1] + given["key_rotary"].shape[-1]
    return 1 / math.sqrt(depth) if given["scale"] is None else given["scale"]


@wrong("latent_scale", "LATENT-2", "K")
def scale_without_the_rotary_depth(_call: Call, given: Given) -> Any:
    """Take the scale of the depth without the rotary part."""
    return 1 / math.sqrt(given["query"].shape[-1]) if given["scale"] is None else given["scale"]


@wrong("latent_scale", "LATENT-2", "K", "AI-Hypercomputer/maxtext#1370")
def scale_reversed(call: Call, given: Given) -> Any:
    """Multiply by the root of the depth."""
    return 1 / base.latent_scale(call, given) if given["scale"] is None else given["scale"]


@wrong("latent_scale", "LATENT-2", "K", "NVIDIA/Megatron-LM#3698")
def given_scale_ignored_beside_a_latent(call: Call, given: Given) -> Any:
    """Take the default scale, whatever scale is given."""
    return base.latent_scale(call, given | {"scale": None})


@wrong("latent_keys", "LATENT-1", "V")
def rotary_part_left_out(call: Call, given: Given) -> Any:
    """Compare only the parts of queries and keys that are not rotated."""
    return base.latent_keys(call, given | {"key_rotary": np.zeros_like(given["key_rotary"])})


@wrong("latent_keys", "LATENT-1", "V")
def rotary_part_for_the_first_head(call: Call, given: Given) -> Any:
    """Give the rotary part of the keys to the first head only."""
    found = base.latent_keys(call, given)
    found[..., 1:, :, given["query"].shape[-1] :] = 0
    return found


@wrong("latent_keys", "LATENT-1", "V")
def key_weight_of_the_first_head(call: Call, given: Given) -> Any:
    """Project the keys of all heads by the weight of the first."""
    weight = given["key_weight"]
    return base.latent_keys(call, given | {"key_weight": np.broadcast_to(weight[:1], weight.shape)})


@wrong("latent_values", "LATENT-1", "V")
def value_weights_in_reverse(call: Call, given: Given) -> Any:
    """Project the values of each head by the weight of another."""
    return base.latent_values(call, given | {"value_weight": given["value_weight"][::-1]})


@wrong("latent_attended", "LATENT-1", "V")
def weights_of_keys_and_values_split_wrongly(call: Call, given: Given, storage: Any) -> Any:
    """Split the joined weights of keys and values where values come first."""
    joined = np.concatenate([given["key_weight"], given["value_weight"]], axis=-1)
    values = given["value_weight"].shape[-1]
    swapped = {"key_weight": joined[..., values:], "value_weight": joined[..., :values]}
    return base.latent_attended(call, given | swapped, storage)


@wrong("latent_attended", "LATENT-1", "V")
def rotary_part_before_the_latent(call: Call, given: Given, _storage: Any) -> Any:
    """Take the first features of a key for its values, where the rotary part comes first."""
    rotary, latent = given["key_rotary"], given["latent"]
    cache = np.concatenate([rotary, latent], axis=-1)
    values = cache[..., : latent.shape[-1]]
    return absorbed(call, given, values=values)


@wrong("latent_attended", "LATENT-3", "F")
def softcap_ignored_beside_a_latent(call: Call, given: Given, storage: Any) -> Any:
    """Leave the softcap out."""
    return base.latent_attended(call, given | {"softcap": None}, storage)


@wrong("latent_attended", "LATENT-3", "M")
def sinks_ignored_beside_a_latent(call: Call, given: Given, storage: Any) -> Any:
    """Leave the sinks out."""
    return base.latent_attended(call, given | {"sinks": None}, storage)


@wrong("latent_attended", "LATENT-3", "G")
def key_lengths_ignored_beside_a_latent(call: Call, given: Given, storage: Any) -> Any:
    """Attend to the part of the cache that is not filled."""
    return base.latent_attended(call, given | {"key_lengths": None}, storage)


@wrong("latent_attended", "LATENT-3", "A")
def latent_causal_from_the_last_key(call: Call, given: Given, storage: Any) -> Any:
    """Align the last query with the last key, whatever the offset."""
    last = given["latent"].shape[-2] - given["query"].shape[-2]
    return base.latent_attended(call, given | ({"query_offset": last} if given["is_causal"] else {}), storage)


@wrong("latent_attended", "LATENT-3", "E")
def latent_window_ignored(call: Call, given: Given, storage: Any) -> Any:
    """Attend to all keys, whatever the window."""
    return base.latent_attended(call, given | {"window": None}, storage)


@wrong("latent_attended", "LATENT-3", "I")
def latent_lse_to_base_two(call: Call, given: Given, storage: Any) -> Any:
    """Return the lse of latent attention to base 2."""
    found = base.latent_attended(call, given, storage)
    return (found[0], found[1] / math.log(2)) if given["return_lse"] else found


@wrong("latent_keys", "LATENT-4", "C")
def projected_keys_in_bfloat16(call: Call, given: Given) -> Any:
    """Store projected keys in bfloat16, whatever the dtype of the call."""
    found = base.latent_keys(call, given)
    bits = found.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(found.dtype)
