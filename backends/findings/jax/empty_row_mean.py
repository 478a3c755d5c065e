"""JAX: a query that may attend to nothing gets the mean of all values (MASK-6, variant `uniform`).

Documentation: The docstring of `jax.nn.dot_product_attention` says that the mask filters out logits. It
does not mention a row in which it filters out all.

Found by: masking, empty row: mask and first

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

zero, value = jnp.zeros((1, 2, 1, 1)), jnp.array([5.0, 7.0]).reshape(1, 2, 1, 1)
got = attend(zero, zero, value, mask=jnp.zeros((1, 1, 2, 2), bool)).ravel().tolist()
print("expected [0.0, 0.0]")
print(f"got {got}")
raise SystemExit(0 if got == [6.0, 6.0] else 1)
