"""JAX: a depth of 0 of queries, keys and values is accepted. Its default scale is 1 / 0 (ERR-5).

Documentation: The docstring of `jax.nn.dot_product_attention` does not mention a depth of 0. Its default
scale is 1 divided by the square root of the depth.

Found by: errors, refused: depth of 0 throughout

Known: no thread found
"""

import warnings

import jax
import jax.numpy as jnp

warnings.simplefilter("ignore")  # NumPy warns of the division

none = jnp.ones((1, 2, 1, 0))
got = jax.nn.dot_product_attention(none, none, none).shape
print("expected an error")
print(f"got {got}")
