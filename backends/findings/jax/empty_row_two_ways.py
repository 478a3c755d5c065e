"""JAX, jax.nn.dot_product_attention: padding gives 0 with `query_seq_lengths`, and the mean with an
equivalent `mask` (MASK-6).

Rank: paths
Impact: two ways to write the same padding give different outputs.
Documentation: The docstring of `jax.nn.dot_product_attention` describes `query_seq_lengths` as the sequence
lengths of the queries. It does not say what a query past its length gives.
"""

import jax.numpy as jnp
from jax.nn import dot_product_attention as attend

zero, value = jnp.zeros((1, 2, 1, 1)), jnp.array([5.0, 7.0]).reshape(1, 2, 1, 1)
mask = jnp.array([True, False]).reshape(1, 1, 2, 1)
one = attend(zero, zero, value, query_seq_lengths=jnp.array([1], jnp.int32)).ravel().tolist()
other = attend(zero, zero, value, mask=mask).ravel().tolist()
print("expected [6.0, 0.0] for both")
print(f"got {one} and {other}")
raise SystemExit(0 if one != other else 1)
