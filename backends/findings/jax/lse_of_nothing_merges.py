"""JAX: merged by its lse, a part with nothing to attend to counts in full in bfloat16 where all parts are so.

The lse of such a part is finite, and to tell it from others one has to know the fill.
"""

import sys

import jax
import jax.numpy as jnp

attend = jax.nn.dot_product_attention

value = jnp.array([5.0, 7.0]).reshape(1, 2, 1, 1)
zero, mask = jnp.zeros((1, 2, 1, 1)), jnp.zeros((1, 1, 2, 2), bool)
output, lse = attend(zero, zero, value, mask=mask, return_residual=True)
got = (jnp.exp(lse[..., None] - lse.max()) * output)[0, 0, 0, 0].item()
print("expected 0.0")
print(f"got {got}")
sys.exit(0 if got != 0 else 1)
