"""The attention functions of PyTorch and JAX, if they are installed, as algorithms of the evidence."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from attnspec.conformance.suite.datasets import Problem
from attnspec.dtypes import numpy_dtype
from attnspec.reference.budget.budget import Accuracy
from tools.algorithms import Array

#: The name, the class of budget that it must meet, the function, and the result that it computes.
Library = tuple[str, Accuracy, Callable[[Problem], Array | None], str]


def libraries() -> list[Library]:
    """List the installed ones. A function returns None for a problem that the library does not take."""
    found: list[Library] = []
    if find_spec("torch"):
        found += [
            ("torch, math", "full", _torch("MATH"), "output"),
            ("torch, flash", "cast", _torch("FLASH_ATTENTION"), "output"),
            ("lse, torch, flash", "cast", _torch_lse, "lse"),
        ]
    if find_spec("jax"):
        found.append(("jax.nn", "cast", _jax(), "output"))
    return found


def _torch(path: str) -> Callable[[Problem], Array | None]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(problem: Problem) -> Array | None:
        if problem.value.shape[-1] != problem.query.shape[-1]:
            return None  # the flash path requires equal depths
        query, key, value = _tensors(problem)
        mask = None if problem.allowed.all() else torch.from_numpy(problem.allowed)[None, None]
        with sdpa_kernel(getattr(SDPBackend, path)):
            output = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return np.asarray(output[0, 0].double().numpy()).astype(numpy_dtype(problem.dtype))

    return run


def _torch_lse(problem: Problem) -> Array | None:
    """Return the lse of the operator of the flash path, because the public function does not return it."""
    import torch

    if problem.value.shape[-1] != problem.query.shape[-1]:
        return None
    query, key, value = _tensors(problem)
    mask = None
    if not problem.allowed.all():  # this operator requires numbers to add
        mask = torch.from_numpy(np.where(problem.allowed, 0.0, -np.inf)).to(query.dtype)[None, None]
    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001 - it is not public
    lse = operator(query, key, value, attn_mask=mask)[1]
    return np.asarray(lse.numpy()).reshape(len(problem.query))


def _tensors(problem: Problem) -> Any:
    import torch

    dtype = getattr(torch, problem.dtype)
    return tuple(
        # This is exact, because they are rounded already. The flash path requires contiguous rows.
        torch.from_numpy(array.astype(np.float64, order="C")).to(dtype)[None, None]
        for array in (problem.query, problem.key, problem.value)
    )


def _jax() -> Callable[[Problem], Array | None]:
    import jax

    jax.config.update("jax_enable_x64", True)  # otherwise a float64 input is converted to float32

    def run(problem: Problem) -> Array | None:
        if problem.value.shape[-1] != problem.query.shape[-1]:
            return None
        query, key, value = (
            jax.numpy.asarray(array)[None, :, None] for array in (problem.query, problem.key, problem.value)
        )  # (B, S, H, D)
        mask: Any = None if problem.allowed.all() else problem.allowed[None, None]
        return np.asarray(jax.nn.dot_product_attention(query, key, value, mask=mask)[0, :, 0])

    return run
