"""Flax, nnx.dot_product_attention: values of another depth than the keys are refused (SHAPE-3).

Rank: promise
Impact: models whose values have another depth cannot use the function.
Promise: "shape of [batch..., kv_length, num_heads, v_depth_per_head]" (docstring of
flax.nnx.dot_product_attention)
"""

import jax.numpy as jnp
from flax import nnx

keys, got = jnp.ones((1, 1, 1, 2)), "no error"
try:
    nnx.dot_product_attention(keys, keys, jnp.ones((1, 1, 1, 3)))
except ValueError as error:
    got = str(error)
print("expected [1.0, 1.0, 1.0]")
print(f"got {got}")
raise SystemExit(0 if "value shape" in got else 1)
