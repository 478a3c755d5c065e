"""JAX: the portable source.

Loading it switches JAX to 64-bit numbers for the whole process: without that,
JAX quietly makes every float64 a float32, and nothing could be said of float64.
"""

import jax
import jax.numpy as jnp

from attnspec.backends.backend import DTYPES, Backend
from attnspec.backends.library.jax_compilation import compile_in_haste
from attnspec.reference import functions

jax.config.update("jax_enable_x64", True)


def portable_backend() -> Backend:
    """Run the portable source on JAX: its parts compiled, the rest operation by operation."""
    compile_in_haste()
    companions = dict(functions(compiler=jax.jit))
    attention = companions.pop("attention")
    return Backend("jax-portable", "jax", jax.__version__, jnp, attention, DTYPES, companions)
