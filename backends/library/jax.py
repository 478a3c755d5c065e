"""JAX.

Importing this enables 64-bit numbers in JAX for the whole process. Otherwise JAX silently
converts float64 to float32, and float64 could not be tested. A call that needs no 64-bit number is made
without them, as users make it: with them, other dtypes result in a function, and a kernel may fail. Its
integers are of 32 bits, which is all that a user of JAX has by default.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib.metadata import entry_points, version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.deviation import Deviation
from attnspec.backends.library import array_properties
from attnspec.backends.library.library import FROM_HOST, Library, fit_integers, has_64_bits
from attnspec.backends.outcome import OtherCall, Special
from attnspec.reference import function

jax.config.update("jax_enable_x64", True)

# JAX compiles every eager operation for every shape. What follows reduces the cost of that.

# The last flag: by default a module is split into 32 parts, one for each thread. Small modules compile
# faster unsplit.
_HASTE = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
#: The caches of JAX 0.10 for compiled modules. They are private, and other releases may lack them.
_SOURCES = (("jax._src.pjit", "_pjit_lower"), ("jax._src.interpreters.pxla", "_cached_lowering_to_hlo"))
#: The private function of JAX 0.10 that creates an MLIR context.
_WRITING, _NEW = "jax._src.interpreters.mlir", "make_ir_context"


def _differentiate(
    run: Callable[..., Any], arrays: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    returned, pull_back = jax.vjp(run, *arrays)
    outputs = returned if isinstance(returned, tuple | list) else (returned,)
    # JAX requires the dtype of the output, which may be shorter than that of the specification (NUM-7).
    given = [cotangent.astype(output.dtype) for cotangent, output in zip(cotangents, outputs, strict=True)]
    gradients: Sequence[Any] = pull_back(type(returned)(given) if outputs is returned else given[0])
    return gradients


def _at_call(arguments: Iterable[Any]) -> AbstractContextManager[object]:
    context: AbstractContextManager[object] = jax.enable_x64(has_64_bits(arguments))
    return context


def _is_subnormal(x: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray((x != 0) & (np.abs(x) < jnp.finfo(x.dtype).tiny))


def _flush_scores(arguments: Mapping[str, Any]) -> dict[str, Any]:
    scores = arguments["scores"]
    return {**arguments, "scores": np.where(_is_subnormal(scores), np.zeros((), scores.dtype), scores)}


def _subnormal_products(arguments: Mapping[str, Any]) -> Mapping[str, NDArray[np.bool_]]:
    """Return where a decoded number, or its scale, is subnormal."""
    operation = "dequantize_blocks" if "packed" in arguments else "dequantize"
    given = {name: x for name, x in arguments.items() if x is not None}
    arrays = [given.pop(name) for name in OPERATIONS[operation].arrays]
    numbers, scales = function(operation)(*arrays, **given), arguments["scales"]
    least = float(jnp.finfo(scales.dtype).tiny)
    flushed = (numbers != 0) & (np.abs(numbers) < least)
    if operation == "dequantize_blocks":
        flushed |= np.repeat(_is_subnormal(scales), 32, axis=-1)
    return {"dequantized": flushed}


def _has_subnormal_products(arguments: Mapping[str, Any]) -> bool:
    decodes = "scales" in arguments and not {"codes", "packed"}.isdisjoint(arguments)
    return decodes and bool(_subnormal_products(arguments)["dequantized"].any())


def _prepare_eager() -> None:
    compile_in_haste()
    write_in_one_context()


def compile_in_haste() -> None:
    """Disable optimization in this process. This at least halves the time of compilation.

    This suits operations that are compiled one by one on the CPU. JAX reads the flags when it first
    compiles. If ``XLA_FLAGS`` is set already, even to an empty string, it stays.
    """
    # Only set for releases that have these flags: an unknown flag ends the process. Plugins are for other
    # devices.
    if version("jaxlib").startswith("0.10.") and not entry_points(group="jax_plugins"):
        os.environ.setdefault("XLA_FLAGS", _HASTE)


def write_in_one_context() -> bool:
    """Use one MLIR context for all modules of this process, and return whether this succeeded.

    JAX creates a context with all dialects for each module. This costs 2 ms and 1.4 MB, as much as
    the rest of a single operation. In a release without the function, this does nothing.
    """
    module = sys.modules.get(_WRITING)
    make = getattr(module, _NEW, None)
    if module is None or make is None:
        return False
    if not hasattr(make, "cache_clear"):
        setattr(module, _NEW, cache(make))
    return True


def release_sources() -> int:
    """Clear the caches of compiled modules, and return the number of these caches.

    JAX keeps the modules of its last 2048 compilations, 1.4 MB each, and they slow down further
    compilations. The compiled programs stay, unlike after ``jax.clear_caches``.
    """
    caches = [getattr(sys.modules.get(module), name, None) for module, name in _SOURCES]
    known = [each for each in caches if each is not None and hasattr(each, "cache_clear")]
    for each in known:
        each.cache_clear()
    return len(known)


def _from_host(array: Any) -> Callable[[NDArray[Any]], Any] | None:
    if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
        return None
    return partial(jax.device_put, device=array.sharding)


FROM_HOST.append(_from_host)

LIBRARY = Library(
    "jax",
    jax.__version__,
    jnp,
    lambda array, device: jax.device_put(array, jax.devices(device)[0] if device else None),
    lambda array, _device: np.array(array),
    **array_properties("jax"),
    compile=jax.jit,
    capture=jax.jit,
    differentiate=_differentiate,
    constant=jax.lax.stop_gradient,
    prepare_eager=_prepare_eager,
    release=release_sources,
    fit_integers=fit_integers,
    at_call=_at_call,
    releases=">=0.10,<0.11",
    deviations=(
        Deviation(
            ("SELECT-7",),
            "subnormal scores are compared as 0",
            "jax/subnormal_comparison",
            OtherCall(_flush_scores),
            dtypes=("bfloat16", "float32", "float64"),
            when=lambda arguments: "scores" in arguments and bool(_is_subnormal(arguments["scores"]).any()),
        ),
        Deviation(
            ("QUANT-1", "QUANT-6", "QUANT-7"),
            "subnormal products are 0",
            "jax/subnormal_product",
            Special(_subnormal_products, (0.0,)),
            dtypes=("bfloat16", "float32", "float64"),
            when=_has_subnormal_products,
        ),
    ),
)
