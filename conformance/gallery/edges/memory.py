"""Wrong about memory that calls keep or share: buffers, caches, scratch memory, races."""

import threading
from typing import Any

import numpy as np

from attnspec.conformance.gallery.bases.online import SQUARE, TALL, WIDE, Tile
from attnspec.conformance.gallery.edges.entries import around, at
from attnspec.conformance.gallery.entry import Array, base
from attnspec.reference.call import Step
from attnspec.reference.notation import Attention


@around("ERR-13", "T", SQUARE, WIDE)
def output_buffer_written_again(attend: Step, call: Attention) -> Any:
    """Return a thousand numbers or more in a buffer that the next call of the shape writes again."""
    output, lse, p = attend(call)
    if output.size < 1000:
        return output, lse, p
    kept = call.steps.memory.setdefault((output.shape, output.dtype.name), np.empty_like(output))
    kept[...] = output
    return kept, lse, p


@around("ERR-13", "T", WIDE, TALL)
def mask_by_its_identity(attend: Step, call: Attention) -> Any:
    """Keep the tiles of a mask of a thousand numbers or more by the address of its first."""
    if call.mask is None or call.mask.size < 1000:
        return attend(call)
    key = (call.mask.__array_interface__["data"][0], call.mask.shape)
    kept = call.steps.memory.setdefault(key, np.array(call.mask))
    return attend(call.but(mask=kept))


@around("ERR-13", "T", SQUARE)
def keys_by_their_identity(attend: Step, call: Attention) -> Any:
    """Keep the transposed keys, past 64 of them, by the address of the first."""
    if call.keys <= 64:
        return attend(call)
    key = (call.key.__array_interface__["data"][0], call.key.shape, call.key.dtype.name)
    return attend(call.but(key=call.steps.memory.setdefault(key, np.array(call.key))))


@around("ERR-13", "T", SQUARE, TALL)
def padding_of_an_earlier_call(attend: Step, call: Attention) -> Any:
    """Leave in the padding of a buffer of values what an earlier, longer call wrote, and sum one of it."""
    kept = call.steps.memory
    batch = (*call.value.shape[:-2], call.value.shape[-1])
    old = kept.get(batch)
    kept[batch] = np.array(call.value)
    if old is None or old.shape[-2] <= call.keys or call.keys <= 32 or not call.keys % 32:
        return attend(call)
    output, lse, p = attend(call)
    return output + 2.0**-6 * np.repeat(old[..., call.keys, None, :], _group(call), axis=-3), lse, p


def _group(call: Attention) -> int:
    return int(call.query.shape[-3] // call.value.shape[-3])


@at("check_arguments", "ERR-13", "T", 1)
def causal_flag_of_a_refused_call(_count: int, call: Attention) -> Any:
    """Note the causal flag before the checks, and take the note of a call that was refused for the next."""
    kept = call.steps.memory
    causal = kept.pop("refused", None)
    if isinstance(call.is_causal, bool | np.bool_):
        kept["refused"] = bool(call.is_causal)
    result = base.check_arguments(call)
    kept.pop("refused", None)
    return result if causal is None else result.but(is_causal=causal)


@at("check_arguments", "ERR-13", "T", 1)
def scale_of_a_refused_call(_count: int, call: Attention) -> Any:
    """Keep the scale of a call that was refused for the next one that gives none."""
    kept = call.steps.memory
    try:
        result = base.check_arguments(call)
    except Exception:
        if isinstance(call.scale, float):
            kept["scale"] = call.scale
        raise
    scale = kept.pop("scale", None)
    return result if scale is None or result.scale is not None else result.but(scale=scale)


@at("attend", "ERR-13", "T", 100)
def tile_missing_once_in_some_calls(count: int, call: Attention) -> Any:
    """Miss the second tile of keys once in {} calls: its load is not waited for."""
    kept = call.steps.memory
    kept["calls"] = kept.get("calls", 0) + 1
    if kept["calls"] % count or call.keys <= 32:
        return SQUARE.attend(call)

    def without_the_second(loop: Any, call: Attention, rows: slice) -> list[slice]:
        tiles = SQUARE.key_tiles(loop, call, rows)
        return [tiles[0], *tiles[2:]]

    return SQUARE.with_step("key_tiles", without_the_second).attend(call)


def _pause() -> None:
    """Let other threads run."""
    threading.Event().wait(0.0005)


def _through(memory: dict[Any, Any], place: str, array: Array) -> Any:
    """Write an array into a buffer for all threads, and read it again a moment later."""
    key = (place, array.shape, array.dtype.name)
    kept = memory.setdefault(key, np.empty_like(array))
    kept[...] = array
    if threading.active_count() > 1:
        _pause()
    return kept.copy()


@at("attend", "ERR-13", "T", 1)
def sums_in_scratch_of_all_threads(_count: int, call: Attention) -> Any:
    """Keep what has been summed in a buffer that all threads share, between tiles of 32 keys."""

    def rescaled(tile: Tile, summed: Array, less: Array) -> Array:
        result = SQUARE.rescaled(tile, summed, less)
        return _through(call.steps.memory, "summed", result) if tile.number else result

    return SQUARE.with_step("rescaled", rescaled).attend(call)


@at("attend", "ERR-13", "T", 1)
def scores_in_scratch_of_all_threads(_count: int, call: Attention) -> Any:
    """Keep the scores of a tile in a buffer that all threads share, past 64 keys."""

    def scored(tile: Tile, own: Attention) -> Array:
        result = WIDE.scored(tile, own)
        return _through(call.steps.memory, "scores", result) if call.keys > 64 else result

    return WIDE.with_step("scored", scored).attend(call)


@at("attend", "ERR-13", "T", 1)
def exponentials_in_scratch_of_all_threads(_count: int, call: Attention) -> Any:
    """Compute the exponentials of a tile in a buffer of their shape that all threads share, past 64 keys."""

    def exponentials(_tile: Tile, s: Array, shift: Array) -> Array:
        kept: Array = call.steps.memory.setdefault(("exponentials", s.shape, s.dtype.name), np.empty_like(s))
        np.subtract(s, shift, out=kept)
        if threading.active_count() > 1:
            _pause()  # without it, whether another thread is in its call depends on the load
        return np.exp(kept, out=kept)

    return WIDE.with_step("exponentials", exponentials).attend(call) if call.keys > 64 else WIDE.attend(call)


@at("attend", "ERR-13", "T", 1)
def options_in_a_place_of_all_threads(_count: int, call: Attention) -> Any:
    """Keep scale and causal flag of a call of several tiles where another thread writes its own."""
    if call.keys <= 64:
        return TALL.attend(call)
    kept = call.steps.memory
    kept["options"] = {"scale": call.scale, "is_causal": call.is_causal}
    if threading.active_count() > 1:
        _pause()
    return TALL.attend(call.but(**kept["options"]))
