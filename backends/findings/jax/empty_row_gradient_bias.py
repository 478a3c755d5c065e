"""JAX: a query whose keys all have a bias of minus infinity makes gradients of its head NaN (GRAD-10).

Documentation: The docstring of `jax.nn.dot_product_attention` tells users to pass an additive mask as
the bias. It does not mention a row in which that disallows every key.

Found by: gradients, query that attends to nothing: bias

Known: no thread found
"""

import jax
import jax.numpy as jnp


def loss(value):
    query, key = jnp.zeros((1, 2, 1, 1)), jnp.zeros((1, 2, 1, 1))
    bias = jnp.array([[-jnp.inf, -jnp.inf], [0.0, 0.0]]).reshape(1, 1, 2, 2)
    return jax.nn.dot_product_attention(query, key, value, bias=bias).sum()


got = jax.grad(loss)(jnp.ones((1, 2, 1, 1))).ravel().tolist()
print("expected [0.5, 0.5]")
print(f"got {got}")
raise SystemExit(0 if all(jnp.isnan(x) for x in got) else 1)
