"""JAX, jax.nn.dot_product_attention: the lse has no gradient: a loss on it moves neither queries nor keys
(GRAD-6, variant `ignored`).

Rank: numbers
Impact: a loss on the lse, as in ring attention or a z-loss, trains nothing, without an error.
Documentation: The docstring of `jax.nn.dot_product_attention` does not say that the residual has no
gradient.
"""

import jax
import jax.numpy as jnp


def loss(query):
    key = jnp.array([1.0, 3.0]).reshape(1, 2, 1, 1)
    return jax.nn.dot_product_attention(query, key, key, return_residual=True)[1].sum()


got = jax.grad(loss)(jnp.zeros((1, 1, 1, 1))).item()
print("expected 2.0")
print(f"got {got}")
raise SystemExit(0 if got == 0 else 1)
