"""Flax, Linen: the output has the widest dtype of the inputs, and not that of the queries (NUM-1).

Documentation: flax.linen.dot_product_attention says that dtype is inferred from the inputs by default.

Found by: errors-mixed-dtypes-key-1-bfloat16

Known: no thread found
"""

import sys

import jax.numpy as jnp
from flax import linen

short, wide = (jnp.ones((1, 2, 1, 4), dtype) for dtype in (jnp.bfloat16, jnp.float32))
got = str(linen.dot_product_attention(short, wide, short).dtype)
print("expected bfloat16, the dtype of the queries, or an error")
print(f"got {got}")
sys.exit(0 if got == "float32" else 1)
