"""Tokamax, dot_product_attention: one query and one key fail in bfloat16 and float64 on a CPU (SOFT-3)
(SHAPE-2).

Rank: paths
Impact: a step of decoding fails on a CPU in two of three dtypes.
"""

import jax
import jax.numpy as jnp
import tokamax

jax.config.update("jax_enable_x64", True)

got = []
for dtype in ("bfloat16", "float32", "float64"):
    ones = jnp.ones((1, 1, 1, 8), dtype)
    try:
        found = tokamax.dot_product_attention(ones, ones, ones, implementation="xla")
        got.append(f"{dtype}: {found.ravel()[0]:.0f}")
    except jax.errors.JaxRuntimeError as error:
        got.append(f"{dtype}: {str(error).partition(':')[2].strip()}")
print("expected 1 in each dtype")
print("got " + "; ".join(got))
raise SystemExit(0 if sum("Algorithm not supported" in one for one in got) == 2 else 1)
