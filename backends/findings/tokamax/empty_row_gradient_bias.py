"""Tokamax, XLA: gradients are NaN if a bias of -inf disallows all keys of a query (GRAD-10).

Documentation: tokamax.dot_product_attention says nothing of such a query.

Found by: gradients-bias-empty-row-float32

Known: no thread found
"""

from functools import partial

import jax
import jax.numpy as jnp
import tokamax

keys, bias = jnp.ones((1, 2, 1, 1)), jnp.array([[[[-jnp.inf, -jnp.inf], [0.0, 0.0]]]])
attend = partial(tokamax.dot_product_attention, bias=bias, implementation="xla")
output, pull = jax.vjp(attend, keys, keys, keys)
got = pull(jnp.ones_like(output))[0].ravel().tolist()
print("expected [0.0, 0.0]")
print(f"got {got}")
raise SystemExit(0 if got[0] != got[0] else 1)
