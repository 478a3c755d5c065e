"""JAX: a window below 0 is accepted, and disallows every key near the query (ERR-7).

Documentation: The docstring of `jax.nn.dot_product_attention` explains a window by an example with two
positive sides. It does not say what a negative side means.

Found by: errors-window-negative-float64

Known: no thread found
"""

import sys

import jax
import jax.numpy as jnp

attend = jax.nn.dot_product_attention

one = jnp.ones((1, 3, 1, 1))
try:
    got = attend(one, one, one, local_window_size=(-1, 0)).ravel().tolist()
except (TypeError, ValueError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, list) else 1)
