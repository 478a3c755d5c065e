"""Flax: the output has the widest dtype of the inputs, and not that of the queries (NUM-1).

Documentation: flax.linen.dot_product_attention and flax.nnx.dot_product_attention say that dtype is
inferred from the inputs by default.

Found by: errors-mixed-dtypes-key-1-bfloat16

Known: no thread found
"""

import jax.numpy as jnp
from flax import linen, nnx

short, wide = (jnp.ones((1, 2, 1, 4), dtype) for dtype in (jnp.bfloat16, jnp.float32))
got = [str(each.dot_product_attention(short, wide, short).dtype) for each in (linen, nnx)]
print("expected bfloat16 of Linen and of NNX, the dtype of the queries, or an error")
print(f"got {got[0]} of Linen, {got[1]} of NNX")
raise SystemExit(0 if got == ["float32", "float32"] else 1)
