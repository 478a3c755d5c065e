"""PyTorch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import array_api_compat.torch as xp
import numpy as np
import torch
from numpy.typing import NDArray

from attnspec.backends.errors import NotApplicable, NotDifferentiable
from attnspec.backends.library import array_properties
from attnspec.backends.library.library import Library


def _to_library(array: NDArray[Any], device: str) -> Any:
    if array.dtype.name == "bfloat16":
        # PyTorch cannot read NumPy's bfloat16, so its bits are passed as int16.
        placed = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        placed = torch.from_numpy(array)
    return placed.to(device) if device else placed


def _to_numpy(array: Any, device: str) -> NDArray[Any]:
    expected = device.partition(":")[0] or "cpu"
    if array.device.type != expected:
        raise ValueError(f"device: expected {expected}, got {array.device.type}")
    array = array.detach().cpu()
    if array.dtype == torch.bfloat16:
        return np.asarray(array.view(torch.int16)).copy().view("bfloat16")
    return np.asarray(array).copy()


def _fit_integers(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return long unsigned integers as int64: PyTorch does not compare them (torch/unsigned_comparison)."""
    return {name: _as_int64(name, x) for name, x in arguments.items()}


def _as_int64(name: str, x: Any) -> Any:
    if not isinstance(x, np.ndarray) or x.dtype.kind != "u" or x.dtype.itemsize == 1:
        return x
    if x.max(initial=0) > np.iinfo(np.int64).max:
        raise NotApplicable(f"{name}: PyTorch compares no integers past int64")
    return x.astype(np.int64)


def _differentiate(
    run: Callable[..., Any], arrays: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    given = [array.detach().requires_grad_() for array in arrays]  # with the same memory and strides
    with torch.enable_grad():
        returned = run(*given)
    outputs = returned if isinstance(returned, tuple | list) else (returned,)
    for output in outputs[: len(cotangents)]:
        if not output.requires_grad:
            raise NotDifferentiable("its result does not depend on its inputs for autograd of PyTorch")
    gradients = torch.autograd.grad(outputs[: len(cotangents)], given, cotangents, allow_unused=True)
    pairs = zip(gradients, given, strict=True)
    # An array without elements has one gradient only, of which a function that skips it leaves none.
    return [torch.zeros_like(x) if gradient is None and not x.numel() else gradient for gradient, x in pairs]


def _capture(function: Callable[..., Any]) -> Callable[..., Any]:
    """Capture the graph of a function, without the compilation of its kernels."""
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False, backend="aot_eager")
    return compiled


def _accelerator() -> str:
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found.type if found else ""


LIBRARY = Library(
    "torch",
    torch.__version__,
    xp,
    _to_library,
    _to_numpy,
    **array_properties("torch"),
    capture=_capture,
    differentiate=_differentiate,
    constant=torch.Tensor.detach,
    fit_integers=_fit_integers,
    accelerator=_accelerator,
)
