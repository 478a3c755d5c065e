"""Attention in plain NumPy, with the arithmetic of a variant: nothing here knows of budgets or dialects."""

import numpy as np


def plain(*, working=None, bottom_right=False, filled=False, capped_bias=False):
    """Make a function of attention.

    `working` maps the dtype of the inputs to that of every intermediate result. With `filled`, the lowest
    finite number replaces what a mask disallows.
    """

    def attention(
        query,
        key,
        value,
        *,
        softcap=None,
        bias=None,
        mask=None,
        is_causal=False,
        scale=None,
        sinks=None,
        return_lse=False,
    ):
        dtype = np.dtype((working or wide)(query.dtype))
        # The numbers of a short dtype are exact in float32, so that each operation is rounded once.
        calculated = np.dtype(np.float32) if dtype.itemsize == 2 else dtype

        def rounded(array):
            return np.asarray(array, calculated).astype(dtype).astype(calculated)

        with np.errstate(all="ignore"):
            q, k, v = (x.astype(calculated) for x in (query, key, value))
            if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
                k, v = (np.repeat(x, q.shape[-3] // k.shape[-3], axis=-3) for x in (k, v))
            factor = rounded(1 / np.sqrt(q.shape[-1]) if scale is None else scale)
            s = rounded(rounded(q @ np.swapaxes(k, -1, -2)) * factor)  # (*B, Hq, L, S)
            added = None if bias is None else rounded(bias.astype(np.float64))
            allowed = np.ones(s.shape, bool) if added is None else np.broadcast_to(added > -np.inf, s.shape)
            if capped_bias and added is not None:
                s, added = rounded(s + np.where(added > -np.inf, added, 0)), None
            if softcap is not None:
                s = rounded(
                    rounded(np.tanh(rounded(s / calculated.type(softcap)))) * calculated.type(softcap)
                )
            if added is not None:
                s = rounded(s + added)
            queries, keys = s.shape[-2:]
            corner = keys - queries if bottom_right else 0
            seen = np.arange(keys) <= np.arange(queries)[:, None] + (corner if is_causal else keys)
            seen = np.broadcast_to(seen if mask is None else seen & mask, s.shape)
            low = rounded(np.finfo(np.float16).min if dtype.itemsize == 2 else np.finfo(dtype).min)
            s = np.where(seen, np.where(allowed, s, -np.inf), low if filled else -np.inf)
            top = s.max(axis=-1, keepdims=True, initial=-np.inf)
            if sinks is not None:
                sink = sinks.astype(calculated)[:, None, None]
                top = np.maximum(top, sink)
            top = np.where(np.isneginf(top), 0, top)
            e = rounded(np.exp(rounded(s - top)))
            total = rounded(e.sum(axis=-1, keepdims=True))
            if sinks is not None:
                total = rounded(total + rounded(np.exp(rounded(sink - top))))
            output = rounded(rounded(e / np.where(total == 0, 1, total)) @ v).astype(query.dtype)
            lse = rounded(top + rounded(np.log(total)))[..., 0]
        return (output, lse.astype(wide(query.dtype))) if return_lse else output

    return attention


def wide(dtype):
    """The working precision of the standard."""
    return np.float64 if dtype == np.float64 else np.float32


def stored(dtype):
    """Everything is rounded to the dtype of the inputs."""
    return dtype
