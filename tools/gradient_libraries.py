"""The gradients of PyTorch and JAX, if they are installed, as backward passes of the evidence."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from tools.algorithms import Array
from tools.gradient_algorithms import Backward
from tools.gradient_call import Call

#: The backward passes of libraries, by name.
NAMES = ("torch, math", "torch, flash", "jax.nn")

_ARRAYS = ("query", "key", "value")
_SIMPLE = frozenset((*_ARRAYS, "d_output", "mask", "is_causal", "window"))


def libraries() -> dict[str, Backward]:
    """List the installed ones, by name."""
    found: dict[str, Backward] = {}
    if find_spec("torch"):
        found[NAMES[0]] = Backward(_torch("MATH"), "full", products=2**23)
        # In half precision it rounds its sums over queries after each block of 32.
        found[NAMES[1]] = Backward(_torch("FLASH_ATTENTION"), None, products=2**23)
    if find_spec("jax"):
        # It computes float64 in float32 (NUM-2).
        found[NAMES[2]] = Backward(_jax(), "cast", ("float16", "bfloat16", "float32"), products=2**17)
    return found


def takes(arguments: Mapping[str, Any]) -> bool:
    """Whether the libraries compute such a call: no shared heads, no empty row, no options except masks."""
    query, key, value = (arguments[name] for name in _ARRAYS)
    same = query.shape[1] == key.shape[1] and key.shape[-1] == value.shape[-1]
    return same and set(arguments) <= _SIMPLE and bool(np.all(arguments.get("mask", True)))


def _torch(path: str) -> Callable[[Call], dict[str, Array]]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(call: Call) -> dict[str, Array]:
        dtype = getattr(torch, call.dtype)
        arrays = [
            torch.from_numpy(call.given[name].astype(np.float64)).to(dtype) for name in (*_ARRAYS, "d_output")
        ]
        for one in arrays[:3]:
            one.requires_grad_()
        mask = None if call.allowed.all() else torch.from_numpy(np.ascontiguousarray(call.allowed))
        with sdpa_kernel(getattr(SDPBackend, path)):
            output = torch.nn.functional.scaled_dot_product_attention(*arrays[:3], attn_mask=mask)
            output.backward(arrays[3])
        pairs = zip(_ARRAYS, arrays[:3], strict=True)
        return {f"d_{name}": one.grad.double().numpy().astype(call.storage) for name, one in pairs}

    return run


def _jax() -> Callable[[Call], dict[str, Array]]:
    import jax

    jax.config.update("jax_enable_x64", True)  # otherwise a float64 input is converted to float32

    def run(call: Call) -> dict[str, Array]:
        mask: Any = None if call.allowed.all() else call.allowed

        def attend(*arrays: Any) -> Any:
            turned = (jax.numpy.swapaxes(one, 1, 2) for one in arrays)  # (B, S, H, D)
            return jax.numpy.swapaxes(jax.nn.dot_product_attention(*turned, mask=mask), 1, 2)

        arrays = (jax.numpy.asarray(call.given[name]) for name in _ARRAYS)
        gradients = jax.vjp(attend, *arrays)[1](jax.numpy.asarray(call.given["d_output"]))
        return {f"d_{name}": np.asarray(one) for name, one in zip(_ARRAYS, gradients, strict=True)}

    return run
