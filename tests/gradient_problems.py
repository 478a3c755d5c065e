"""Calls of `attention_vjp`, and the results of both oracles for a call."""

import numpy as np

from attnspec import OPERATIONS
from attnspec.reference.exact.evaluate import evaluate as exact
from attnspec.reference.rational.evaluate import evaluate as rational


def numbers(found):
    return {name: settled.values for name, settled in found.items()}


def both(call, rule=None, variant=None):
    """The gradients, of which the oracles differ by at most one unit in the last place."""
    one = numbers(exact("attention_vjp", call, variant))
    other = rational("attention_vjp", call, {rule: variant} if rule else None)
    assert tuple(one) == tuple(other) == OPERATIONS["attention_vjp"].wanted(call)
    for name, found in one.items():
        assert found.shape == other[name].shape
        assert found.shape == (() if name == "d_scale" else np.shape(call[name.removeprefix("d_")]))
        assert not (np.signbit(found) & (found == 0)).any()
        assert not (np.signbit(other[name]) & (other[name] == 0)).any()
        np.testing.assert_array_max_ulp(np.nan_to_num(found, nan=7), np.nan_to_num(other[name], nan=7), 1)
    return one


def plain(**options):
    """A call with grouped heads, a cotangent of the lse and sinks."""
    random = np.random.default_rng(11)
    sizes = {"query": (4, 3, 3), "key": (2, 5, 3), "value": (2, 5, 2), "d_output": (4, 3, 2), "d_lse": (4, 3)}
    call = {name: random.normal(size=(2, *size)) for name, size in sizes.items()}
    return call | {"sinks": random.normal(size=4)} | options
