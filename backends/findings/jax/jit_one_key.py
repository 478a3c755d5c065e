"""JAX, jax.nn.dot_product_attention: under jit on a CPU, one query and one key in bfloat16 raise an
error; two keys do not (NUM-5).

Rank: paths
Impact: the first step of decoding fails, and later ones do not.
Documentation: The docstring of `jax.nn.dot_product_attention` does not say which dtypes and sizes the
implementation `xla` supports.
"""

import jax
import jax.numpy as jnp

attend = jax.jit(jax.nn.dot_product_attention)

got = []
for keys in (1, 2):
    query, key = jnp.ones((1, 1, 1, 4), jnp.bfloat16), jnp.ones((1, keys, 1, 4), jnp.bfloat16)
    try:
        got.append(str(attend(query, key, key).dtype))
    except RuntimeError as error:
        got.append(str(error).partition(":")[0])
print("expected bfloat16 for both")
print(f"got {got}")
raise SystemExit(0 if got[0] != got[1] == "bfloat16" else 1)
