"""JAX, a product with a mask: XLA selects by the mask, so NaN times False is 0 under jax.jit (NUM-11).

Without `jax.jit` the conversion of the mask and the product are two programs, and the product is NaN.

Rank: paths
Impact: a dropout that multiplies weights by its mask hides rows of NaN where it drops them.
Documentation: Nothing in the documentation of `jax.jit` says that products with NaN may change.
"""

import jax
import jax.numpy as jnp


def product(weights, mask):
    return weights * mask.astype(weights.dtype)


nan, dropped = jnp.asarray([float("nan")]), jnp.asarray([False])
expected = product(nan, dropped).tolist()
got = jax.jit(product)(nan, dropped).tolist()
print(f"expected {expected}, as without jax.jit")
print(f"got {got}")
raise SystemExit(0 if str(got) != str(expected) else 1)
