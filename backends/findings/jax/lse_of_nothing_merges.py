"""JAX: in bfloat16, merging parts that are all empty by their lses does not give 0 (SOFT-7).

The lse of an empty part is finite. Only code that knows the fill value can recognize it.

Documentation: The docstring of `jax.nn.dot_product_attention` refers to the paper of FlashAttention-2
for the definition of the residual. It does not mention a row in which the mask filters out all.

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

value = jnp.array([5.0, 7.0]).reshape(1, 2, 1, 1)
zero, mask = jnp.zeros((1, 2, 1, 1)), jnp.zeros((1, 1, 2, 2), bool)
output, lse = attend(zero, zero, value, mask=mask, return_residual=True)
got = (jnp.exp(lse[..., None] - lse.max()) * output)[0, 0, 0, 0].item()
print("expected 0.0")
print(f"got {got}")
raise SystemExit(0 if got != 0 else 1)
