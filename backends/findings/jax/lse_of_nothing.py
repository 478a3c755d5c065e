"""JAX: the lse of a row with nothing to attend to is -2.38e38 (SOFT-7, variant `finite`).

Documentation: The docstring of `jax.nn.dot_product_attention` refers to the paper of FlashAttention-2
for the definition of the residual. It does not mention a row in which the mask filters out all.

Found by: masking, lse of an empty row: all

Known: no thread found
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

one, mask = jnp.ones((1, 1, 1, 1)), jnp.zeros((1, 1, 1, 1), bool)
_, got = attend(one, one, one, mask=mask, return_residual=True)
print("expected -inf")
print(f"got {got.item()}")
raise SystemExit(0 if jnp.isfinite(got).all() else 1)
