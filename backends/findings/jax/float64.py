"""JAX: float64 is computed in float32 (NUM-2, variant `float32`).

Documentation: The docstring of `jax.nn.dot_product_attention` does not mention it. A comment in the
source says that the softmax is always computed in float32.

Found by: numerics, float64 is computed in float64

Known: https://github.com/jax-ml/jax/pull/21371, where a review comment proposes float64 for inputs in
float64, and the option was left for later
"""

import jax
import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

jax.config.update("jax_enable_x64", True)

query, key = jnp.zeros((1, 1, 1, 1)), jnp.zeros((1, 3, 1, 1))
got = attend(query, key, jnp.array([0.0, 0.0, 1.0]).reshape(1, 3, 1, 1))
print("expected 0.3333333333333333 in float64")
print(f"got {got.item()} in {got.dtype}")
raise SystemExit(0 if got.dtype == "float64" and abs(got.item() - 1 / 3) > 1e-9 else 1)
