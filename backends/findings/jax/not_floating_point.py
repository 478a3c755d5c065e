"""JAX: integers are accepted, and weights are truncated to integers (ERR-2).

Documentation: The docstring of `jax.nn.dot_product_attention` does not say which dtypes are accepted.

Found by: errors, not floating point: int64 and all

Known: no thread found
"""

import sys

import jax
import jax.numpy as jnp

attend = jax.nn.dot_product_attention

query, key = jnp.zeros((1, 1, 1, 1), int), jnp.zeros((1, 2, 1, 1), int)
try:
    got = attend(query, key, jnp.full((1, 2, 1, 1), 6)).ravel().tolist()
except (TypeError, ValueError) as error:
    got = error
print("expected an error; 6 would be the mean of 6 and 6")
print(f"got {got}")
sys.exit(0 if got == [0] else 1)
