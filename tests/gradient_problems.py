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


def drawn(seed):
    """A call of small arrays with some of the options; in every second one many numbers are equal."""
    random = np.random.default_rng(seed)
    flat = seed % 5 == 4

    def draw(shape):
        return random.normal(size=shape) if seed % 2 else random.integers(-2, 3, size=shape) / 2.0

    def integers(low, high):
        """One for each batch entry, or one for all."""
        return (
            random.integers(low, high, size=batch)
            if random.random() < 0.5
            else int(random.integers(low, high))
        )

    def broadcast():
        """A shape that broadcasts to the scores."""
        shape = [1 if random.random() < 0.35 else size for size in scores]
        return tuple(shape[random.integers(0, len(shape) - 1) if random.random() < 0.3 else 0 :])

    batch = () if flat else tuple(random.choice([1, 2], size=random.integers(0, 3)))
    key_heads, shared = (1, 1) if flat else random.choice([1, 2, 3], size=2)
    queries, keys = random.choice([0, 1, 2, 3, 5], size=2, p=[0.05, 0.15, 0.25, 0.3, 0.25])
    depth, value_depth = random.integers(1, 5, size=2)
    outer, key_outer = ((), ()) if flat else ((*batch, key_heads * shared), (*batch, key_heads))
    scores = (*outer, queries, keys)
    bias = draw(broadcast())
    bias[random.random(bias.shape) < 0.2] = -np.inf
    sinks = draw((key_heads * shared,))
    sinks[random.random(sinks.shape) < 0.3] = -np.inf
    options = [
        {"d_lse": draw((*outer, queries))},
        {"scale": float(random.choice([0, -0.5, 1, 0.3]))},
        {"softcap": float(random.choice([0.5, 1, 3.3]))},
        {"bias": bias},
        {"mask": random.random(broadcast()) < 0.7},
        {"is_causal": True},
        {"query_offset": integers(-2, 4)},
        {"window": tuple(None if random.random() < 0.3 else int(random.integers(0, 3)) for _ in range(2))},
        {"query_lengths": integers(0, queries + 1)},
        {"key_lengths": integers(0, keys + 1)},
        {
            "query_segment_ids": random.integers(0, 2, size=(*batch, queries)),
            "key_segment_ids": random.integers(0, 2, size=(*batch, keys)),
        },
        {"query_positions": random.integers(-1, 4, size=(*batch, queries))},
        {"key_positions": random.integers(-1, 4, size=(*batch, keys))},
        {"sinks": sinks},
        {
            "dropout_mask": random.random(broadcast()) < 0.6,
            "dropout_rate": float(random.choice([0, 0.25, 0.1])),
        },
        {"return_d_scale": True},
    ]
    call = {
        "query": draw((*outer, queries, depth)),
        "key": draw((*key_outer, keys, depth)),
        "value": draw((*key_outer, keys, value_depth)),
        "d_output": draw((*outer, queries, value_depth)),
    }
    for option in options:
        if random.random() < 0.4:
            call |= option
    if "query_positions" in call:
        call.pop("query_offset", None)  # the one excludes the other
    return call
