"""JAX: float64 is computed in float32 (NUM-2, variant `float32`)."""

import sys

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
attend = jax.nn.dot_product_attention

query, key = jnp.zeros((1, 1, 1, 1)), jnp.zeros((1, 3, 1, 1))
got = attend(query, key, jnp.array([0.0, 0.0, 1.0]).reshape(1, 3, 1, 1))
print("expected 0.3333333333333333 in float64")
print(f"got {got.item()} in {got.dtype}")
sys.exit(0 if got.dtype == "float64" and abs(got.item() - 1 / 3) > 1e-9 else 1)
