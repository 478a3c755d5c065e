"""Wrong about loops over tiles of keys, queries and features: their ends and their remainders."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, altered, base, family
from attnspec.reference.call import Mask, Step
from attnspec.reference.notation import Attention

Named = tuple[str, str, Step]
_SIZES = (16, 32, 64, 128)


def _remainder_of_keys(size: int) -> Named:
    def allowed(call: Attention) -> Any:
        return base.allowed(call) & ((call.j < call.keys // size * size) | (call.keys < size))

    return (
        f"keys_after_tiles_of_{size}_dropped",
        f"Leave out the keys after the last whole tile of {size}.",
        allowed,
    )


def _one_tile_of_keys(size: int) -> Named:
    def allowed(call: Attention) -> Any:
        return base.allowed(call) & (call.j < size)

    return f"keys_past_{size}_dropped", f"Read the first {size} keys.", allowed


def _remainder_of_queries(size: int) -> Named:
    def weighted(call: Attention, p: Array, allowed: Mask) -> Any:
        whole = call.queries // size * size or call.queries
        return np.where(call.i < whole, base.weighted(call, p, allowed), 0)

    name = f"queries_after_tiles_of_{size}_dropped"
    return name, f"Leave the rows after the last whole tile of {size} queries 0.", weighted


def _padding(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return _padded(call, size) if call.keys > size else base.attend(call)

    name = f"padding_of_tiles_of_{size}_in_the_sum"
    return (
        name,
        f"Let the padding of the last tile of {size} keys into the sum, where there are several.",
        attend,
    )


def _padding_always(size: int) -> Named:
    name = f"padding_to_tiles_of_{size}_in_the_sum"
    sentence = f"Let the padding of the last tile of {size} keys into the sum."
    return name, sentence, lambda call: _padded(call, size)


def _padded(call: Attention, size: int) -> Any:
    """Attend also to padding of 0 after the keys, unless a causal mask or a window disallows it."""
    more = -call.keys % size
    if not more:
        return base.attend(call)

    def fill(array: Array, number: Any) -> Array:
        if array.shape[-1] == 1:
            return array
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, more)], constant_values=number)

    rows = {
        name: np.pad(getattr(call, name), [(0, 0)] * (call.key.ndim - 2) + [(0, more), (0, 0)])
        for name in ("key", "value")
    }
    longer = altered(
        call.but(**rows),
        mask=lambda mask: fill(mask, True),
        bias=lambda bias: fill(bias, 0),
        dropout_mask=lambda mask: fill(mask, True),
        key_segment_ids=lambda ids: fill(ids, 0),
    )
    output, lse, p = base.attend(longer)
    return output, lse, p[..., : call.keys]


def _depth(size: int) -> Named:
    def product(call: Attention) -> Any:
        return base.product(call.but(query=call.query[..., :size], key=call.key[..., :size]))

    return f"depth_past_{size}_dropped", f"Sum over the first {size} features.", product


REMAINDERS = family(_remainder_of_keys, "allowed", "SOFT-3", "G", *_SIZES)
ONE_TILE = family(_one_tile_of_keys, "allowed", "SOFT-3", "G", 16, 32, 128)
QUERIES = family(_remainder_of_queries, "weighted", "SOFT-3", "G", 8, 32)
PADDINGS = family(_padding, "attend", "SOFT-3", "G", *_SIZES)
PADDINGS_ALWAYS = family(_padding_always, "attend", "SOFT-3", "G", 4, 8, *_SIZES)
DEPTHS = family(_depth, "product", "SCORE-1", "G", 8, 32, 64)
