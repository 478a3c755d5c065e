"""An extend kernel in NumPy, as SGLang has one: chunks of prompts after prefixes that are in pages already.

attnspec check examples/extend -k stacks
"""

import numpy as np


def extend_attention(
    q_extend,
    k_buffer,
    v_buffer,
    qo_indptr,
    block_table,
    seq_lens,
    sm_scale=None,
    logit_cap=0.0,
    is_causal=True,  # noqa: FBT002  # as SGLang has it
    sliding_window_size=-1,
    sinks=None,
):
    """Attend to the prefix of each sequence, and then to its new tokens, with a running maximum.

    Queries are (rows, heads, features) and pages (pages, positions, heads, features).
    """
    size, shared = k_buffer.shape[1:3]
    check(q_extend, k_buffer, qo_indptr, block_table, seq_lens)
    rows, heads, depth = q_extend.shape
    scale = depth**-0.5 if sm_scale is None else sm_scale
    wide = np.promote_types(q_extend.dtype, np.float32)
    output = np.zeros((rows, heads, v_buffer.shape[-1]), wide)
    for g, length in enumerate(seq_lens.tolist()):
        first, last = qo_indptr[g : g + 2].tolist()
        q = q_extend[first:last].astype(wide).swapaxes(0, 1)
        places = np.arange(length)
        slots = (block_table[g][places // size], places % size)
        k, v = (x[slots].astype(wide).repeat(heads // shared, axis=1) for x in (k_buffer, v_buffer))
        prefix = length - (last - first)
        position = prefix + np.arange(last - first)[:, None]
        top, total, mixed = np.full((*q.shape[:2], 1), -np.inf, wide), 0.0, 0.0
        for part in (places[: max(prefix, 0)], places[max(prefix, 0) :]):
            scores = scale * (q @ k[part].transpose(1, 2, 0))
            if logit_cap:
                scores = logit_cap * np.tanh(scores / logit_cap)
            if is_causal and len(part) and part[-1] >= prefix:  # the prefix is before every query
                scores[:, part > position] = -np.inf
            if sliding_window_size >= 0:
                scores[:, part < position - sliding_window_size] = -np.inf
            higher = np.maximum(top, scores.max(axis=-1, keepdims=True, initial=-np.inf))
            shift = np.where(higher == -np.inf, 0, higher)
            weights, kept = np.exp(scores - shift), np.exp(top - shift)
            total = kept * total + weights.sum(axis=-1, keepdims=True)
            mixed = kept * mixed + weights @ v[part].swapaxes(0, 1)
            top = higher
        if sinks is not None:
            sink = sinks.astype(wide)[:, None, None]
            higher = np.maximum(top, sink)
            total, mixed = (x * np.exp(top - higher) for x in (total, mixed))
            total = total + np.exp(sink - higher)
        output[first:last] = (mixed / np.where(total == 0, 1, total)).swapaxes(0, 1)
    return output.astype(q_extend.dtype)


def check(query, pages, starts, table, lengths):
    if starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] > len(query):
        raise ValueError(f"qo_indptr: expected 0, then numbers that do not decrease, up to {len(query)}")
    size, width = pages.shape[1], table.shape[-1]
    if lengths.size and (lengths.min() < 0 or lengths.max() > width * size):
        raise ValueError(f"seq_lens: expected 0 to {width * size}")
    read = table[np.arange(width) * size < lengths[:, None]]
    if read.size and (read.min() < 0 or read.max() >= len(pages)):
        raise ValueError(f"block_table: expected pages from 0 to {len(pages) - 1}")
