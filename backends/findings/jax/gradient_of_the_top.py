"""JAX: compiled without optimization, the gradient of `exp(s - max(s))` is NaN (GRAD-1).

The compiler computes the scores once for the maximum and once more for the comparison with it, with other
roundings. No score equals the maximum, and the derivative of a maximum divides by their number.

Rank: paths
Impact: a softmax written by hand trains eagerly and gives NaN under jit.
Documentation: The docstring of `jax.numpy.max` does not mention its derivative.
Known: https://github.com/jax-ml/jax/pull/2260 names the cause, which it removes from `jax.nn.softmax` only.
https://github.com/jax-ml/jax/issues/40564 reports it for `jnp.maximum` on a GPU.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"

import jax
import jax.numpy as jnp
import numpy as np


def loss(query, key, value, bias):
    scores = query @ jnp.swapaxes(key, -1, -2) * 0.57 + bias
    weights = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True) @ value).sum()


random = np.random.default_rng(0)
shapes = ((2, 4, 5, 3), (2, 4, 6, 3), (2, 4, 6, 3), (4, 1, 6))
arrays = [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in shapes]
got = {
    name: bool(jnp.isfinite(run(*arrays)).all())
    for name, run in (("eager", jax.grad(loss)), ("jit", jax.jit(jax.grad(loss))))
}
print("expected finite gradients, eager and jit")
print(f"got {got}")
raise SystemExit(0 if got == {"eager": True, "jit": False} else 1)
