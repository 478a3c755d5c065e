"""JAX: a key disallowed by a bias of -inf whose score is infinite makes the row NaN (MASK-12).

Documentation: The docstring of `jax.nn.dot_product_attention` tells users to pass an additive mask as
the bias. It does not mention infinite scores.

Found by: masking, finite garbage: bias and largest

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

query = jnp.ones((1, 1, 1, 4))
key = jnp.array([1.0, 1.0, 3e38]).reshape(1, 3, 1, 1) * jnp.ones(4)
bias = jnp.array([0.0, 0.0, -jnp.inf]).reshape(1, 1, 1, 3)
got = attend(query, key, jnp.ones((1, 3, 1, 4)), bias=bias).ravel()
print("expected [1.0, 1.0, 1.0, 1.0]")
print(f"got {got.tolist()}")
raise SystemExit(0 if jnp.isnan(got).any() else 1)
