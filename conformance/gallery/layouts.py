"""Wrong about planes and strides: which numbers of an array belong to a batch entry, a head or a row."""

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from attnspec.conformance.gallery.entry import After, Array, alter, base, first, rows, wrong
from attnspec.reference.call import Call
from attnspec.reference.notation import Attention


def _by_program(call: Attention, array: Array) -> Array:
    """Take the plane of the number of batch entry and head in one row, modulo the planes."""
    if array.ndim < 3:
        return array
    planes = array.reshape(-1, *array.shape[-2:])
    heads = call.query.shape[:-2]
    return planes[np.arange(int(np.prod(heads))) % len(planes)].reshape(*heads, *array.shape[-2:])


def _for_each_program(call: Attention, numbers: Any) -> Any:
    """Take the number for each batch entry and head by the number of the program, modulo the entries."""
    array = np.asarray(numbers)
    heads = call.query.shape[:-2]
    index = np.arange(int(np.prod(heads))) % max(1, array.size)
    return numbers if not array.ndim else array.ravel()[index].reshape(*heads, 1, 1)


def _of_the_first(numbers: Any) -> int:
    return int(np.asarray(numbers).ravel()[:1].sum())


def _of_the_last(numbers: Any) -> int:
    return int(np.asarray(numbers).ravel()[-1:].sum())


def _largest(numbers: Any) -> int:
    return int(np.asarray(numbers).max(initial=0))


def _of_columns(array: Array) -> Array:
    """Read an array of three axes and more row by row, if it is stored column by column."""
    dense = array.ndim > 2 and array.flags.f_contiguous and not array.flags.c_contiguous
    return array.ravel(order="K").reshape(array.shape) if dense else array


ENTRIES = rows(
    ("column_major_taken_for_row_major", "wide", "NUM-8", "H",
     lambda call, array: base.wide(call, _of_columns(array)),
     "Read an array that is dense in any order of its axes as if it were stored row by row."),
    ("columns_of_a_mask_taken_for_rows", "enter", "NUM-8", "H",
     lambda call: base.enter(alter(call, mask=_of_columns)),
     "Read a mask that is dense in any order of its axes as if it were stored row by row."),
    ("columns_of_a_bias_taken_for_rows", "attend", "NUM-8", "H",
     lambda call: base.attend(alter(call, bias=_of_columns)),
     "Read a bias that is dense in any order of its axes as if it were stored row by row."),
    ("columns_of_a_cotangent_taken_for_rows", "convert_cotangents", "NUM-8", "H",
     lambda call: base.convert_cotangents(alter(call, d_output=_of_columns)),
     "Read a cotangent that is dense in any order of its axes as if it were stored row by row."),
    ("columns_of_pages_taken_for_rows", "read_pages", "NUM-8", "H",
     lambda call, pages, *others: base.read_pages(call, _of_columns(pages), *others),
     "Read pages that are dense in any order of their axes as if they were stored row by row."),
    ("window_by_the_offset_of_the_first_entry", "by_window", "MASK-8", "E",
     lambda call: base.by_window(call.but(query_offset=_of_the_first(call.query_offset))),
     "Let the windows of all batch entries have the offset of the first."),
    ("causal_by_the_offset_of_the_first_entry", "by_causality", "MASK-7", "A",
     lambda call: base.by_causality(call.but(query_offset=_of_the_first(call.query_offset))),
     "Let the causal masks of all batch entries have the offset of the first."),
    ("offset_of_the_last_batch_entry", "position", "MASK-7", "A",
     lambda call: base.position(call.but(query_offset=_of_the_last(call.query_offset))),
     "Let all batch entries have the offset of the last."),
    ("offset_by_the_program", "position", "MASK-7", "A",
     lambda call: call.i + _for_each_program(call, call.query_offset),
     "Read the offset of the number of batch entry and head in one row, modulo the batch entries."),
    ("key_length_by_the_program", "by_key_lengths", "MASK-9", "H",
     lambda call: True if call.key_lengths is None else call.j < _for_each_program(call, call.key_lengths),
     "Read the key length of the number of batch entry and head in one row, modulo the batch entries."),
    ("key_length_of_the_last_batch_entry", "by_key_lengths", "MASK-9", "H",
     lambda call: base.by_key_lengths(alter(call, key_lengths=_of_the_last)),
     "Let all batch entries have the key length of the last."),
    ("largest_key_length_for_all", "by_key_lengths", "MASK-9", "H",
     lambda call: base.by_key_lengths(alter(call, key_lengths=_largest)),
     "Cut the keys to the largest of the lengths, and mask no more."),
    ("query_length_of_the_first_batch_entry", "by_query_lengths", "MASK-10", "H",
     lambda call: base.by_query_lengths(alter(call, query_lengths=_of_the_first)),
     "Let all batch entries have the query length of the first."),
    ("largest_query_length_for_all", "by_query_lengths", "MASK-10", "H",
     lambda call: base.by_query_lengths(alter(call, query_lengths=_largest)),
     "Cut the queries to the largest of the lengths."),
    ("mask_by_the_program", "by_mask", "MASK-1", "H",
     lambda call: base.by_mask(alter(call, mask=lambda mask: _by_program(call, mask))),
     "Read the plane of a mask by the number of batch entry and head in one row, modulo the planes."),
    ("bias_by_the_program", "attend", "SCORE-4", "H",
     lambda call: base.attend(alter(call, bias=lambda bias: _by_program(call, bias))),
     "Read the plane of a bias by the number of batch entry and head in one row, modulo the planes."),
    ("bias_of_the_first_batch_entry", "attend", "SCORE-4", "H",
     lambda call: base.attend(alter(call, bias=lambda bias: first(bias, -4))),
     "Let all batch entries have the bias of the first."),
    ("dropout_by_the_program", "drop", "DROP-1", "H",
     lambda call, p: base.drop(alter(call, dropout_mask=lambda mask: _by_program(call, mask)), p),
     "Read the plane of a dropout mask by the number of batch entry and head, modulo the planes."),
    ("dropout_of_the_first_batch_entry", "drop", "DROP-1", "H",
     lambda call, p: base.drop(alter(call, dropout_mask=lambda mask: first(mask, -4)), p),
     "Let all batch entries have the dropout mask of the first."),
    ("dropout_of_the_first_query", "drop", "DROP-1", "H",
     lambda call, p: base.drop(alter(call, dropout_mask=lambda mask: first(mask, -2)), p),
     "Let all queries have the dropout mask of the first."),
    ("read_in_the_order_of_memory", "wide", "NUM-8", "H",
     lambda call, array: base.wide(call, array.ravel(order="K").reshape(array.shape)),
     "Read a transposed array as if it were not.", "pytorch/pytorch#112577"),
    ("mask_read_in_the_order_of_memory", "enter", "NUM-8", "H",
     lambda call: base.enter(alter(call, mask=lambda mask: mask.ravel(order="K").reshape(mask.shape))),
     "Read a transposed mask as if it were not.", "pytorch/pytorch#163597"),
    ("query_length_by_the_program", "by_query_lengths", "MASK-10", "H",
     lambda call: True if call.query_lengths is None
         else call.i < _for_each_program(call, call.query_lengths),
     "Read the query length of the number of batch entry and head in one row, modulo the batch entries."),
    ("sink_of_the_first_head", "softmax_of", "SOFT-5", "M",
     lambda call, s, allowed: base.softmax_of(alter(call,
         sinks=lambda sinks: np.repeat(sinks[:1], sinks.size)), s, allowed),
     "Let all heads have the sink of the first."),
    ("values_of_the_first_batch_entry", "enter", "SHAPE-1", "H",
     After(lambda call, _call: call.but(value=np.broadcast_to(call.value[:1], call.value.shape))
         if call.value.ndim > 3 else call),
     "Let every batch entry read the values of the first."),
)  # fmt: skip


@wrong("position", "MASK-7", "A")
def largest_offset_for_all(call: Attention) -> Any:
    """Let all batch entries have the largest of the offsets."""
    offset = np.asarray(call.query_offset)
    return base.position(call.but(query_offset=int(offset.max()) if offset.size else 0))


@wrong("by_segments", "MASK-11", "H")
def segments_of_the_first_batch_entry(call: Attention) -> Any:
    """Let all batch entries have the segments of the first."""
    flat = {
        name: lambda ids: ids.reshape(-1, ids.shape[-1])[0] if ids.size else ids
        for name in ("query_segment_ids", "key_segment_ids")
    }
    return base.by_segments(alter(call, **flat))


@wrong("by_segments", "MASK-11", "H")
def key_segments_of_the_first_batch_entry(call: Attention) -> Any:
    """Let all batch entries have the key segments of the first."""
    rows = alter(call, key_segment_ids=lambda ids: ids.reshape(-1, ids.shape[-1])[:1] if ids.size else ids)
    return base.by_segments(rows)


@wrong("wide", "NUM-8", "H", "pytorch/pytorch#181133")
def last_axis_taken_to_be_dense(call: Call, array: Array) -> Any:
    """Read features one after the other, whatever lies between them."""
    apart = array.size > 0 and array.strides[-1] > array.itemsize
    dense = as_strided(array, strides=(*array.strides[:-1], array.itemsize)) if apart else array
    return base.wide(call, dense)


@wrong("wide", "NUM-8", "H")
def beginning_of_a_view_forgotten(call: Call, array: Array) -> Any:
    """Read a view from where its buffer begins."""
    whole = array.base if isinstance(array.base, np.ndarray) else None
    if whole is None or not array.size or whole.ndim != array.ndim or min(array.strides) <= 0:
        return base.wide(call, array)
    return base.wide(call, as_strided(whole, array.shape, array.strides))


@wrong("wide", "NUM-8", "H", "Dao-AILab/flash-attention#818")
def rows_taken_to_be_dense(call: Call, array: Array) -> Any:
    """Read rows one after the other, whatever lies between them."""
    row = array.shape[-1] * array.itemsize
    apart = array.size > 0 and array.strides[-1] == array.itemsize and array.strides[-2] > row
    dense = as_strided(array, strides=(*array.strides[:-2], row, array.itemsize)) if apart else array
    return base.wide(call, dense)
