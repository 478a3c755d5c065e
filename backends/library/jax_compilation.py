"""What compiling costs on JAX, kept down: run eagerly, it compiles every operation for every shape."""

import os
import sys
from functools import cache
from importlib.metadata import version

# Of the last: what is this small takes longer in 32 pieces, each for a thread, than in one.
_HASTE = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
#: Where JAX 0.10 keeps what it compiled from. They are not public: a release may have none of them.
_SOURCES = (("jax._src.pjit", "_pjit_lower"), ("jax._src.interpreters.pxla", "_cached_lowering_to_hlo"))
#: Where JAX 0.10 makes what a program is written in before it is compiled. Not public either.
_WRITING, _NEW = "jax._src.interpreters.mlir", "make_ir_context"


def compile_in_haste() -> None:
    """Have this process compile without optimizing, which takes half the time or less.

    It is for operations that are compiled one by one, as there is nothing in them to
    optimize across. Read when JAX first compiles; flags that the caller has set, be it to
    nothing, stay.
    """
    # Only for releases that have these flags: an unknown one ends the process.
    if version("jaxlib").startswith("0.10."):
        os.environ.setdefault("XLA_FLAGS", _HASTE)


def write_in_one_context() -> bool:
    """Have all programs of this process written in one context of MLIR, and say whether they are.

    JAX makes a context for each, with every dialect that there is: 2 ms and 1.4 MB, as much as a
    single operation takes otherwise. Without JAX, or in a release where it does so elsewhere, all
    stays as it is.
    """
    module = sys.modules.get(_WRITING)
    make = getattr(module, _NEW, None)
    if module is None or make is None:
        return False
    if not hasattr(make, "cache_clear"):
        setattr(module, _NEW, cache(make))
    return True


def release_sources() -> int:
    """Let go of what was compiled already, and say how many caches of it there are; none without JAX.

    For each of its last 2048 compilations JAX keeps the module that it came from, 1.4 MB
    each, and every further compilation takes longer for it. What was made of them stays,
    unlike after ``jax.clear_caches``.
    """
    found = [getattr(sys.modules.get(module), name, None) for module, name in _SOURCES]
    known = [each for each in found if each is not None and hasattr(each, "cache_clear")]
    for each in known:
        each.cache_clear()
    return len(known)
