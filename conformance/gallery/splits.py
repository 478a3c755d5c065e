"""Wrong about a running maximum, and about splits of the keys and how they are merged."""

from collections.abc import Container, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from attnspec.conformance.gallery.entry import Array, base, family
from attnspec.reference.call import Step
from attnspec.reference.notation import Attention

Named = tuple[str, str, Step]
SIZES = (16, 32, 64, 128)
_LATER = range(1, 2**30)


def parts(call: Attention, size: int) -> Iterator[tuple[Array, Array, Array]]:
    """Return maximum, sum and summed values of each split. The maximum of no keys is minus infinity."""
    s, allowed = base.score(call), base.allowed_pairs(call)
    value = base.repeat_heads(call, call.value)
    kept = np.broadcast_to(base.drop(call, np.ones_like(s)), s.shape)
    for start in range(0, call.keys, size):
        part = slice(start, start + size)
        masked = np.where(allowed[..., part], s[..., part], -np.inf)
        top = masked.max(axis=-1, keepdims=True)
        e = np.exp(masked - np.where(top == -np.inf, 0, top))
        yield top, e.sum(axis=-1, keepdims=True), (e * kept[..., part]) @ value[..., part, :]


def is_plain(call: Attention) -> bool:
    """Whether there are keys, and all numbers in the arrays are finite."""
    arrays = (call.query, call.key, call.value)
    return call.keys > 0 and all(bool(np.isfinite(array).all()) for array in arrays)


def _sinks(size: int) -> Named:
    def total(call: Attention, e: Array, top: Array) -> Any:
        result = base.total(call, e, top)
        more = max(-(-call.keys // size) - 1, 0)
        return result if call.sinks is None else result + more * np.exp(call.sink - top)

    return f"sink_in_each_split_of_{size}", f"Add the sink once for each split of {size} keys.", total


def _finish(call: Attention, size: int) -> tuple[list[Array], list[Array]]:
    """Return output and lse of each split, with the sink as one more split."""
    outputs, lses = [], []
    for top, count, values in parts(call, size):
        outputs.append(values / np.where(count == 0, 1, count))
        lses.append(np.where(top == -np.inf, 0, top) + np.log(count))
    if call.sinks is not None and outputs:
        outputs.append(np.zeros_like(outputs[0]))
        lses.append(np.broadcast_to(call.sink, lses[0].shape))
    return outputs, lses


def _average(size: int) -> Named:
    def attend(call: Attention) -> Any:
        if not is_plain(call):
            return base.attend(call)
        _, lse, p = base.attend(call)
        outputs, lses = _finish(call, size)
        shares = [np.where(each == -np.inf, 0.0, 1.0) for each in lses]
        count = np.sum(shares, axis=0)
        output = np.sum([x * share for x, share in zip(outputs, shares, strict=True)], axis=0)
        return (output / np.where(count == 0, 1, count)).astype(p.dtype), lse, p

    return f"splits_of_{size}_averaged", f"Take the mean of the outputs of splits of {size} keys.", attend


def _to_base_two(count: int, *, returned: bool = False) -> Named:
    def attend(call: Attention) -> Any:
        if not is_plain(call):
            return base.attend(call)
        outputs, lses = _finish(call, -(-call.keys // count))
        top = np.max(lses, axis=0)
        top = np.where(top == -np.inf, 0, top)
        shares = [np.exp2(each - top) for each in lses]
        total = np.sum(shares, axis=0)
        output = np.sum([x * share for x, share in zip(outputs, shares, strict=True)], axis=0)
        _, lse, p = base.attend(call)
        lse = (top + np.log(total))[..., 0].astype(lse.dtype) if returned else lse
        return (output / np.where(total == 0, 1, total)).astype(p.dtype), lse, p

    text = f"Take the lses of {count} splits for logarithms to base 2 when they are merged"
    name = f"{count}_splits_merged_to_base_two"
    if returned:
        return f"{name}_with_their_lse", f"{text}, also in the lse that is returned.", attend
    return name, f"{text}.", attend


def _relative_to_the_first(size: int) -> Named:
    def attend(call: Attention) -> Any:
        if not is_plain(call):
            return base.attend(call)
        outputs, lses = _finish(call, size)
        top = np.where(lses[0] == -np.inf, 0, lses[0])
        shares = [np.exp(each - top) for each in lses]
        total = np.sum(shares, axis=0)
        output = np.sum([x * share for x, share in zip(outputs, shares, strict=True)], axis=0)
        dtype = call.query.dtype
        lse = (np.log(total) + top)[..., 0].astype(dtype)
        return (output / np.where(total == 0, 1, total)).astype(dtype), lse, base.attend(call)[2]

    text = f"Merge splits of {size} keys relative to the lse of the first, and not to the largest."
    return f"splits_of_{size}_relative_to_the_first", text, attend


def _drop_last(size: int) -> Named:
    def attend(call: Attention) -> Any:
        """Merge all splits except the last, if there are several."""
        if call.keys <= size:
            return base.attend(call)
        kept = base.allowed_pairs(call) & (call.j < (call.keys - 1) // size * size)
        p, lse = base.softmax_of(call, base.score(call), kept)
        return base.weighted_sum(call, base.drop(call, p), kept), lse, base.drop(call, p)

    return f"last_split_of_{size}_dropped", f"Merge all splits of {size} keys but the last.", attend


def _nothing_in_the_first(size: int) -> Named:
    def normalised(call: Attention, e: Array, total: Array) -> Any:
        nothing = ~base.allowed_pairs(call)[..., :size].any(axis=-1, keepdims=True) & (call.keys > 0)
        return np.where(nothing & (call.sinks is None), np.nan, base.normalise(call, e, total))

    text = f"Take minus infinity from minus infinity where the first tile of {size} keys is masked."
    return f"nothing_in_the_first_tile_of_{size}_is_nan", text, normalised


def _nothing_in_a_tile(size: int) -> Named:
    def normalised(call: Attention, e: Array, total: Array) -> Any:
        seen = base.allowed_pairs(call)
        starts = range(0, call.keys, size)
        none = [~seen[..., at : at + size].any(axis=-1, keepdims=True) for at in starts]
        nothing = np.logical_or.reduce(none) if none else np.zeros((), dtype=bool)
        return np.where(nothing, np.nan, base.normalise(call, e, total))

    text = f"Divide by 0 in a split of {size} keys that is masked, and merge what comes of it."
    return f"nothing_in_a_split_of_{size}_is_nan", text, normalised


def _last_maximum(size: int) -> Named:
    def lse(call: Attention, top: Array, total: Array) -> Any:
        s = np.where(base.allowed_pairs(call), base.score(call), -np.inf)
        last = s[..., (max(call.keys, 1) - 1) // size * size :].max(axis=-1, keepdims=True, initial=-np.inf)
        late = np.where(last == -np.inf, top, last)
        return base.lse(call, late if call.keys > size else top, total)

    name = f"lse_by_the_maximum_of_the_last_tile_of_{size}"
    return name, f"Add the maximum of the last tile of {size} keys to the logarithm of the sum.", lse


SINKS = family(_sinks, "total", "SOFT-5", "M", *SIZES)
AVERAGED = family(_average, "attend", "NUM-3", "I", *SIZES)
BASE_TWO = family(_to_base_two, "attend", "NUM-3", "I", 2, 4)
LSE_BASE_TWO = family(partial(_to_base_two, returned=True), "attend", "NUM-3", "I", 2, 4)
RELATIVE = family(_relative_to_the_first, "attend", "SOFT-5", "M", *SIZES)
LAST_DROPPED = family(_drop_last, "attend", "SOFT-3", "G", *SIZES)
NOTHING_FIRST = family(_nothing_in_the_first, "normalise", "MASK-6", "B", *SIZES)
NOTHING = family(_nothing_in_a_tile, "normalise", "MASK-6", "B", *SIZES)
LAST_MAXIMUM = family(_last_maximum, "lse", "SOFT-6", "G", 8, 16)


def _sink(call: Attention) -> tuple[Array, Array]:
    shape = (*call.shape[:-1], 1)
    if call.sinks is None:
        return np.full(shape, -np.inf), np.zeros(shape)
    top = np.broadcast_to(call.sink, shape)
    return top, np.where(top == -np.inf, 0.0, 1.0)


def _divide(call: Attention, top: Array, total: Array, summed: Array) -> Any:
    """Divide, and compute the logarithm. The weights are right."""
    dtype = call.query.dtype
    lse = (np.where(top == -np.inf, 0, top) + np.log(total))[..., 0]
    output = summed / np.where(total == 0, 1, total)
    return output.astype(dtype), lse.astype(dtype), base.attend(call)[2]


def _later(size: int) -> str:
    return f"in a later tile of {size} keys" if size > 1 else "at a later key"


def _forget_rescaling(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return _running(call, parts(call, size), kept=_LATER, rescales_values=False)

    text = f"Rescale neither sum nor values where the maximum rises {_later(size)}."
    return f"nothing_rescaled_past_tiles_of_{size}", text, attend


def _forget_to_rescale_values(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return _running(call, parts(call, size), rescales_values=False)

    name = f"values_not_rescaled_past_tiles_of_{size}"
    return name, f"Rescale only the sum where the maximum rises {_later(size)}.", attend


def _forget_to_rescale_sum(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return _running(call, parts(call, size), kept=_LATER)

    name = f"sum_not_rescaled_past_tiles_of_{size}"
    return name, f"Rescale only the values where the maximum rises {_later(size)}.", attend


def _rescaled_lazily(size: int) -> Named:
    def attend(call: Attention) -> Any:
        return _running(call, parts(call, size), slack=8.0)

    name = f"small_rise_past_tiles_of_{size}_forgotten"
    sentence = f"Rescale where the maximum rises by more than 8 in a tile of {size} keys, and move it anyhow."
    return name, sentence, attend


def _sum_kept_in_the_rest(size: int) -> Named:
    def attend(call: Attention) -> Any:
        rest = call.keys // size if call.keys > size else call.keys
        return _running(call, parts(call, size), kept=range(rest, call.keys))

    text = f"Rescale only the values in the keys after the last whole tile of {size}."
    return f"sum_kept_after_whole_tiles_of_{size}", text, attend


def _sum_kept_key_by_key(size: int) -> Named:
    def attend(call: Attention) -> Any:
        whole = call.keys // size
        tiles = chain(islice(parts(call, size), whole), islice(parts(call, 1), whole * size, None))
        return _running(call, tiles, kept=range(max(whole, 1), call.keys))

    text = f"Take the keys after the last whole tile of {size} one by one, and rescale only the values there."
    return f"sum_kept_key_by_key_after_whole_tiles_of_{size}", text, attend


def _by_a_reference(size: int, *, forgets_sum: bool = False, adds_maximum: bool = False) -> Step:
    """Make the step that moves the reference of a row where its maximum rises by more than 8 alone."""

    def attend(call: Attention) -> Any:
        if not is_plain(call):
            return base.attend(call)
        fixed, total = _sink(call)
        most, summed = fixed, np.zeros_like(fixed)
        for number, (top, count, values) in enumerate(parts(call, size)):
            new = np.where((top > fixed + 8.0) | (number == 0), np.maximum(fixed, top), fixed)
            shift = np.where(new == -np.inf, 0, new)
            old, here = np.exp(fixed - shift), np.exp(top - shift)
            total = total * (1.0 if forgets_sum and number else old) + count * here
            summed, fixed, most = summed * old + values * here, new, np.maximum(most, top)
        output, lse, p = _divide(call, fixed, total, summed)
        more = np.where(most == -np.inf, 0, most - np.where(fixed == -np.inf, 0, fixed))[..., 0]
        return output, lse + more.astype(lse.dtype) if adds_maximum else lse, p

    return attend


def _sum_kept_at_a_large_rise(size: int) -> Named:
    text = f"Rescale where the maximum rises by more than 8 in a tile of {size} keys, but not the sum."
    return f"sum_kept_at_a_large_rise_past_tiles_of_{size}", text, _by_a_reference(size, forgets_sum=True)


def _maximum_beside_a_reference(size: int) -> Named:
    text = f"Add the maximum to the logarithm of a sum that does not follow it past tiles of {size} keys."
    name = f"lse_by_a_maximum_ahead_of_the_sum_past_tiles_of_{size}"
    return name, text, _by_a_reference(size, adds_maximum=True)


def _empty_split_counted(count: int) -> Named:
    def attend(call: Attention) -> Any:
        if not is_plain(call) or call.sinks is not None:
            return base.attend(call)
        output, lse, p = base.attend(call)
        lses = _finish(call, -(-call.keys // count))[1]
        unseen = count - len(lses) + sum(np.where(each == -np.inf, 1.0, 0.0) for each in lses)
        joined = np.logaddexp(lse, np.where(unseen == 0, -np.inf, np.log(np.maximum(unseen, 1)))[..., 0])
        joined = np.where(lse == -np.inf, lse, joined)
        share = np.exp(np.where(lse == -np.inf, 0, lse - joined))[..., None]
        return (output * share).astype(output.dtype), joined.astype(lse.dtype), p

    text = f"Give a split of {count} without keys an lse of 0 in the merge."
    return f"empty_split_of_{count}_with_an_lse_of_0", text, attend


def _running(
    call: Attention,
    tiles: Iterable[tuple[Array, Array, Array]],
    *,
    kept: Container[int] = (),
    rescales_values: bool = True,
    slack: float = 0.0,
) -> Any:
    """Process tiles with a running maximum, but keep the sum in some where it rises.

    A rise after the first tile does not always rescale.
    """
    if not is_plain(call):
        return base.attend(call)
    top, total = _sink(call)
    summed: Any = 0.0
    for number, (most, count, values) in enumerate(tiles):
        new = np.maximum(top, most)
        shift = np.where(new == -np.inf, 0, new)
        right = np.exp(top - shift)
        old = np.where((slack > 0) & (shift - top <= slack), 1.0, right) if number else right
        here = np.exp(most - shift)
        total = total * (1.0 if number in kept else old) + count * here
        summed = summed * (old if rescales_values else 1.0) + values * here
        top = new
    return _divide(call, top, total, summed)


NOT_RESCALED = family(_forget_rescaling, "attend", "NUM-3", "G", 1, *SIZES)
VALUES_NOT_RESCALED = family(_forget_to_rescale_values, "attend", "NUM-3", "G", 1, *SIZES)
SUM_NOT_RESCALED = family(_forget_to_rescale_sum, "attend", "NUM-3", "G", 1, *SIZES)
RESCALED_LAZILY = family(_rescaled_lazily, "attend", "NUM-3", "G", *SIZES)
SUM_KEPT_IN_THE_REST = family(_sum_kept_in_the_rest, "attend", "NUM-3", "G", *SIZES)
SUM_KEPT_BY_KEY = family(_sum_kept_key_by_key, "attend", "NUM-3", "G", *SIZES)
SUM_KEPT = family(_sum_kept_at_a_large_rise, "attend", "NUM-3", "G", *SIZES)
MAXIMUM_AHEAD = family(_maximum_beside_a_reference, "attend", "NUM-3", "G", *SIZES)
EMPTY_COUNTED = family(_empty_split_counted, "attend", "NUM-3", "I", 2, 4, 8)
