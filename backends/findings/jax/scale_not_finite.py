"""JAX: a scale of NaN is accepted (ERR-6).

Documentation: The docstring of `jax.nn.dot_product_attention` sets no bounds on `scale`.

Found by: errors-scale-nan-float64

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

one = jnp.ones((1, 2, 1, 4))
got = attend(one, one, one, scale=float("nan")).ravel().tolist()
print("expected an error")
print(f"got {got}")
