"""Flax: a disallowed key has a weight beside a bias as low as the mask (MASK-5).

Documentation: flax.linen.dot_product_attention and flax.nnx.dot_product_attention say that weights are
masked out where the mask is False.

Found by: masking-rows-of-the-lowest-bias-all-keys-that-a-mask-allows-1-float32

Known: no thread found
"""

import jax.numpy as jnp
from flax import linen, nnx

zeros, values = jnp.zeros((1, 2, 1, 1)), jnp.array([1.0, 5.0]).reshape(1, 2, 1, 1)
bias, mask = jnp.full((1, 1, 1, 2), jnp.finfo("float32").min), jnp.array([[[[True, False]]]])
got = [
    each.dot_product_attention(zeros[:, :1], zeros, values, bias=bias, mask=mask).item()
    for each in (linen, nnx)
]
print("expected 1.0 of Linen, 1.0 of NNX")
print(f"got {got[0]} of Linen, {got[1]} of NNX")
raise SystemExit(0 if got == [3.0, 5.0] else 1)
