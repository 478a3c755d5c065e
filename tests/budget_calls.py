"""Calls of attention, in which every term of a budget is above 0 somewhere."""

import numpy as np


def random(*shape, seed=0, scale=1.0):
    return scale * np.random.default_rng([len(shape), *shape, seed]).normal(size=shape)


def small(values):
    """Numbers of which some are subnormal in every dtype."""
    values[..., 0] *= 1e-42
    return values


PLAIN = {"query": random(3, 4), "key": random(5, 4), "value": small(random(5, 2))}
#: Calls of attention, in which every term is above 0 somewhere.
CALLS = {
    "plain": PLAIN,
    "deep": {"query": random(1, 33), "key": random(3, 33), "value": random(3, 1), "scale": -0.3},
    "one key": {"query": random(2, 3, scale=1e5), "key": random(1, 3), "value": random(1, 2)},
    "subnormal": {
        "query": np.array([[1e-42], [3e-5]]),
        "key": np.array([[300.0], [1e-42]]),
        "value": random(2, 1),
        "scale": -2.0,
    },
    "cancelling": {
        "query": np.array([[1.0, 1000.0], [1.0, 1000.0]]),
        "key": np.array([[1.0, 0.0], [-999.00001, 1.0]]),
        "value": random(2, 1),
        "mask": np.array([[True, True], [True, False]]),
    },
    "all options": {
        **PLAIN,
        "softcap": 3.0,
        "bias": random(3, 5),
        "mask": random(3, 5) > -0.5,
        "sinks": np.array([0.5]),
        "dropout_mask": random(3, 5, seed=1) > -0.5,
        "dropout_rate": 0.25,
    },
    "causal": {**PLAIN, "is_causal": True, "scale": 1.5},
    "one key after dropout": {
        **PLAIN,
        "is_causal": True,
        "dropout_mask": np.ones((3, 5), bool),
        "dropout_rate": 0.5,
    },
    "far scores": {**PLAIN, "bias": np.where(np.arange(5) < 2, 0.0, -1000.0) + np.zeros((3, 1))},
    "large scores": {**PLAIN, "bias": 20000 + random(3, 5, scale=3.0)},
    "zero": {"query": np.zeros((1, 2)), "key": random(2, 2), "value": np.array([[0.0, 0.0], [0.0, 1.0]])},
}
CALLS["errors beyond the distance"] = {
    "query": np.array([[1e6, 1e6, 0.0], [3e7, -3e7, 1.0]]),
    "key": np.array([[1e6, -1e6, 0.0], [1e6, -1e6 + 900, 0.0], [1e6, 1e6, 0.0], [-7e9, -7e9 - 800, 0]]),
    "value": np.array([[1.0], [2.0], [-3.0], [5.0]]),
    "scale": 3.0,
}
CALLS["cancelling in a softcap"] = {**CALLS["errors beyond the distance"], "softcap": 30.0}
CALLS["underflow in a softcap"] = {**CALLS["subnormal"], "softcap": 1e30}
CALLS["underflow after a softcap"] = {**CALLS["subnormal"], "softcap": 0.5}
CALLS["zero and a softcap"] = {**CALLS["zero"], "softcap": 2.0}
CALLS["scale below the range"] = {
    "query": random(2, 3, scale=1e20),
    "key": random(3, 3, scale=1e18),
    "value": random(3, 1),
    "scale": 1e-40,
}
CALLS["cancelling below"] = {**CALLS["cancelling"], "key": np.array([[1.0, 0.0], [-998.99999, 1.0]])}
