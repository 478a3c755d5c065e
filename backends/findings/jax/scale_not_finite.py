"""JAX: a scale of NaN is accepted (ERR-6).

Documentation: The docstring of `jax.nn.dot_product_attention` sets no bounds on `scale`.

Found by: errors-scale-nan-float64

Known: no thread found
"""

import sys

import jax
import jax.numpy as jnp

attend = jax.nn.dot_product_attention

one = jnp.ones((1, 2, 1, 4))
try:
    got = attend(one, one, one, scale=float("nan")).ravel().tolist()
except (TypeError, ValueError) as error:
    got = error
print("expected an error")
print(f"got {got}")
sys.exit(0 if isinstance(got, list) else 1)
