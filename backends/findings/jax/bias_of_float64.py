"""JAX: a row whose bias in float64 lies below the numbers of float32 is NaN (MASK-5).

float64 is computed in float32, where the bias becomes minus infinity.

Documentation: The page of `jax.nn.dot_product_attention` does not mention the dtype that it computes in.

Found by: masking, rows of the lowest bias: all keys

Known: no thread found
"""

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
zero = jnp.zeros((1, 2, 1, 1), "float64")
bias = jnp.full((1, 1, 2, 2), -1e300)
got = jax.nn.dot_product_attention(zero, zero, zero + 5, bias=bias).ravel()
print("expected [5.0, 5.0]")
print(f"got {got.tolist()}")
raise SystemExit(0 if jnp.isnan(got).all() else 1)
