"""Functions of users with one fault each, as `module:function`. Other wrong ones are in the gallery."""

import ctypes
import sys
import time
from itertools import count

import numpy as np

from attnspec import reference

_CALLS = count()


def right(query, key, value, **options):
    return reference.attention(query, key, value, dtype=query.dtype, **options)


def whole_matrix(query, key, value, *, scale=None, mask=None, is_causal=False, bias=None):
    """Worked example 004's softmax: divided by the sum over the whole matrix."""
    s = reference.scores(query, key, scale=scale, bias=bias, dtype=query.dtype)
    allowed = reference.allowed_keys(s.shape, mask=mask, is_causal=is_causal, bias=bias)
    top = np.where(allowed, s, -np.inf).max(axis=(-2, -1), keepdims=True, initial=-np.inf)
    exponentials = np.where(allowed, np.exp(s - np.where(top == -np.inf, 0, top)), 0)
    return exponentials / exponentials.sum(axis=(-2, -1), keepdims=True) @ value


def no_scale(query, key, value, *, scale=None):
    return right(query, key, value, scale=1.0 if scale is None else scale)


def inverted_mask(query, key, value, *, mask=None):
    return right(query, key, value, mask=None if mask is None else ~mask)


def half(query, key, value):
    return reference.attention(query, key, value, dtype=np.float16).astype(query.dtype)


def lists(query, key, value):
    return reference.attention(query, key, value).tolist()


def nothing(query, key, value):
    return None


def nan_everywhere(query, key, value):
    return np.full((*query.shape[:-1], value.shape[-1]), np.nan, query.dtype)


def raising(query, key, value):
    raise RuntimeError("the kernel did not launch")


def raising_once(query, key, value, _calls=[]):  # noqa: B006 - it remembers, which is what is wrong with it
    _calls.append(1)
    if len(_calls) == 2:
        raise RuntimeError("not this time")
    return right(query, key, value)


def more_queries_refused(query, key, value, *, mask=None, is_causal=False, scale=None):
    if query.shape[-2] > key.shape[-2]:
        raise ValueError("seqlen_q must not be larger than seqlen_k")
    return right(query, key, value, mask=mask, is_causal=is_causal, scale=scale)


def exiting(query, key, value):
    sys.exit(3)


def crashes_on_one_shape(query, key, value, *, mask=None, is_causal=False, scale=None):
    if key.shape[-2] == 17:
        ctypes.string_at(0)
    return right(query, key, value, mask=mask, is_causal=is_causal, scale=scale)


def terse(query, key, value, *, window=None):
    """Refuses what it should, and says nothing."""
    try:
        return right(query, key, value, window=window)
    except ValueError:
        raise ValueError("no") from None


def unrepeatable(query, key, value):
    output = right(query, key, value)
    noise = np.random.default_rng().integers(0, 2, output.shape).astype(query.dtype)
    return output + noise * np.spacing(np.abs(output))


def noisy(query, key, value, *, mask=None, is_causal=False, scale=None):
    output = right(query, key, value, mask=mask, is_causal=is_causal, scale=scale)
    random = np.random.default_rng(next(_CALLS))  # other noise in each call, the same in each run
    if random.random() < 0.6:
        output = output + (1e-3 * random.normal(size=output.shape)).astype(output.dtype)
    return output


def batch_dependent(query, key, value):
    output = right(query, key, value)
    return output + np.spacing(np.abs(output)) if query.ndim == 4 and len(query) > 1 else output


def misnamed(query, keys, values):
    return None


def demanding(query, key, value, dropout):
    return None


def __getattr__(name):
    if name == "slow":
        time.sleep(60)
    raise AttributeError(name)
