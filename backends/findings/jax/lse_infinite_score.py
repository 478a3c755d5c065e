"""JAX: where a score is plus infinity the output is NaN and the lse plus infinity (NUM-11)."""

import sys

import jax
import jax.numpy as jnp

attend = jax.nn.dot_product_attention

query, key = jnp.full((1, 1, 1, 1), jnp.inf), jnp.ones((1, 3, 1, 1))
output, got = attend(query, key, key, return_residual=True)
print("expected nan for both")
print(f"got {output.item()} and {got.item()}")
sys.exit(0 if jnp.isnan(output).all() and jnp.isinf(got).all() else 1)
