"""JAX: the lse of attention in half precision is rounded to half precision (NUM-7).

Documentation: The docstring of `jax.nn.dot_product_attention` gives the shape of the residual and not
its dtype.

Found by: numerics, lse is held in float32: 300.0

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

query, key = jnp.full((1, 1, 1, 1), 300.0, jnp.bfloat16), jnp.ones((1, 3, 1, 1), jnp.bfloat16)
_, got = attend(query, key, key, return_residual=True)  # 300 + log(3)
print("expected 301.0986 in float32")
print(f"got {got.item()} in {got.dtype}")
raise SystemExit(0 if got.dtype == "bfloat16" and abs(got.item() - 301.0986) > 0.5 else 1)
