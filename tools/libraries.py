"""Attention of PyTorch and JAX and its gradients, if they are installed, as algorithms of the evidence."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from attnspec.conformance.suite.datasets import Problem
from attnspec.dtypes import numpy_dtype
from attnspec.reference.budget.budget import Accuracy
from tools.algorithms import Array
from tools.gradient_algorithms import Backward
from tools.gradient_calls import Call

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


#: The backward passes of libraries, by name.
NAMES = ("torch, math", "torch, flash", "jax.nn")

_ARRAYS = ("query", "key", "value")
_SIMPLE = frozenset((*_ARRAYS, "d_output", "mask", "is_causal", "window"))


def gradient_libraries() -> dict[str, Backward]:
    """List the installed ones, by name."""
    found: dict[str, Backward] = {}
    if find_spec("torch"):
        found[NAMES[0]] = Backward(_torch_gradients("MATH"), "full", products=2**23)
        # In half precision it rounds its sums over queries after each block of 32.
        found[NAMES[1]] = Backward(_torch_gradients("FLASH_ATTENTION"), None, products=2**23)
    if find_spec("jax"):
        # It computes float64 in float32 (NUM-2).
        found[NAMES[2]] = Backward(
            _jax_gradients(), "cast", ("float16", "bfloat16", "float32"), products=2**17
        )
    return found


def takes(arguments: Mapping[str, Any]) -> bool:
    """Whether the libraries compute such a call: no shared heads, no empty row, no options except masks."""
    query, key, value = (arguments[name] for name in _ARRAYS)
    same = query.shape[1] == key.shape[1] and key.shape[-1] == value.shape[-1]
    return same and set(arguments) <= _SIMPLE and bool(np.all(arguments.get("mask", True)))


def _torch_gradients(path: str) -> Callable[[Call], dict[str, Array]]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(call: Call) -> dict[str, Array]:
        dtype = getattr(torch, call.dtype)
        arrays = [
            torch.from_numpy(call.given[name].astype(np.float64)).to(dtype) for name in (*_ARRAYS, "d_output")
        ]
        for array in arrays[:3]:
            array.requires_grad_()
        mask = None if call.allowed.all() else torch.from_numpy(np.ascontiguousarray(call.allowed))
        with sdpa_kernel(getattr(SDPBackend, path)):
            output = torch.nn.functional.scaled_dot_product_attention(*arrays[:3], attn_mask=mask)
            output.backward(arrays[3])
        pairs = zip(_ARRAYS, arrays[:3], strict=True)
        return {f"d_{name}": array.grad.double().numpy().astype(call.storage) for name, array in pairs}

    return run


def _jax_gradients() -> Callable[[Call], dict[str, Array]]:
    import jax

    jax.config.update("jax_enable_x64", True)  # otherwise a float64 input is converted to float32

    def run(call: Call) -> dict[str, Array]:
        mask: Any = None if call.allowed.all() else call.allowed

        def attend(*arrays: Any) -> Any:
            turned = (jax.numpy.swapaxes(array, 1, 2) for array in arrays)  # (B, S, H, D)
            return jax.numpy.swapaxes(jax.nn.dot_product_attention(*turned, mask=mask), 1, 2)

        arrays = (jax.numpy.asarray(call.given[name]) for name in _ARRAYS)
        gradients = jax.vjp(attend, *arrays)[1](jax.numpy.asarray(call.given["d_output"]))
        return {f"d_{name}": np.asarray(gradient) for name, gradient in zip(_ARRAYS, gradients, strict=True)}

    return run
