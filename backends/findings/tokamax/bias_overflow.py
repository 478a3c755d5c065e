"""Tokamax, XLA: a bias of -inf beside an infinite score of a finite key gives NaN (MASK-12).

Documentation: tokamax.dot_product_attention says that the bias is added.

Found by: masking-finite-garbage-bias-and-largest-1-float32

Known: no thread found
"""

import jax.numpy as jnp
from tokamax import dot_product_attention as attend

large = jnp.full((1, 1, 1, 2), 1e20)
keys = jnp.concatenate([jnp.zeros_like(large), large], axis=1)
bias = jnp.array([[[[0.0, -jnp.inf]]]])
got = attend(large, keys, jnp.ones((1, 2, 1, 2)), bias=bias, implementation="xla").ravel().tolist()
print("expected [1.0, 1.0]: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if str(got[0]) == "nan" else 1)
