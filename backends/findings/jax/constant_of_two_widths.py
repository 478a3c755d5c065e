"""JAX: jax.jit of a function that closes over an int64 array of NumPy, after a call without 64-bit numbers,
does not lower a call with them.

Rank: difference
Impact: a kernel that is called in float32 and then, with `jax.enable_x64`, in float64 raises an error.
Documentation: Nothing in the docstring of `jax.enable_x64` excepts functions that were called before.
"""

import jax
import jax.numpy as jnp
import numpy as np

places = np.array([1, 0])
take = jax.jit(lambda x: jnp.take(x, places))
with jax.enable_x64(False):
    take(jnp.ones(2))
try:
    with jax.enable_x64(True):
        got = str(take(jnp.ones(2)).dtype)
except ValueError as error:
    got = str(error).partition(" with")[0]
expected = "float64"
print(f"expected {expected}, as in a process without the first call")
print(f"got {got}")
raise SystemExit(0 if got != expected else 1)
