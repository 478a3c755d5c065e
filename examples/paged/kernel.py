"""A paged kernel in NumPy: decoding over pages of a cache, page by page, with a running maximum.

attnspec check examples/paged -k paging
"""

import numpy as np


def paged_attention(
    query,
    key_pages,
    value_pages,
    *,
    block_table,
    key_lengths,
    scale=None,
    is_causal=False,
    query_offset=None,
    return_lse=False,
):
    """Attend over the pages that a table lists. Only the entries below the length are read."""
    *batch, heads, queries, depth = query.shape
    pages, shared, size, _ = key_pages.shape
    lengths = np.broadcast_to(key_lengths, batch)
    check(block_table, lengths, pages, size)
    group = np.arange(heads) // (heads // shared)
    scale = depth**-0.5 if scale is None else scale
    wide = np.promote_types(query.dtype, np.float32)
    output = np.zeros((*batch, heads, queries, value_pages.shape[-1]), wide)
    lse = np.full((*batch, heads, queries), -np.inf, wide)
    for entry in np.ndindex(*batch):
        length = int(lengths[entry])
        offset = length - queries if query_offset is None else np.broadcast_to(query_offset, batch)[entry]
        positions = np.arange(queries)[:, None] + offset
        top, total = np.full((heads, queries, 1), -np.inf, wide), np.zeros((heads, queries, 1), wide)
        for t, page in enumerate(block_table[entry][: -(-length // size)]):
            there = slice(0, min(size, length - t * size))
            k, v = (x[page][group, there].astype(wide) for x in (key_pages, value_pages))
            scores = scale * (query[entry].astype(wide) @ k.swapaxes(1, 2))
            if is_causal:
                scores[:, t * size + np.arange(k.shape[1]) > positions] = -np.inf
            higher = np.maximum(top, scores.max(axis=-1, keepdims=True))
            shift = np.where(higher == -np.inf, 0, higher)
            weights, kept = np.exp(scores - shift), np.exp(top - shift)
            total = kept * total + weights.sum(axis=-1, keepdims=True)
            output[entry] = kept * output[entry] + weights @ v
            top = higher
        some = np.where(total == 0, 1, total)
        output[entry] /= some
        lse[entry] = np.where(total == 0, -np.inf, top + np.log(some))[..., 0]
    output = output.astype(query.dtype)
    return (output, lse) if return_lse else output


def check(block_table, lengths, pages, size):
    if lengths.size and (lengths.min() < 0 or lengths.max() > block_table.shape[-1] * size):
        raise ValueError(f"key_lengths: expected 0 to {block_table.shape[-1] * size}")
    read = block_table[np.arange(block_table.shape[-1]) * size < lengths[..., None]]
    if read.size and (read.min() < 0 or read.max() >= pages):
        raise ValueError(f"block_table: expected pages from 0 to {pages - 1}")


def attention(query, key, value, *, scale=None, is_causal=False):
    """Attend within each entry of a batch, whose keys are one page."""
    table, lengths = np.arange(len(query))[:, None], key.shape[2]
    options = {"scale": scale, "is_causal": is_causal, "query_offset": 0}
    return paged_attention(query, key, value, block_table=table, key_lengths=lengths, **options)
