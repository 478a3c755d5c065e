"""Wrong about what must be rejected or have an effect, earlier calls, and the arrays of the caller."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from attnspec.backends import DTYPES
from attnspec.conformance.gallery.entry import Array, alter, base, rows, wrong
from attnspec.reference.call import Mask
from attnspec.reference.errors import ArgumentError, need
from attnspec.reference.notation import Attention

_ARRAYS = ("query", "key", "value")
_PER_ENTRY = ("query_offset", "query_lengths", "key_lengths")


def _cast(call: Attention) -> Any:
    real = {name: getattr(call, name) for name in _ARRAYS if getattr(call, name).dtype.name in DTYPES}
    return base.check_dtypes(call.but(**{name: x.astype(call.query.dtype) for name, x in real.items()}))


ENTRIES = rows(
    ("positions_and_an_offset_accepted", "check_query_and_key_positions", "ERR-18", "K",
     lambda call: base.check_query_and_key_positions(call.but(query_offset=0)).but(
         query_offset=call.query_offset),
     "Ignore an offset beside the positions of queries."),
    ("imaginary_part_dropped", "check_dtypes", "ERR-2", "L",
     lambda call: base.check_dtypes(call.but(**{name: getattr(call, name).real for name in _ARRAYS})),
     "Take the real part of complex numbers."),
    ("any_scale_taken", "check_scale", "ERR-6", "K", lambda call: call,
     "Multiply by whatever is given."),
    ("softcap_without_effect", "cap", "ERR-3", "F", lambda _call, x: x,
     "Accept a softcap and forget it.", "sgl-project/sgl-kernel-xpu#491"),
    ("key_lengths_without_effect", "by_key_lengths", "ERR-3", "R", lambda _call: True,
     "Accept lengths and forget them.", "jax-ml/jax#23349"),
    ("dropout_without_effect", "drop", "ERR-3", "J", lambda _call, p: p,
     "Accept what to drop and forget it.", "pytorch/pytorch#184126"),
    ("bias_without_effect", "add_bias", "ERR-3", "L", lambda _call, x: x,
     "Accept a bias and forget what is finite of it."),
    ("bias_and_its_mask_without_effect", "attend", "ERR-3", "L",
     lambda call: base.attend(call.but(bias=None)),
     "Accept a bias and forget it, minus infinity included."),
    ("causal_flag_without_effect", "by_causality", "ERR-3", "A", lambda _call: True,
     "Accept the causal flag and forget it."),
    ("window_without_effect", "by_window", "ERR-3", "E", lambda _call: True,
     "Accept a window and forget it."),
    ("segments_without_effect", "by_segments", "ERR-3", "R", lambda _call: True,
     "Accept segments and forget them."),
    ("causal_dropped_beside_sinks", "by_causality", "ERR-3", "A",
     lambda call: True if call.sinks is not None else base.by_causality(call),
     "Forget the causal mask on the path for sinks."),
    ("softcap_dropped_beside_sinks", "cap", "ERR-3", "F",
     lambda call, x: base.cap(call if call.sinks is None else call.but(softcap=None), x),
     "Forget the softcap on the path for sinks."),
    ("bias_rounded_to_the_query", "add_bias", "ERR-14", "L",
     lambda call, x: base.add_bias(alter(call, bias=lambda bias: bias.astype(call.storage)), x),
     "Cast a bias to the dtype of the query."),
    ("several_batch_axes_refused", "check_axes", "SHAPE-1", "H",
     lambda call: _asking(call, "query", call.query.ndim <= 4, "four axes at most", "SHAPE-1"),
     "Ask for one batch axis at most."),
    ("no_keys_refused", "check_axes", "SHAPE-7", "O",
     lambda call: _asking(call, "key", call.key.shape[-2] > 0, "a position or more", "SHAPE-7"),
     "Ask for a key or more."),
    ("no_queries_refused", "check_axes", "SHAPE-7", "O",
     lambda call: _asking(call, "query", call.query.shape[-2] > 0, "a position or more", "SHAPE-7"),
     "Ask for a query or more."),
    ("sinks_dropped_beside_lengths", "softmax_of", "ERR-3", "M",
     lambda call, s, allowed: base.softmax_of(call.but(sinks=None)
         if call.key_lengths is not None else call, s, allowed),
     "Forget the sinks on the path for lengths of keys.", "kekzl/imp#1345"),
    ("bias_dropped_in_shared_heads", "add_bias", "ERR-3", "L",
     lambda call, x: base.add_bias(call
         if call.key.shape[-3] == call.query.shape[-3] else call.but(bias=None), x),
     "Forget the bias where key heads are shared."),
    ("mixed_dtypes_cast", "check_dtypes", "ERR-1", "L", _cast,
     "Cast keys and values to the dtype of the query."),
    ("mixed_dtypes_cast_past_16_keys", "check_dtypes", "ERR-1", "L",
     lambda call: _cast(call) if call.key.shape[-2] >= 16 else base.check_dtypes(call),
     "Refuse other dtypes for few keys, and cast them on the path for 16 keys and more."),
    ("mask_of_an_earlier_call", "allowed_pairs", "ERR-13", "T",
     lambda call: call.steps.memory.setdefault("pairs", {}).setdefault(call.shape, base.allowed_pairs(call)),
     "Keep the allowed keys of the first call of a shape.", "flashinfer-ai/flashinfer#1028"),
    ("window_of_minus_one_is_open", "check_window", "ERR-7", "E",
     lambda call: base.check_window(call.but(window=tuple(None if bound == -1
         else bound for bound in call.window)
         if isinstance(call.window, tuple) and -1 in call.window else call.window)),
     "Take -1 for an open side, as other libraries write it."),
    ("window_of_one_number", "check_window", "ERR-7", "E",
     lambda call: base.check_window(call.but(window=(call.window, call.window))
         if isinstance(call.window, int) else call),
     "Take a number for both sides."),
    ("window_without_its_tail", "check_window", "ERR-7", "E",
     lambda call: base.check_window(call.but(window=call.window[:2])
         if isinstance(call.window, tuple) else call),
     "Take the first two of more bounds."),
    ("ids_of_one_side_for_both", "check_segments", "ERR-10", "R",
     lambda call: base.check_segments(call
         if call.query_segment_ids is not None and call.key_segment_ids is not None
         else call.but(query_segment_ids=None, key_segment_ids=None)),
     "Pass over ids that are given for one side."),
    ("one_sink_for_all_heads", "check_sinks", "ERR-11", "M",
     lambda call: base.check_sinks(call.but(sinks=np.repeat(call.sinks, (call.query.shape[-3:-2] or (1,))[0]))
         if call.sinks is not None and call.sinks.shape == (1,) else call),
     "Repeat a single sink for every head."),
    ("sinks_left_over", "check_sinks", "ERR-11", "M",
     lambda call: base.check_sinks(call.but(sinks=call.sinks[: (call.query.shape[-3:-2] or (1,))[0]])
         if call.sinks is not None and call.sinks.ndim == 1 else call),
     "Read as many sinks as there are heads."),
    ("more_queries_than_keys_refused", "check_axes", "SHAPE-5", "U",
     lambda call: _asking(call, "key", call.key.shape[-2] >= call.query.shape[-2],
         "as many positions as query", "SHAPE-5"),
     "Ask for as many keys as queries, or more."),
    ("other_numbers_of_keys_refused", "check_axes", "SHAPE-5", "U",
     lambda call: _asking(call, "key", call.key.shape[-2] == call.query.shape[-2],
         "as many positions as query", "SHAPE-5"),
     "Ask for as many keys as queries."),
    ("values_of_another_depth_refused", "check_axes", "SHAPE-3", "P",
     lambda call: _asking(call, "value", call.value.shape[-1] == call.query.shape[-1],
         "the depth of query", "SHAPE-3"),
     "Ask for values as deep as the queries."),
)  # fmt: skip


@wrong("check_dtypes", "ERR-2", "L")
def integers_taken_for_numbers(call: Attention) -> Any:
    """Compute integers and booleans in float32."""
    whole = {name: getattr(call, name) for name in _ARRAYS if getattr(call, name).dtype.kind in "iub"}
    return base.check_dtypes(call.but(**{name: x.astype(np.float32) for name, x in whole.items()}))


@wrong("check_masks", "ERR-4", "R")
def numbers_taken_for_a_mask(call: Attention) -> Any:
    """Take any number but 0 for True."""
    masks = {
        name: getattr(call, name).astype(bool)
        for name in ("mask", "dropout_mask")
        if getattr(call, name) is not None
    }
    return base.check_masks(call.but(**masks))


@wrong("check_axes", "ERR-5", "O")
def depth_of_zero_computed(call: Attention) -> Any:
    """Take no features for one that is 0."""
    none = [name for name in _ARRAYS if getattr(call, name).ndim > 1 and getattr(call, name).shape[-1] == 0]
    zeros = {name: np.zeros((*getattr(call, name).shape[:-1], 1), call.query.dtype) for name in none}
    return base.check_axes(call.but(**zeros))


@wrong("check_ranges", "ERR-19", "V")
def lengths_past_the_keys_in_memory(call: Attention) -> Any:
    """Attend to as many keys as the length says, past the end of the array too, where its memory goes on."""
    most = int(np.max(call.key_lengths, initial=0)) if call.key_lengths is not None else 0
    behind = getattr(call.key.base, "size", 0) >= 2 * call.key.size > 0
    if most <= call.keys or not behind or call.mask is not None or call.bias is not None:
        return base.check_ranges(call)
    longer = {
        name: as_strided(x, (*x.shape[:-2], most, x.shape[-1]), x.strides)
        for name, x in (("key", call.key), ("value", call.value))
    }
    return call.but(**longer)


@wrong("check_integers", "ERR-8", "U")
def fractions_cut(call: Attention) -> Any:
    """Cut offsets and lengths to integers."""
    whole = {
        name: np.asarray(getattr(call, name)).astype(np.int64)
        for name in _PER_ENTRY
        if getattr(call, name) is not None
    }
    return base.check_integers(call.but(**whole))


@wrong("check_integers", "ERR-8", "H")
def one_length_for_all_entries(call: Attention) -> Any:
    """Repeat an array of one for all batch entries."""
    single = {name: np.asarray(getattr(call, name)) for name in _PER_ENTRY if getattr(call, name) is not None}
    return base.check_integers(call.but(**{name: x[0] for name, x in single.items() if x.shape == (1,)}))


@wrong("check_ranges", "ERR-9", "U")
def lengths_clipped(call: Attention) -> Any:
    """Take a length past the end for the whole, and one below 0 for none."""
    for name, most in (("query_lengths", call.queries), ("key_lengths", call.keys)):
        if getattr(call, name) is not None:
            call = call.but(**{name: np.clip(getattr(call, name), 0, most)})
    return call


@wrong("check_ranges", "MASK-9", "U")
def key_lengths_past_the_axis_begin_again(call: Attention) -> Any:
    """Take what remains of a length past the keys, or below 0, after whole numbers of keys."""
    if call.key_lengths is None:
        return call
    return call.but(key_lengths=np.mod(call.key_lengths, call.keys + 1))


@wrong("check_segments", "ERR-10", "H")
def ids_for_all_entries(call: Attention) -> Any:
    """Let all batch entries have the same ids where the batch axis is missing."""
    flat = {
        name: getattr(call, name)
        for name in ("query_segment_ids", "key_segment_ids")
        if getattr(call, name) is not None
    }
    batch = call.query.shape[:-3]
    repeated = {name: np.broadcast_to(x, (*batch, *x.shape)) for name, x in flat.items() if x.ndim == 1}
    return base.check_segments(call.but(**repeated))


@wrong("check_arguments", "ERR-12", "U")
def errors_without_words(call: Attention) -> Any:
    """Say no more than that something is wrong."""
    try:
        return base.check_arguments(call)
    except ArgumentError:
        raise ArgumentError("invalid argument") from None


@wrong("check_masks", "ERR-15", "R")
def mask_cut_to_the_scores(call: Attention) -> Any:
    """Read as much of a mask as there are queries and keys."""
    masks = {
        name: getattr(call, name)[..., : call.queries, : call.keys]
        for name in ("mask", "dropout_mask")
        if getattr(call, name) is not None and getattr(call, name).ndim > 1
    }
    return base.check_masks(call.but(**masks))


@wrong("check_arguments", "ERR-17", "O")
def no_heads_are_one(call: Attention) -> Any:
    """Compute one head of zeros where there is none."""
    if call.query.ndim > 2 and call.query.shape[-3] == 0 == call.key.shape[-3]:
        one = {
            name: np.zeros((*x.shape[:-3], 1, *x.shape[-2:]), x.dtype) for name, x in _arrays(call).items()
        }
        call = call.but(**one)
    return base.check_arguments(call)


def _arrays(call: Attention) -> dict[str, Array]:
    return {name: getattr(call, name) for name in _ARRAYS}


@wrong("factor", "ERR-13", "T", "flashinfer-ai/flashinfer#4014")
def scale_of_an_earlier_call(call: Attention) -> Any:
    """Keep the scale of the first call of a shape and dtype."""
    kept = call.steps.memory.setdefault("scale", {})
    return kept.setdefault((call.shape, call.storage.name), base.factor(call))


@wrong("by_causality", "ERR-13", "T", "ml-explore/mlx#2053")
def causal_flag_of_an_earlier_call(call: Attention) -> Any:
    """Leave the causal flag out of what a compiled kernel is kept by."""
    kept = call.steps.memory.setdefault("causal", {})
    key = (call.shape, call.storage.name, call.mask is None, call.bias is None, call.window, call.scale)
    return base.by_causality(call.but(is_causal=kept.setdefault(key, call.is_causal)))


@wrong("add_bias", "ERR-14", "L", "pytorch/pytorch#191612")
def bits_of_the_bias_reread(call: Attention, x: Array) -> Any:
    """Read a bias of a longer dtype as if it were of the query's."""

    def reread(bias: Array) -> Array:
        if bias.dtype.itemsize <= call.storage.itemsize:
            return bias
        return np.frombuffer(bias.tobytes(), call.storage)[: bias.size].reshape(bias.shape)

    return base.add_bias(alter(call, bias=reread), x)


@wrong("add_bias", "ERR-14", "L")
def short_bias_reread_past_16_keys(call: Attention, x: Array) -> Any:
    """Beside float64, read a bias of a shorter dtype as if it were float64, from 16 keys on."""

    def reread(bias: Array) -> Array:
        if call.storage != np.float64 or bias.dtype == np.float64 or bias.shape[-1] < 16:
            return bias
        return np.resize(np.frombuffer(bias.tobytes(), np.float64), bias.shape)

    return base.add_bias(alter(call, bias=reread), x)


@wrong("softmax_of", "ERR-14", "L")
def sinks_rounded_to_the_query(call: Attention, s: Array, allowed: Mask) -> Any:
    """Cast sinks to the dtype of the query."""
    return base.softmax_of(alter(call, sinks=lambda sinks: sinks.astype(call.storage)), s, allowed)


@wrong("enter", "NUM-4", "L")
def scores_added_into_the_bias(call: Attention) -> Any:
    """Take a bias of the scores' shape and dtype for the buffer that scores are added into."""
    before = base.enter(call.but(bias=None if call.bias is None else call.bias.copy()))
    bias = call.bias
    if bias is not None and bias.size and bias.shape == call.shape and bias.dtype == call.query.dtype:
        bias += bias.dtype.type(1)
    return before


@wrong("enter", "NUM-4", "R")
def masks_joined_in_place(call: Attention) -> Any:
    """Write the causal mask into a mask of the scores' shape."""
    mask = call.mask
    if mask is not None and mask.shape == call.shape and call.is_causal:
        mask &= base.by_causality(base.enter(call))
    return base.enter(call)


@wrong("enter", "NUM-4", "H")
def keys_scaled_in_place(call: Attention) -> Any:
    """Write the scaled keys over the keys."""
    before = base.enter(call.but(key=call.key.copy()))
    if call.key.flags.writeable and np.isfinite(call.key).all():
        call.key[...] *= call.key.dtype.type(base.factor(call))
    return before


@wrong("enter", "NUM-4", "G")
def values_past_the_length_cleared_in_place(call: Attention) -> Any:
    """Write 0 over the values past a key length, to keep what is there out of the sum."""
    before = base.enter(call.but(value=call.value.copy()))
    if call.key_lengths is not None and call.value.ndim > 2:
        past = ~np.asarray(base.by_key_lengths(before))  # (*B, 1, 1, S) or (S,)
        past = past[..., 0, :] if past.ndim > 1 else past
        np.copyto(call.value, 0, where=past[..., None])
    return before


@wrong("check_heads", "HEAD-1", "D")
def shared_heads_refused(call: Attention) -> Any:
    """Ask for as many key heads as query heads, or for one."""
    if call.query.ndim > 2:
        need(
            "key",
            call.key.shape[-3] in (1, call.query.shape[-3]),
            "one head or all",
            call.key.shape,
            "HEAD-1",
        )
    return base.check_heads(call)


@wrong("check_masks", "MASK-1", "H")
def mask_of_few_axes_refused(call: Attention) -> Any:
    """Ask for a mask with all axes of the scores."""
    if call.mask is not None:
        need("mask", call.mask.ndim == len(call.shape), "all axes of the scores", call.mask.shape, "MASK-1")
    return base.check_masks(call)


@wrong("check_bias", "SCORE-4", "H")
def bias_of_few_axes_refused(call: Attention) -> Any:
    """Ask for a bias with all axes of the scores."""
    if call.bias is not None:
        need("bias", call.bias.ndim == len(call.shape), "all axes of the scores", call.bias.shape, "SCORE-4")
    return base.check_bias(call)


@wrong("check_integers", "MASK-7", "U")
def negative_offset_refused(call: Attention) -> Any:
    """Ask for an offset from 0 on."""
    need("query_offset", np.all(np.asarray(call.query_offset) >= 0), "0 or more", call.query_offset, "MASK-7")
    return base.check_integers(call)


def _asking(call: Attention, name: str, good: bool, expected: str, rule: str) -> Any:  # noqa: FBT001 - as `need`
    """Refuse a call because of the shape of an array, or continue like the reference."""
    need(name, good, expected, getattr(call, name).shape, rule)
    return base.check_axes(call)
