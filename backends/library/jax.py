"""JAX.

Importing this enables 64-bit numbers in JAX for the whole process. Otherwise JAX silently
converts float64 to float32, and float64 could not be tested.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from attnspec.backends.library.jax_compilation import (
    compile_in_haste,
    release_sources,
    write_in_one_context,
)
from attnspec.backends.library.library import Library
from attnspec.dtypes import DTYPES

jax.config.update("jax_enable_x64", True)


def _to_library(array: NDArray[Any], device: str) -> Any:
    # `jnp.asarray` would compile an identity function for every shape.
    return jax.device_put(array, jax.devices(device)[0] if device else None)


def _to_numpy(array: Any, _device: str) -> NDArray[Any]:
    return np.array(array)


def _differentiate(
    run: Callable[..., Any], arrays: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    returned, pull_back = jax.vjp(run, *arrays)
    outputs = returned if isinstance(returned, tuple | list) else (returned,)
    # JAX requires the dtype of the output, which may be shorter than that of the specification (NUM-7).
    given = [one.astype(output.dtype) for one, output in zip(cotangents, outputs, strict=True)]
    gradients: Sequence[Any] = pull_back(type(returned)(given) if outputs is returned else given[0])
    return gradients


def _prepare_eager() -> None:
    compile_in_haste()
    write_in_one_context()


LIBRARY = Library(
    "jax",
    jax.__version__,
    jnp,
    _to_library,
    _to_numpy,
    default_dtypes=DTYPES,
    compile=jax.jit,
    differentiate=_differentiate,
    constant=jax.lax.stop_gradient,
    prepare_eager=_prepare_eager,
    release=release_sources,
)
