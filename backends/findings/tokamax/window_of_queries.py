"""Tokamax, dot_product_attention: a window needs as many queries as keys (MASK-8).

Rank: difference
Impact: a call that the function of JAX accepts fails.
Documentation: tokamax.dot_product_attention refers to jax.nn.dot_product_attention, which takes any
numbers.
"""

import jax.numpy as jnp
from tokamax import dot_product_attention as attend

query, keys, got = jnp.ones((1, 2, 1, 1)), jnp.ones((1, 3, 1, 1)), "no error"
try:
    attend(query, keys, keys, local_window_size=(1, 0), implementation="xla")
except ValueError as error:
    got = str(error).splitlines()[0]
print("expected [1.0, 1.0]")
print(f"got {got}")
raise SystemExit(0 if "broadcasting" in got else 1)
