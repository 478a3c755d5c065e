"""Tokamax, XLA: a call without keys fails (MASK-6).

Documentation: tokamax.dot_product_attention says nothing.

Found by: masking-no-keys-float32

Known: no thread found
"""

import jax.numpy as jnp
from tokamax import dot_product_attention as attend

none, got = jnp.zeros((1, 0, 1, 1)), "no error"
try:
    attend(jnp.zeros((1, 1, 1, 1)), none, none, implementation="xla")
except ValueError as error:
    got = str(error).splitlines()[0]
print("expected [0.0]")
print(f"got {got}")
raise SystemExit(0 if "zero-size" in got else 1)
