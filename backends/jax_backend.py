"""JAX: the portable source.

Loading it switches JAX to 64-bit numbers for the whole process: without that,
JAX quietly makes every float64 a float32, and nothing could be said of float64.
"""

import os
from importlib.metadata import version

import jax
import jax.numpy as jnp

from attnspec.backends.backend import DTYPES, Backend
from attnspec.backends.portable import COMPANIONS, attention

jax.config.update("jax_enable_x64", True)

#: Eagerly every operation is compiled for every shape, which is nearly all the time that the suite takes.
#: Compiled in haste it takes half of it. The portable source is judged here, not the compiler; JAX's own
#: attention, in another file, is compiled as everybody's.
_HASTE = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false"
)


def portable_backend() -> Backend:
    """Run the portable source on JAX, operation by operation."""
    # Read when JAX first compiles. Only for releases that have these flags: an unknown one ends the process.
    if version("jaxlib").startswith("0.10."):
        os.environ.setdefault("XLA_FLAGS", _HASTE)
    return Backend("jax-portable", "jax", jax.__version__, jnp, attention, DTYPES, COMPANIONS)
