"""What compiling costs on JAX, kept down: run eagerly, it compiles every operation for every shape."""

import os
import sys
from importlib.metadata import version

_HASTE = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false"
)
#: Where JAX 0.10 keeps what it compiled from. They are not public: a release may have none of them.
_SOURCES = (("jax._src.pjit", "_pjit_lower"), ("jax._src.interpreters.pxla", "_cached_lowering_to_hlo"))


def compile_in_haste() -> None:
    """Have this process compile without optimizing, which takes half the time.

    It is for operations that are compiled one by one, as there is nothing in them to
    optimize across. Read when JAX first compiles; flags that the caller has set, be it to
    nothing, stay.
    """
    # Only for releases that have these flags: an unknown one ends the process.
    if version("jaxlib").startswith("0.10."):
        os.environ.setdefault("XLA_FLAGS", _HASTE)


def release_sources() -> int:
    """Let go of what was compiled already, and say how many caches of it there are; none without JAX.

    For each of its last 2048 compilations JAX keeps the module that it came from, 1.4 MB
    each, and every further compilation takes longer for it. What was made of them stays,
    unlike after ``jax.clear_caches``.
    """
    caches = [getattr(sys.modules.get(module), name, None) for module, name in _SOURCES]
    known = [cache for cache in caches if cache is not None and hasattr(cache, "cache_clear")]
    for cache in known:
        cache.cache_clear()
    return len(known)
