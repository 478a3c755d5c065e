"""JAX on the CPU: subnormal numbers are compared as 0, so a sort and a largest number leave them as they are
(SELECT-7).

Rank: numbers
Impact: of scores that are all subnormal, the first are taken for the largest.
Documentation: Nothing in the docstrings of `jax.numpy.argsort` and `jax.lax.top_k` excepts subnormal numbers.
"""

import jax.numpy as jnp

scores = jnp.asarray([1, 3, 2, 0], jnp.int32).view(jnp.float32)
expected = [3, 0, 2, 1]
got = jnp.argsort(scores).tolist()
print(f"expected {expected}, the places of 0, 1, 2 and 3 times the smallest number")
print(f"got {got}")
raise SystemExit(0 if got != expected else 1)
