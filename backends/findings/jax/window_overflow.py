"""JAX, jax.nn.dot_product_attention: a window of 2 ** 31 - 1 to either side overflows and disallows keys
(MASK-8).

By default JAX holds positions in 32 bits. With 64-bit numbers enabled the window is correct.

Rank: numbers
Impact: a window meant as unbounded disallows every key but one side's.
Documentation: The docstring of `jax.nn.dot_product_attention` sets no bounds on the sides of a window.
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

zero, value = jnp.zeros((1, 3, 1, 1)), jnp.arange(3.0).reshape(1, 3, 1, 1)
widest = 2**31 - 1
expected = attend(zero, zero, value).ravel().tolist()
got = attend(zero, zero, value, local_window_size=(widest, widest)).ravel().tolist()
print(f"expected {expected}, as without a window")
print(f"got {got}")
raise SystemExit(0 if got != expected else 1)
