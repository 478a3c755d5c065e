"""A wrapper in NumPy, as FlashInfer has one: `plan` takes the form of a batch, `run` its arrays.

attnspec check examples/wrapper -k stacks
"""

import numpy as np

#: The number of pages of a part. The parts of a sequence are merged by their lses.
PAGES = 2


class PagedPrefill:
    """Attention of packed queries over pages, which are listed for all sequences in one row."""

    def plan(
        self,
        qo_indptr,
        kv_indptr,
        kv_indices,
        last_page_len,
        page_size,
        *,
        causal=False,
        sm_scale=None,
        logits_soft_cap=None,
        window_left=-1,
    ):
        """List the parts of each sequence: rows of queries, pages, first key, keys and first position."""
        self.options = causal, sm_scale, logits_soft_cap, window_left
        self.parts = []
        for g, last in enumerate(last_page_len.tolist()):
            rows, pages = slice(*qo_indptr[g : g + 2]), kv_indices[slice(*kv_indptr[g : g + 2])]
            keys = max(len(pages) - 1, 0) * page_size + last
            for start in range(0, len(pages), PAGES):
                first = start * page_size
                there = min(keys - first, PAGES * page_size)
                offset = keys - (rows.stop - rows.start)
                self.parts.append((rows, pages[start : start + PAGES], first, there, offset))

    def run(self, q, paged_kv_cache, *, return_lse=False):
        """Compute each part, and merge it with those before. The lse is to base 2, (rows, heads)."""
        causal, scale, cap, left = self.options
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        wide = np.promote_types(q.dtype, np.float32)
        values = paged_kv_cache[1]
        output = np.zeros((*q.shape[:2], values.shape[-1]), wide)
        lse = np.full(q.shape[:2], -np.inf, wide)
        groups = q.shape[1] // values.shape[2]
        for rows, pages, first, there, offset in self.parts:
            k, v = (np.concatenate(x[pages])[:there].astype(wide) for x in paged_kv_cache)
            k, v = (x.repeat(groups, axis=1) for x in (k, v))
            scores = scale * np.einsum("qhd,khd->qhk", q[rows].astype(wide), k)
            scores = scores if cap is None else cap * np.tanh(scores / cap)
            key = first + np.arange(there)
            position = offset + np.arange(len(scores))[:, None]
            allowed = (key <= position) | (not causal)
            allowed &= (key >= position - left) | (left < 0)
            part = state(np.where(allowed[:, None], scores, -np.inf), v)
            output[rows], lse[rows] = merge_state(output[rows], lse[rows], *part)
        return (output.astype(q.dtype), lse) if return_lse else output.astype(q.dtype)


def state(scores, v):
    """Return the output and the lse to base 2 of some keys."""
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    some = np.where(total == 0, 1, total)
    lse = np.where(total == 0, -np.inf, (top + np.log(some)) / np.log(2))
    return np.einsum("qhk,khd->qhd", weights / some, v), lse[..., 0]


def merge_state(v_a, s_a, v_b, s_b):
    """Merge two states."""
    top = np.maximum(s_a, s_b)
    a, b = (np.exp2(s - np.where(top == -np.inf, 0, top)) for s in (s_a, s_b))
    some = np.where(a + b == 0, 1, a + b)
    merged = (v_a * a[..., None] + v_b * b[..., None]) / some[..., None]
    return merged, np.where(top == -np.inf, -np.inf, top + np.log2(some))


def packed_paged_attention(
    query,
    key_pages,
    value_pages,
    *,
    query_starts,
    block_table,
    key_lengths,
    scale=None,
    softcap=None,
    is_causal=False,
    window=None,
    return_lse=False,
):
    """Plan and run a call of the standard."""
    size = key_pages.shape[-2]
    check(query, key_pages, query_starts, block_table, key_lengths)
    left, right = window or (None, None)
    if right is not None and not (right == 0 and is_causal):
        raise NotImplementedError("window_right is 0 with causal, and open without it")
    counts = -(-key_lengths.astype(np.int64) // size)
    wrapper = PagedPrefill()
    wrapper.plan(
        query_starts,
        np.concatenate([[0], np.cumsum(counts)]),
        block_table[np.arange(block_table.shape[1]) < counts[:, None]],
        key_lengths - np.maximum(counts - 1, 0) * size,
        size,
        causal=is_causal,
        sm_scale=scale,
        logits_soft_cap=softcap,
        window_left=-1 if left is None else left,
    )
    pages = tuple(x.swapaxes(1, 2) for x in (key_pages, value_pages))
    output, lse = wrapper.run(query.swapaxes(0, 1), pages, return_lse=True)
    output = output.swapaxes(0, 1)
    return (output, lse.swapaxes(0, 1) * np.log(2).astype(lse.dtype)) if return_lse else output


def check(query, pages, starts, table, lengths):
    rows, size, width = query.shape[-2], pages.shape[-2], table.shape[-1]
    if starts[0] != 0 or (np.diff(starts) < 0).any() or starts[-1] > rows:
        raise ValueError(f"query_starts: expected 0, then numbers that do not decrease, up to {rows}")
    if lengths.size and (lengths.min() < 0 or lengths.max() > width * size):
        raise ValueError(f"key_lengths: expected 0 to {width * size}")
    read = table[np.arange(width) * size < lengths[:, None]]
    if read.size and (read.min() < 0 or read.max() >= len(pages)):
        raise ValueError(f"block_table: expected pages from 0 to {len(pages) - 1}")
