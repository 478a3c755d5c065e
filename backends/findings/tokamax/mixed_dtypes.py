"""tokamax: queries of float64 beside keys of bfloat16 give a float64 that was computed in bfloat16 (ERR-1).

Documentation: dot_product_attention says nothing of different dtypes.

Found by: errors-mixed-dtypes-query-2-float64

Known: no thread found
"""

import jax
import jax.numpy as jnp
import numpy as np
import tokamax

jax.config.update("jax_enable_x64", True)

random = np.random.default_rng(0)
query = jnp.asarray(random.normal(size=(1, 4, 1, 8)))
key, value = (jnp.asarray(random.normal(size=(1, 4, 1, 8)), jnp.bfloat16) for _ in range(2))
wide = [array.astype(jnp.float64) for array in (query, key, value)]
expected = tokamax.dot_product_attention(*wide, implementation="xla")
found = tokamax.dot_product_attention(query, key, value, implementation="xla")
error = float(jnp.abs(found - expected).max())
print("expected a difference of 1e-15: keys and values of float64 with these numbers give this result")
print(f"got {found.dtype}, off by {error:.0e}")
raise SystemExit(0 if error > 1e-6 else 1)
