"""Flax: gradients are NaN if a bias of -inf disallows all keys of a query (GRAD-10).

Documentation: flax.linen.dot_product_attention and flax.nnx.dot_product_attention say that the bias can
incorporate padding masks, and nothing of such a query.

Found by: gradients-bias-empty-row-float32

Known: no thread found
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen, nnx

keys, bias = jnp.ones((1, 2, 1, 1)), jnp.array([[[[-jnp.inf, -jnp.inf], [0.0, 0.0]]]])
got = []
for each in (linen, nnx):
    output, pull = jax.vjp(partial(each.dot_product_attention, bias=bias), keys, keys, keys)
    got.append(pull(jnp.ones_like(output))[0].ravel().tolist())
print("expected [0.0, 0.0] of Linen, [0.0, 0.0] of NNX")
print(f"got {got[0]} of Linen, {got[1]} of NNX")
raise SystemExit(0 if all(one[0] != one[0] for one in got) else 1)
