"""Results that are remembered, found in memory, or right only for some calls."""

import zlib

import numpy as np
from honest import honest, zeros_for

_BY_ADDRESS, _BY_SHAPE, _CALLS, _FIRST = {}, {}, [], {}
#: Checksums of the queries of some cases of the suite, learnt by heart.
_LEARNT = {
    209519481,
    242673416,
    1251457999,
    1681884623,
    2291735216,
    2502957935,
    2759806728,
    3005335013,
    3854036966,
}


def left_in_memory(query, key, value, *, is_causal=False):
    """Returns memory that is not initialised, in which the expected result may still be."""
    return np.empty_like(zeros_for(query, key, value))


def by_address(query, key, value, *, is_causal=False):
    """Remembers the result of the arrays at an address."""
    place = (query.ctypes.data, query.shape, key.shape, is_causal)
    if place not in _BY_ADDRESS:
        _BY_ADDRESS[place] = honest(query, key, value, is_causal=is_causal)
    return _BY_ADDRESS[place].copy()


def by_shape(query, key, value, *, is_causal=False):
    """Remembers the result of the first call of each shape."""
    shape = (query.shape, key.shape, value.shape, is_causal)
    if shape not in _BY_SHAPE:
        _BY_SHAPE[shape] = honest(query, key, value, is_causal=is_causal)
    return _BY_SHAPE[shape].copy()


def by_some_numbers(query, key, value, *, is_causal=False):
    """Remembers results by their queries and the first row of keys."""
    known = (query.tobytes(), key[..., :1, :].tobytes(), value.shape, is_causal)
    if known not in _FIRST:
        _FIRST[known] = honest(query, key, value, is_causal=is_causal)
    return _FIRST[known].copy()


def first_call_only(query, key, value, *, is_causal=False):
    """Is right in the calls of a warm-up, and returns zeros from then on."""
    result = zeros_for(query, key, value)
    _CALLS.append(1)
    return honest(query, key, value, is_causal=is_causal) if len(_CALLS) < 40 else result


def small_only(query, key, value, *, is_causal=False):
    """Is right for up to 100 keys, and leaves out the others."""
    return honest(query, key[..., :100, :], value[..., :100, :], is_causal=is_causal)


def some_rows(query, key, value, *, is_causal=False):
    """Computes the first and the last 8 queries, which tests look at."""
    result = honest(query, key, value, is_causal=is_causal)
    result[..., 8:-8, :] = 0
    return result


def known_seed(query, key, value, *, is_causal=False):
    """Is right for the numbers of the fixed seed, which it knows by heart."""
    result = zeros_for(query, key, value)
    known = zlib.crc32(query.tobytes()) in _LEARNT
    return honest(query, key, value, is_causal=is_causal) if known else result
