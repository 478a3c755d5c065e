"""JAX: a row whose bias is -inf everywhere is NaN (MASK-2, variant `added`).

Documentation: The docstring of `jax.nn.dot_product_attention` tells users to pass an additive mask as
the bias. It does not mention a row in which that disallows every key.

Found by: masking, empty row: bias and first

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

zero, value = jnp.zeros((1, 2, 1, 1)), jnp.array([5.0, 7.0]).reshape(1, 2, 1, 1)
got = attend(zero, zero, value, bias=jnp.full((1, 1, 2, 2), -jnp.inf)).ravel()
print("expected [0.0, 0.0]")
print(f"got {got.tolist()}")
raise SystemExit(0 if jnp.isnan(got).all() else 1)
