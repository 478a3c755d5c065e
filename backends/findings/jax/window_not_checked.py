"""JAX: a window below 0 is accepted, and disallows every key near the query (ERR-7).

Documentation: The docstring of `jax.nn.dot_product_attention` explains a window by an example with two
positive sides. It does not say what a negative side means.

Found by: errors-window-negative-float64

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

one = jnp.ones((1, 3, 1, 1))
got = attend(one, one, one, local_window_size=(-1, 0)).ravel().tolist()
print("expected an error")
print(f"got {got}")
