"""JAX: a mask that is given as the bias is accepted, and adds 1 where it is True (ERR-2).

Documentation: The docstring of `jax.nn.dot_product_attention` says that the bias is added to the logits,
and names no dtype.

Found by: errors, refused: bias of booleans

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

zero, value = jnp.zeros((1, 2, 1, 1)), jnp.array([0.0, 1.0]).reshape(1, 2, 1, 1)
mask = jnp.array([True, False]).reshape(1, 1, 1, 2)
got = attend(zero, zero, value, bias=mask).ravel().tolist()
print("expected an error: as a mask it would give [0.0, 0.0]")
print(f"got {got}")
raise SystemExit(0 if 0.2 < got[0] < 0.3 else 1)
