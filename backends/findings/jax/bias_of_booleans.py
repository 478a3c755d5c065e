"""JAX: a mask that is given as the bias is accepted, and adds 1 where it is True (ERR-2).

Documentation: The docstring of `jax.nn.dot_product_attention` says that the bias is added to the logits,
and names no dtype.

Found by: errors, refused: bias of booleans

Known: no thread found
"""

import sys

import jax
import jax.numpy as jnp

attend = jax.nn.dot_product_attention

zero, value = jnp.zeros((1, 2, 1, 1)), jnp.array([0.0, 1.0]).reshape(1, 2, 1, 1)
mask = jnp.array([True, False]).reshape(1, 1, 1, 2)
try:
    got = attend(zero, zero, value, bias=mask).ravel().tolist()
except (TypeError, ValueError) as error:
    got = error
print("expected an error: as a mask it would give [0.0, 0.0]")
print(f"got {got}")
sys.exit(0 if isinstance(got, list) and 0.2 < got[0] < 0.3 else 1)
