"""Tokamax, dot_product_attention: a query past the length gives the mean of the values (MASK-10).

Rank: difference
Impact: rows of padding hold values, unlike those of the function that it replaces.
Documentation: tokamax.dot_product_attention refers to jax.nn.dot_product_attention, which gives 0.
"""

import jax.numpy as jnp
from tokamax import dot_product_attention as attend

zeros, values = jnp.zeros((1, 2, 1, 1)), jnp.array([1.0, 5.0]).reshape(1, 2, 1, 1)
got = attend(zeros, zeros, values, query_seq_lengths=jnp.array([1]), implementation="xla").ravel().tolist()
print("expected [3.0, 0.0]")
print(f"got {got}")
raise SystemExit(0 if got == [3.0, 3.0] else 1)
