"""JAX: integers are accepted, and weights are truncated to integers (ERR-2).

Documentation: The docstring of `jax.nn.dot_product_attention` does not say which dtypes are accepted.

Found by: errors, not floating point: int64 and all

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

query, key = jnp.zeros((1, 1, 1, 1), int), jnp.zeros((1, 2, 1, 1), int)
got = attend(query, key, jnp.full((1, 2, 1, 1), 6)).ravel().tolist()
print("expected an error; 6 would be the mean of 6 and 6")
print(f"got {got}")
raise SystemExit(0 if got == [0] else 1)
