"""Flax, Linen: a bias of -inf beside an infinite score of a finite key gives NaN (MASK-12).

Documentation: flax.linen.dot_product_attention says that the bias can incorporate padding masks.

Found by: masking-finite-garbage-bias-and-largest-1-float32

Known: no thread found
"""

import jax.numpy as jnp
from flax import linen

large = jnp.full((1, 1, 1, 2), 1e20)
keys = jnp.concatenate([jnp.zeros_like(large), large], axis=1)
bias = jnp.array([[[[0.0, -jnp.inf]]]])
got = linen.dot_product_attention(large, keys, jnp.ones((1, 2, 1, 2)), bias=bias).ravel().tolist()
print("expected [1.0, 1.0]: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if got[0] != got[0] else 1)
