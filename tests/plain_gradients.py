"""The gradients of attention in plain NumPy, in the arithmetic of variants: no budgets, no dialects."""

from types import SimpleNamespace

import numpy as np

#: What each variant is called here. `empty` is what a row without an allowed key has.
STANDARD = {"capped_bias": False, "added": False, "bottom_right": False, "tiled": False, "empty": ""}


def plain_gradients(**flags):
    """Make a function of gradients that computes in float64 and rounds the results once.

    With `added`, minus infinity is added like any other number, and a cap turns it into a finite score.
    """
    how = SimpleNamespace(**STANDARD | flags)

    def attention_vjp(
        query,
        key,
        value,
        d_output,
        *,
        d_lse=None,
        scale=None,
        softcap=None,
        bias=None,
        mask=None,
        is_causal=False,
        query_offset=0,
        window=None,
        query_lengths=None,
        key_lengths=None,
        query_segment_ids=None,
        key_segment_ids=None,
        query_positions=None,
        key_positions=None,
        sinks=None,
    ):
        options = SimpleNamespace(**locals())
        q, k, v, g = (x.astype(np.float64) for x in (query, key, value, d_output))
        h = np.zeros(g.shape[:-1]) if d_lse is None else d_lse.astype(np.float64)
        if query.ndim == 2:
            q, k, v, g, h = (x[None] for x in (q, k, v, g, h))
        heads, shared = q.shape[-3], k.shape[-3]
        read = np.arange(heads) % shared if how.tiled else np.arange(heads) // (heads // shared)
        k, v = k[..., read, :, :], v[..., read, :, :]
        h = h[..., None]
        factor = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
        shape = (*q.shape[:-1], k.shape[-2])  # (*B, Hq, L, S)
        s, slope, seen = _scores(
            factor * (q @ np.swapaxes(k, -1, -2)), _seen(options, how, shape), options, how
        )
        p, share, nothing = _weights(s, sinks)
        delta = (p * (g @ np.swapaxes(v, -1, -2))).sum(axis=-1, keepdims=True)
        t = p * (g @ np.swapaxes(v, -1, -2) - delta + h)
        u = t * slope
        if how.empty == "uniform":
            p = np.where(nothing & ~_past(options, shape), 1 / max(shape[-1], 1), p)
        d_q, d_k, d_v = factor * (u @ k), factor * (np.swapaxes(u, -1, -2) @ q), np.swapaxes(p, -1, -2) @ g
        d_b, d_s = u if how.capped_bias else t, share * (h - delta)
        found = [d_q, _of_read(d_k, read, shared), _of_read(d_v, read, shared)]
        found = [d.reshape(x.shape).astype(x.dtype) for d, x in zip(found, (query, key, value), strict=True)]
        found += [] if bias is None else [_summed(d_b, bias.shape).astype(bias.dtype)]
        found += [] if sinks is None else [_summed(d_s, (heads, 1, 1))[:, 0, 0].astype(sinks.dtype)]
        return tuple(found)

    return attention_vjp


def _of_entry(number):
    return np.asarray(number).reshape(np.shape(number) + (1,) * 3 * (np.ndim(number) > 0))


def _past(options, shape):
    """The pairs of the queries past their length."""
    lengths = shape[-2] if options.query_lengths is None else options.query_lengths
    return np.broadcast_to(np.arange(shape[-2])[:, None] >= _of_entry(lengths), shape)


def _seen(options, how, shape):
    """The pairs that every argument but the bias allows."""
    i, j = np.arange(shape[-2])[:, None], np.arange(shape[-1])
    offset = _of_entry(options.query_offset)
    moved = how.bottom_right and np.ndim(options.query_offset) == 0 and options.query_offset == 0
    at, to = j, i + offset  # the positions of keys and queries
    if options.key_positions is not None:
        at = options.key_positions[..., None, None, :]
    if options.query_positions is not None:
        to = options.query_positions[..., None, :, None]
    last = i + (shape[-1] - shape[-2]) if moved and options.query_positions is None else to
    seen = ~_past(options, shape)
    if options.is_causal:
        seen = seen & (at <= last)
    left, right = options.window or (None, None)
    if left is not None:
        seen = seen & (at - to >= -left)
    if right is not None:
        seen = seen & (at - to <= right)
    if options.key_positions is not None:
        seen = seen & (at >= 0)
    if options.key_lengths is not None:
        seen = seen & (j < _of_entry(options.key_lengths))
    if options.query_segment_ids is not None:
        same = options.query_segment_ids[..., :, None] == options.key_segment_ids[..., None, :]
        seen = seen & same[..., None, :, :]
    return seen if options.mask is None else seen & options.mask


def _scores(x, seen, options, how):
    """The scores, the slope of the cap, and the pairs with a weight."""
    bias, softcap, slope = options.bias, options.softcap, 1.0
    b = np.broadcast_to(0.0 if bias is None else bias.astype(np.float64), x.shape)
    inside = how.capped_bias and softcap is not None
    if not (how.added and inside):
        seen = seen & (b > -np.inf)
        b = np.where(np.isneginf(b), 0, b)
    s = x + b if inside else x
    if softcap is not None:
        y = np.tanh(s / softcap)
        s, slope = softcap * y, 1 - y**2
    return np.where(seen, s if inside else s + b, -np.inf), slope, seen


def _weights(s, sinks):
    """The weights, the share of the sink, and where there is nothing to divide by."""
    sink = np.full((s.shape[-3], 1, 1), -np.inf)
    if sinks is not None:
        sink = sinks.astype(np.float64)[:, None, None]
    top = np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), sink)
    top = np.where(np.isneginf(top), 0, top)
    e, of_sink = np.exp(s - top), np.exp(sink - top)
    total = e.sum(axis=-1, keepdims=True) + of_sink
    nothing, total = total == 0, np.where(total == 0, 1, total)
    return e / total, of_sink / total, nothing


def _of_read(array, read, shared):
    found = np.zeros((*array.shape[:-3], shared, *array.shape[-2:]))
    for head, other in enumerate(read):
        found[..., other, :, :] += array[..., head, :, :]
    return found


def _summed(array, shape):
    array = array.sum(axis=tuple(range(array.ndim - len(shape)))) if array.ndim > len(shape) else array
    over = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return array.sum(axis=over, keepdims=True).reshape(shape)
