"""Wrong about latent attention."""

import math
from typing import Any

import numpy as np

from attnspec.conformance.gallery.correct import absorb
from attnspec.conformance.gallery.entry import base, rows, wrong
from attnspec.reference.call import Arguments, Call

ENTRIES = rows(
    ("scale_reversed", "latent_scale", "LATENT-2", "K",
     lambda call, given: 1 / base.latent_scale(call, given) if given["scale"] is None else given["scale"],
     "Multiply by the root of the depth.", "AI-Hypercomputer/maxtext#1370"),
    ("given_scale_ignored_beside_a_latent", "latent_scale", "LATENT-2", "K",
     lambda call, given: base.latent_scale(call, given | {"scale": None}),
     "Take the default scale, whatever scale is given.", "NVIDIA/Megatron-LM#3698"),
    ("rotary_part_left_out", "latent_keys", "LATENT-1", "V",
     lambda call, given: base.latent_keys(call, given | {"key_rotary": np.zeros_like(given["key_rotary"])}),
     "Compare only the parts of queries and keys that are not rotated."),
    ("value_weights_in_reverse", "latent_values", "LATENT-1", "V",
     lambda call, given: base.latent_values(call, given | {"value_weight": given["value_weight"][::-1]}),
     "Project the values of each head by the weight of another."),
    ("softcap_ignored_beside_a_latent", "attend_latent", "LATENT-3", "F",
     lambda call, given, storage: base.attend_latent(call, given | {"softcap": None}, storage),
     "Leave the softcap out."),
    ("sinks_ignored_beside_a_latent", "attend_latent", "LATENT-3", "M",
     lambda call, given, storage: base.attend_latent(call, given | {"sinks": None}, storage),
     "Leave the sinks out."),
    ("key_lengths_ignored_beside_a_latent", "attend_latent", "LATENT-3", "G",
     lambda call, given, storage: base.attend_latent(call, given | {"key_lengths": None}, storage),
     "Attend to the part of the cache that is not filled."),
    ("latent_window_ignored", "attend_latent", "LATENT-3", "E",
     lambda call, given, storage: base.attend_latent(call, given | {"window": None}, storage),
     "Attend to all keys, whatever the window."),
    ("scale_without_the_rotary_depth", "latent_scale", "LATENT-2", "K",
     lambda _call, given: 1 / math.sqrt(given["query"].shape[-1])
         if given["scale"] is None else given["scale"],
     "Take the scale of the depth without the rotary part."),
)  # fmt: skip


@wrong("latent_scale", "LATENT-2", "K", "ollama/ollama#13893")
def scale_of_the_absorbed_depth(_call: Call, given: Arguments) -> Any:
    """Take the scale of the depth of the latent and the rotary part."""
    depth = given["latent"].shape[-1] + given["key_rotary"].shape[-1]
    return 1 / math.sqrt(depth) if given["scale"] is None else given["scale"]


@wrong("latent_keys", "LATENT-1", "V")
def rotary_part_for_the_first_head(call: Call, given: Arguments) -> Any:
    """Give the rotary part of the keys to the first head only."""
    result = base.latent_keys(call, given)
    result[..., 1:, :, given["query"].shape[-1] :] = 0
    return result


@wrong("latent_keys", "LATENT-1", "V")
def key_weight_of_the_first_head(call: Call, given: Arguments) -> Any:
    """Project the keys of all heads by the weight of the first."""
    weight = given["key_weight"]
    return base.latent_keys(call, given | {"key_weight": np.broadcast_to(weight[:1], weight.shape)})


@wrong("attend_latent", "LATENT-1", "V")
def weights_of_keys_and_values_split_wrongly(call: Call, given: Arguments, storage: Any) -> Any:
    """Split the joined weights of keys and values where values come first."""
    joined = np.concatenate([given["key_weight"], given["value_weight"]], axis=-1)
    values = given["value_weight"].shape[-1]
    swapped = {"key_weight": joined[..., values:], "value_weight": joined[..., :values]}
    return base.attend_latent(call, given | swapped, storage)


@wrong("attend_latent", "LATENT-1", "V")
def rotary_part_before_the_latent(call: Call, given: Arguments, _storage: Any) -> Any:
    """Take the first features of a key for its values, where the rotary part comes first."""
    rotary, latent = given["key_rotary"], given["latent"]
    cache = np.concatenate([rotary, latent], axis=-1)
    values = cache[..., : latent.shape[-1]]
    return absorb(call, given, values=values)


@wrong("attend_latent", "LATENT-3", "A")
def latent_causal_from_the_last_key(call: Call, given: Arguments, storage: Any) -> Any:
    """Align the last query with the last key, whatever the offset."""
    last = given["latent"].shape[-2] - given["query"].shape[-2]
    return base.attend_latent(call, given | ({"query_offset": last} if given["is_causal"] else {}), storage)


@wrong("attend_latent", "LATENT-3", "I")
def latent_lse_to_base_two(call: Call, given: Arguments, storage: Any) -> Any:
    """Return the lse of latent attention to base 2."""
    result = base.attend_latent(call, given, storage)
    return (result[0], result[1] / math.log(2)) if given["return_lse"] else result


@wrong("latent_keys", "LATENT-4", "C")
def projected_keys_in_bfloat16(call: Call, given: Arguments) -> Any:
    """Store projected keys in bfloat16, whatever the dtype of the call."""
    result = base.latent_keys(call, given)
    bits = result.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(result.dtype)
