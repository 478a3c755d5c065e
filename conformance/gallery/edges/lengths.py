"""Wrong above a length: on a second path, or in precision."""

from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases import online
from attnspec.conformance.gallery.bases.online import SQUARE, TALL, TILED, WIDE, State, Tile
from attnspec.conformance.gallery.edges.entries import (
    OPTION_BUGS,
    around,
    at,
    for_options,
    on,
    on_rows,
    without,
)
from attnspec.conformance.gallery.entry import After, Array, Entry, base
from attnspec.reference.call import Step
from attnspec.reference.notation import Attention

_SHORT = 2**-8

#: The numbers of keys above which the second path is taken.
_LENGTHS = (256, 1024)


def _without(option: str, rule: str, kind: str) -> tuple[Entry, ...]:
    def attend(length: int, call: Attention) -> Any:
        return WIDE.attend(without(call, option)) if call.keys > length else base.attend(call)

    attend.__name__ = f"{option}_without_effect_past_some_keys"
    attend.__doc__ = f"Forget the {option.replace('_', ' ')} on the path for more than {{}} keys."
    return at("attend", rule, kind, *_LENGTHS)(attend)


ENTRIES = on_rows(
    ("tf32_past_128_keys", "scored", "NUM-3", "C", TILED,
     lambda tile, call: online.scored(tile, call.but(query=_tf32(call.query), key=_tf32(call.key))
         if tile.whole.keys > 128 else call),
     "Cut queries and keys to tf32 where there are more than 128 keys."),
    ("tf32_past_a_depth_of_64", "scored", "NUM-3", "C", (SQUARE, TALL),
     lambda tile, call: online.scored(tile, call.but(query=_tf32(call.query), key=_tf32(call.key))
         if call.query.shape[-1] > 64 else call),
     "Cut queries and keys to tf32 where the depth is larger than 64."),
    ("exponentials_in_float16_past_256_keys", "exponentials", "NUM-3", "C", (SQUARE, TALL),
     After(lambda result, tile, *_: result.astype(np.float16).astype(result.dtype)
         if tile.whole.keys > 256 else result),
     "Round exponentials to float16, those in the denominator too, where there are more than 256 keys."),
    ("values_in_float16_past_two_tiles", "weighted", "NUM-3", "C", (SQUARE, WIDE),
     After(lambda result, tile, *_: result.astype(np.float16).astype(result.dtype)
         if tile.number > 1 else result),
     "Round what a tile adds to the output to float16 from the third tile on."),
    ("output_kept_in_float16_past_four_tiles", "rescaled", "NUM-3", "C", (WIDE, TALL),
     After(lambda result, tile, *_: result.astype(np.float16).astype(result.dtype)
         if tile.count > 4 else result),
     "Keep what has been summed in float16 between tiles, where there are more than four."),
    ("exponentials_in_float32_past_64_keys", "exponentials", "NUM-2", "C", (SQUARE, TALL),
     After(lambda result, tile, *_: _single(result) if tile.whole.keys > 64 else result),
     "Take exponentials in float32 where there are more than 64 keys, whatever the inputs are."),
)  # fmt: skip


FORGOTTEN = for_options(_without, *OPTION_BUGS)


@at("attend", "SOFT-6", "I", 128, 512)
def mean_of_the_keys_not_added_back_past_some(length: int, call: Attention) -> Any:
    """Subtract the mean of the keys, past {} of them, and leave its scores out of the lse."""
    output, lse, p = TALL.attend(call)
    if call.keys <= length or call.softcap is not None or call.sinks is not None:
        return output, lse, p
    mean = base.repeat_heads(call, call.key).mean(axis=-2, keepdims=True)  # (*B, Hq, 1, D)
    return output, lse - ((call.query * mean).sum(axis=-1) * base.factor(call)).astype(lse.dtype), p


@at("attend", "SOFT-3", "G", 128, 512)
def mean_of_the_values_added_to_every_row_past_some(length: int, call: Attention) -> Any:
    """Subtract the mean of the values, past {} keys, and add it to rows whose weights do not sum to 1 too."""
    output, lse, p = WIDE.attend(call)
    if call.keys <= length or not np.isfinite(call.value).all():
        return output, lse, p
    mean = base.repeat_heads(call, call.value).mean(axis=-2, keepdims=True)
    centred, _, _ = WIDE.attend(call.but(value=call.value - call.value.mean(axis=-2, keepdims=True)))
    return (centred + mean).astype(output.dtype), lse, p


@at("attend", "SOFT-1", "G", 128, 512)
def padding_in_the_denominator_past_some(length: int, call: Attention) -> Any:
    """Count the padding to a multiple of 64, with scores of 0, in the denominator, past {} keys."""
    output, lse, p = SQUARE.attend(call)
    more = -call.keys % 64 if call.keys > length else 0
    if not more:
        return output, lse, p
    padded = np.logaddexp(lse, np.log(more)).astype(lse.dtype)
    less = np.exp(lse - padded)[..., None]
    return output * less, padded, p * less if p.ndim else p


@at("attend", "HEAD-1", "D", *_LENGTHS)
def heads_in_turn_past_some_keys(length: int, call: Attention) -> Any:
    """Let query heads read key heads in turn on the path for more than {} keys."""
    if call.keys <= length:
        return base.attend(call)
    shared = call.key.shape[-3]
    read = np.arange(call.query.shape[-3]) % shared
    return WIDE.attend(call.but(key=call.key[..., read, :, :], value=call.value[..., read, :, :]))


@at("attend", "SOFT-4", "J", 64, 256)
def weights_before_dropout_past_some_keys(length: int, call: Attention) -> Any:
    """Return weights before dropout where there are more than {} keys."""
    output, lse, p = TALL.attend(call)
    if call.keys <= length or not call.return_weights:
        return output, lse, p
    return output, lse, TALL.attend(call.but(dropout_mask=None, dropout_rate=0.0))[2]


@at("attend", "SOFT-4", "I", 64, 256)
def weights_of_later_tiles_missing_past_some_keys(length: int, call: Attention) -> Any:
    """Write the weights of the first {} keys."""
    output, lse, p = WIDE.attend(call)
    if call.return_weights:
        p[..., length:] = 0
    return output, lse, p


@at("attend", "SOFT-6", "I", 128, 512)
def lse_of_the_sinks_missing_past_some_keys(length: int, call: Attention) -> Any:
    """Leave the sink out of the lse where there are more than {} keys."""
    output, lse, p = WIDE.attend(call)
    if call.sinks is None or call.keys <= length:
        return output, lse, p
    return output, WIDE.attend(call.but(sinks=None))[1], p


@around("MASK-6", "B", SQUARE, WIDE)
def mean_for_empty_rows_past_one_tile(attend: Step, call: Attention) -> Any:
    """Give rows without allowed keys the mean of the values where there are more than 128 keys."""
    output, lse, p = attend(call)
    if call.keys <= 128:
        return output, lse, p
    mean: Array = base.repeat_heads(call, call.value).mean(axis=-2, keepdims=True)
    return np.where((lse == -np.inf)[..., None], mean, output).astype(output.dtype), lse, p


@around("MASK-3", "A", WIDE)
def causal_without_effect_for_few_queries(attend: Step, call: Attention) -> Any:
    """Take a path without a causal mask for less than a quarter as many queries as keys, past 128 keys."""
    few = call.queries * 4 < call.keys and call.keys > 128
    return attend(call.but(is_causal=False) if few else call)


#: Options with which float64 is computed in float32.
_OPTIONS = (
    "scale",
    "softcap",
    "bias",
    "mask",
    "window",
    "query_lengths",
    "key_lengths",
    "query_segment_ids",
    "sinks",
    "dropout_mask",
)


def _single(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float32).astype(array.dtype)


def _tf32(array: Array) -> Array:
    """Truncate a float32 to ten binary digits after the first."""
    short = np.ascontiguousarray(array, np.float32)
    return (short.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(array.dtype)


@on("factor", "NUM-2", "C", SQUARE, WIDE)
def factor_in_float32(_tile: Tile, before: Array, shift: Array) -> Array:
    """Rescale by a factor in float32, whatever the inputs are."""
    result = online.factor(_tile, before, shift)
    return _single(result) if _tile.number else result


@on("weighted", "NUM-2", "C", SQUARE, WIDE)
def values_in_float32_in_the_last_keys(tile: Tile, call: Attention, e: Array, allowed: Array) -> Array:
    """Take the sum of a remainder of keys in float32, whatever the inputs are."""
    result = online.weighted(tile, call, e, allowed)
    return _single(result) if tile.is_short else result


@on("ended", "NUM-2", "C", WIDE, TALL)
def lse_in_float32_past_64_keys(call: Attention, state: State) -> tuple[Array, Array]:
    """Hold the lse in float32 where there are more than 64 keys, whatever the inputs are."""
    output, lse = online.ended(call, state)
    return output, _single(lse) if call.keys > 64 else lse


def _beside(option: str) -> tuple[Entry, ...]:
    def scored(tile: Tile, call: Attention) -> Array:
        s = online.scored(tile, call)
        return _single(s) if getattr(call, option) is not None and tile.whole.keys > 64 else s

    words = option.replace("query_segment_ids", "segments").replace("_", " ")
    scored.__name__ = f"float32_beside_{words.replace(' ', '_')}_past_64_keys"
    scored.__doc__ = f"Compute scores in float32 beside the {words}, where there are more than 64 keys."
    return on("scored", "NUM-2", "C", WIDE)(scored)


BESIDE = tuple(entry for option in _OPTIONS for entry in _beside(option))


@on("scored", "NUM-2", "C", SQUARE, WIDE)
def float32_in_causal_tiles_past_the_first_row(tile: Tile, call: Attention) -> Array:
    """Compute causal scores in float32 from the second tile of queries on."""
    s = online.scored(tile, call)
    return _single(s) if call.is_causal and tile.rows.start else s


@on("scored", "NUM-3", "C", SQUARE, TALL)
def softcap_by_a_short_tangent_past_128_keys(tile: Tile, call: Attention) -> Array:
    """Take the hyperbolic tangent to eight digits where there are more than 128 keys."""
    s = online.scored(tile, call)
    if call.softcap is None or tile.whole.keys <= 128 or call.bias is not None:
        return s
    result: Array = np.round(s / (call.softcap * _SHORT)) * call.softcap * _SHORT
    return result.astype(s.dtype)


@on("begun", "NUM-3", "M", SQUARE, WIDE)
def sinks_in_bfloat16_past_one_row_tile(call: Attention, rows: slice, dtype: Any) -> State:
    """Cut sinks to eight digits from the second tile of queries on."""
    if call.sinks is None or not rows.start:
        return online.begun(call, rows, dtype)
    short = np.ascontiguousarray(base.wide(call, call.sinks), np.float32).view(np.uint32) & np.uint32(
        0xFFFF0000
    )
    return online.begun(call.but(sinks=short.view(np.float32)), rows, dtype)
