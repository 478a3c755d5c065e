"""JAX: a masked key outweighs an allowed key whose bias is below the replacement of masked scores (MASK-5).

The replacement is -2.38e38, and the lowest number of float32 is -3.4e38.

Documentation: The page of `jax.nn.dot_product_attention` says that a mask of False excludes a key.

Found by: masking, rows of the lowest bias: all keys that a mask allows

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

zero, value = jnp.zeros((1, 2, 1, 1)), jnp.array([5.0, 7.0]).reshape(1, 2, 1, 1)
bias = jnp.full((1, 1, 2, 2), jnp.finfo("float32").min)
mask = jnp.array([[True, False], [True, False]])[None, None]
got = attend(zero, zero, value, bias=bias, mask=mask).ravel().tolist()
print("expected [5.0, 5.0]")
print(f"got {got}")
raise SystemExit(0 if got == [7.0, 7.0] else 1)
