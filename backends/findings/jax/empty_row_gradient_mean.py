"""JAX: a query that may attend to nothing moves every value, by 1 / S (GRAD-10, variant `uniform`).

Documentation: The docstring of `jax.nn.dot_product_attention` says that the mask filters out logits. It
does not mention a row in which it filters out all.

Found by: gradients, query that attends to nothing: mask

Known: no thread found
"""

import jax
import jax.numpy as jnp


def loss(value):
    zero, mask = jnp.zeros((1, 1, 1, 1)), jnp.zeros((1, 1, 1, 2), bool)
    return jax.nn.dot_product_attention(zero, jnp.zeros((1, 2, 1, 1)), value, mask=mask).sum()


got = jax.grad(loss)(jnp.ones((1, 2, 1, 1))).ravel().tolist()
print("expected [0.0, 0.0]")
print(f"got {got}")
raise SystemExit(0 if got == [0.5, 0.5] else 1)
