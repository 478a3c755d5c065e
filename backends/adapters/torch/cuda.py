"""PyTorch on a GPU: each kernel of ``scaled_dot_product_attention``, and packed sequences.

The kernels are FlashAttention, the memory-efficient kernel, cuDNN's, and separate operations.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnspec.backends.adapters.conditions import (
    Arguments,
    has_mask_or_bias,
    has_nan_query,
    is_masked,
    rows_all_below,
    rows_of_nan,
    with_masked_rows_open,
)
from attnspec.backends.adapters.deviations import mask_overflow
from attnspec.backends.adapters.torch import mask_of_four_axes, to_attn_mask, to_four_axes
from attnspec.backends.adapters.torch.sdpa import OF_EVERY_DEVICE, OF_MATH, scale_deviation
from attnspec.backends.backend import Backend, no_attention
from attnspec.backends.constraints import ANY, Constraints
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.outcome import (
    Bound,
    OtherCall,
    Raises,
    Special,
    Unwritten,
    every_element,
    row_elements,
)
from attnspec.dtypes import SHORT

_SDPA = torch.nn.functional.scaled_dot_product_attention


def has_one_column(arguments: Arguments) -> bool:
    """Whether a mask or a bias has one column for several keys."""
    given = [arguments[name] for name in ("mask", "bias") if name in arguments]
    return any(array.ndim and array.shape[-1] == 1 < arguments["key"].shape[-2] for array in given)


def has_infinite_number(arguments: Arguments) -> bool:
    """Whether a query, key or value is infinite or NaN."""
    return not all(np.isfinite(arguments[name]).all() for name in ("query", "key", "value"))


def flash_backend() -> Backend:
    """Force FlashAttention, which takes half precision and neither mask nor bias."""
    return _backend("torch-cuda-flash", SHORT, _by_flash, _OF_FLASH, Constraints(value_depth="key"))


def efficient_backend() -> Backend:
    """Force the memory-efficient kernel."""
    constraints = Constraints(depths=(8, 64))
    function = partial(_attention, kernel=SDPBackend.EFFICIENT_ATTENTION)
    return _backend("torch-cuda-efficient", (*SHORT, "float32"), function, _OF_EFFICIENT, constraints)


def cudnn_backend() -> Backend:
    """Force the kernel of cuDNN, which takes half precision."""
    constraints = Constraints(depths=(8, 64), value_depth="key")
    function = partial(_attention, kernel=SDPBackend.CUDNN_ATTENTION)
    return _backend("torch-cuda-cudnn", SHORT, function, (*_OF_FLASH, *_OF_CUDNN), constraints)


def math_backend() -> Backend:
    """Force separate operations."""
    dtypes = (*SHORT, "float32", "float64")
    deviations = (scale_deviation(rows_all_below), *OF_EVERY_DEVICE, *OF_MATH)
    return _backend("torch-cuda-math", dtypes, partial(_attention, kernel=SDPBackend.MATH), deviations)


def varlen_backend() -> Backend:
    """Run ``varlen_attn`` on packed sequences."""
    made = _backend(
        "torch-cuda-varlen",
        SHORT,
        no_attention,
        (replace(_OF_FLASH[0], rules=("PACK-1", "PACK-7")), *_OF_VARLEN),
        Constraints(depths=(8, 64), value_depth="key"),
    )
    dialect = {"PACK-5": "bottom-right", "SOFT-7": "plus-infinity", "GRAD-6": "ignored"}
    return replace(made, companions={"packed_attention": packed_attention}, dialect=dialect)


def _backend(
    name: str,
    dtypes: tuple[str, ...],
    function: Callable[..., Any],
    deviations: tuple[Deviation, ...] = (),
    constraints: Constraints = ANY,
) -> Backend:
    if not torch.cuda.is_available():
        raise BackendError(f"backend {name}: expected a GPU for PyTorch {torch.__version__}, got none")
    return Backend(
        name,
        load_library("torch"),
        function,
        dtypes,
        dialect={"SHAPE-6": "broadcast"} if name == "torch-cuda-math" else {},
        deviations=deviations,
        device="cuda",
        versions=">=2.11,<2.12",
        constraints=constraints,
        concurrent=False,  # the choice of a kernel holds for all threads
        ignore=("kernel",),
    )


def _by_flash(
    query: Any, key: Any, value: Any, *, scale: float | None = None, is_causal: bool = False
) -> Any:
    kernel = SDPBackend.FLASH_ATTENTION
    return _attention(query, key, value, scale=scale, is_causal=is_causal, kernel=kernel)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
    kernel: Any,
) -> Any:
    attn_mask, pairs = to_attn_mask(mask, bias, 2), (query.shape[-2], key.shape[-2])
    strided = attn_mask is not None and (attn_mask.shape[-2:] != pairs or not attn_mask.is_contiguous())
    if kernel == SDPBackend.CUDNN_ATTENTION and strided:
        raise Unsupported("strides of a bias are not those that are read: torch/cuda_cudnn_bias")
    if is_causal and attn_mask is not None:
        raise Unsupported(
            "scaled_dot_product_attention is documented to take attn_mask or is_causal, not both"
        )
    if 0 in key.shape[:-2] and 0 not in query.shape[:-2]:
        raise Unsupported("zero key heads end the process with SIGFPE: torch/cuda_no_key_heads")
    outer = query.shape[:-2]
    flat = [to_four_axes(array) for array in (query, key, value)]
    with sdpa_kernel(kernel), warnings.catch_warnings(record=True) as reasons:
        warnings.simplefilter("always")
        try:
            output = _SDPA(
                *flat,
                attn_mask=None if attn_mask is None else mask_of_four_axes(attn_mask, outer),
                is_causal=is_causal,
                scale=scale,
                enable_gqa=bool(flat[0].shape[1] != flat[1].shape[1]),
            )
        except RuntimeError as error:
            if "No available kernel" not in str(error):
                raise
            said = "; ".join(str(reason.message).partition("(Triggered")[0] for reason in reasons)
            raise Unsupported(f"no available kernel: {said}") from None
    return output.reshape(query.shape[:-1] + output.shape[-1:])


def packed_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    query_starts: Any,
    key_starts: Any,
    scale: float | None = None,
    is_causal: bool = False,
    window: Any = None,
    return_lse: bool = False,
) -> Any:
    """Attend within packed sequences by ``varlen_attn``, which takes positions before heads."""
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    # This release shares heads without an argument for it.
    starts = [given.to(torch.int32) for given in (query_starts, key_starts)]
    longest = [int((given[1:] - given[:-1]).max()) if len(given) > 1 else 0 for given in starts]
    left, right = (-1 if side is None else side for side in window or (None, None))
    right = min(right, 0) if is_causal and right != -1 else 0 if is_causal else right
    returned = varlen_attn(
        *(array.transpose(0, 1) for array in (query, key, value)),
        *starts,
        *longest,
        return_aux=AuxRequest(lse=return_lse),
        scale=scale,
        window_size=(left, right),
    )
    output, lse = returned if isinstance(returned, tuple) else (returned, None)
    output = output.transpose(0, 1)
    return (output, lse) if return_lse else output


def _rows_past(arguments: Arguments) -> Mapping[str, NDArray[np.bool_]]:
    """Find the rows that no sequence writes: those past the last boundary, and keys without a query."""
    starts, queries, keys = (arguments[name] for name in ("query_starts", "query", "key"))
    past = np.arange(queries.shape[-2]) >= starts[-1]
    written = np.zeros(keys.shape[-2], np.bool_)
    for (first, end), count in zip(pairwise(arguments["key_starts"]), np.diff(starts), strict=True):
        written[first:end] = count > 0
    rows = dict.fromkeys(("output", "weights", "d_query"), past[:, None])
    return {**rows, "lse": past, **dict.fromkeys(("d_key", "d_value"), ~written[:, None])}


def has_rows_of_no_sequence(arguments: Arguments) -> bool:
    """Whether a packed call has rows that no sequence writes."""
    return any(bool(np.any(rows)) for rows in _rows_past(arguments).values())


_OF_FLASH = (
    Deviation(("SCORE-3", "GRAD-1", "PACK-1", "PACK-7", "ERR-13"),
        "a scale of 0 or below gives NaN, and no gradient",
        "torch/cuda_scale", Special(every_element, (np.nan, np.inf, 0.0)),
        when=lambda arguments: arguments.get("scale", 1) <= 0),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted, and gives NaN or 0",
        "torch/cuda_scale", Special(every_element, (np.nan, 0.0))),
)  # fmt: skip
_OF_VARLEN = (
    Deviation(("PACK-3", "PACK-4", "PACK-7"), "rows of no sequence are memory that nobody wrote",
        "torch/cuda_varlen_past", Unwritten(_rows_past), when=has_rows_of_no_sequence),
    Deviation(("NUM-8", "PACK-1"), "features that are not contiguous are rejected",
        "torch/cuda_varlen_strides", Raises("RuntimeError", "contiguous last dimension")),
)  # fmt: skip
_OF_COTANGENT = (
    "strides of the cotangent: positions first",
    "strides of the cotangent: within",
    "cotangent with strides of zero",
)
#: The number for a masked key is so large that the scores beside it are rounded to 2^-9: hence 4 budgets.
_OF_CUDNN = (
    Deviation(("MASK-6", "MASK-4", "GRAD-10"), "a row that the mask leaves without a key attends to all keys",
        "torch/cuda_cudnn_empty_row", (OtherCall(with_masked_rows_open), Bound(4)),
        when=lambda arguments: "mask" in arguments),
    Deviation(("GRAD-15",), "the cotangent is read as if it lay in rows", "torch/cuda_cudnn_cotangent",
        Unwritten(every_element), outputs=("d_query", "d_key", "d_value"),
        groups=_OF_COTANGENT),
)  # fmt: skip
_OF_EFFICIENT = (
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted, and gives NaN or 0",
        "torch/cuda_scale", Special(every_element, (np.nan, 0.0))),
    Deviation(("SCORE-4", "MASK-1", "MASK-4", "GRAD-4"), "a mask or bias of one column is rejected",
        "torch/cuda_efficient_column", Raises("RuntimeError", "last dimension must be contiguous"),
        when=has_one_column),
    Deviation(("NUM-11", "NUM-13", "NUM-14", "MASK-5"),
        "a number of float32 is split into numbers of TF32, and infinity into infinity and NaN",
        "torch/cuda_efficient_infinity", Special(every_element), dtypes=("float32",),
        when=has_infinite_number),
    mask_overflow("torch/masked_overflow", is_masked),
    Deviation(("MASK-6",), "a mask is added, so a query of NaN without an allowed key gives NaN",
        "torch/masked_nan_query", Special(row_elements(rows_of_nan)),
        when=lambda arguments: has_nan_query(arguments) and has_mask_or_bias(arguments)),
)  # fmt: skip
