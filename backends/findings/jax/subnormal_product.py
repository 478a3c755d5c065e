"""JAX on the CPU: a product that is a subnormal number is 0 (QUANT-1, QUANT-6, QUANT-7).

Rank: numbers
Impact: decoded numbers below the normal numbers of their dtype are 0, and so are those of a subnormal scale.
Documentation: Nothing in the docstring of `jax.numpy.multiply` excepts subnormal numbers.
"""

import jax.numpy as jnp
import numpy as np

least = float(np.finfo(np.float32).tiny)
expected = least / 2
got = float(jnp.float32(least) * jnp.float32(0.5))
print(f"expected {expected}, half of the smallest normal number")
print(f"got {got}")
raise SystemExit(0 if got != expected else 1)
