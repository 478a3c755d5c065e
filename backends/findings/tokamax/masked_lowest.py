"""Tokamax, XLA: a disallowed key has a weight beside a bias as low as the mask (MASK-5).

Documentation: tokamax.dot_product_attention says nothing.

Found by: masking-rows-of-the-lowest-bias-all-keys-that-a-mask-allows-1-float32

Known: no thread found
"""

import jax.numpy as jnp
from tokamax import dot_product_attention as attend

zeros, values = jnp.zeros((1, 2, 1, 1)), jnp.array([1.0, 5.0]).reshape(1, 2, 1, 1)
bias, mask = jnp.full((1, 1, 1, 2), jnp.finfo("float32").min), jnp.array([[[[True, False]]]])
got = attend(zeros[:, :1], zeros, values, bias=bias, mask=mask, implementation="xla").item()
print("expected 1.0: the second key is disallowed")
print(f"got {got}")
raise SystemExit(0 if got == 3.0 else 1)
