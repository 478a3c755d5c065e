"""PyTorch: ``scaled_dot_product_attention``, by the default path and by each path for the CPU.

With its generator set to a seed it drops weights, and nested tensors hold sequences of unequal lengths.
``torch.nn.attention.varlen.varlen_attn`` has no kernel for the CPU.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from attnspec.backends.adapters.conditions import (
    OF_NO_DEPTH,
    Arguments,
    Rows,
    has_infinity,
    has_mask_or_bias,
    has_nan_query,
    has_other_length_of_value,
    has_queries_without_keys,
    is_masked,
    rows_all_below,
    rows_of_infinity,
    rows_of_nan,
    rows_with_disallowed,
    scores_of,
)
from attnspec.backends.adapters.deviations import mask_overflow, other_heads_of_value
from attnspec.backends.adapters.torch import (
    SUMS_OF_GRADIENTS,
    VERSIONS,
    mask_of_four_axes,
    to_attn_mask,
    to_four_axes,
)
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.outcome import OtherCall, Raises, Special, Unwritten, every_element, row_elements

_SDPA = torch.nn.functional.scaled_dot_product_attention
#: The numbers of float32 in a vector of the processor.
_VECTOR = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8


def default_backend() -> Backend:
    """Let PyTorch choose the path."""
    deviations = (scale_deviation(_rows_by_axes), *OF_ALL, *OF_FLASH, OF_WIDE, *OF_MATH)
    made = _backend("torch-sdpa", _attention(_by_default, 2), {"SHAPE-6": "broadcast"}, deviations)
    companions = {"packed_attention": packed_attention}
    return replace(made, companions=companions, deviations=(*made.deviations, *_OF_NESTED))


def math_backend() -> Backend:
    """Force the path of separate operations."""
    made = _backend(
        "torch-math",
        _attention(_by_math, 0),
        {"SHAPE-6": "broadcast"},
        (scale_deviation(rows_all_below), *OF_ALL, *OF_MATH, *_OF_DROPOUT),
    )
    companions = {"seeded_dropout_attention": seeded_dropout_attention}
    # The choice of a path holds for all threads.
    return replace(made, companions=companions, concurrent=False)


def flash_backend() -> Backend:
    """Force the fused kernel for the CPU, which takes inputs of four axes."""
    made = _backend(
        "torch-flash",
        _attention(_by_flash, 2),
        {},
        (scale_deviation(rows_without_scores), *OF_ALL, *OF_FLASH, OF_WIDE),
    )
    return replace(made, concurrent=False)  # as above


def _backend(
    name: str,
    function: Callable[..., Any],
    dialect: Mapping[str, str],
    deviations: tuple[Deviation, ...],
) -> Backend:
    library = load_library("torch")
    return Backend(
        name, library, function, library.dtypes, dialect=dialect, deviations=deviations, versions=VERSIONS
    )


def _attention(path: Callable[..., Any], axes: int) -> Callable[..., Any]:
    """Give a path the canonical signature. Mask and bias get a minimum number of axes."""

    def attention(
        query: Any,
        key: Any,
        value: Any,
        *,
        scale: float | None = None,
        bias: Any = None,
        mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        return path(query, key, value, to_attn_mask(mask, bias, axes), scale=scale, is_causal=is_causal)

    return attention


def _by_math(*arrays: Any, **options: Any) -> Any:
    with sdpa_kernel(SDPBackend.MATH):
        return _by_default(*arrays, **options)


def _by_default(query: Any, key: Any, value: Any, attn_mask: Any, *, is_causal: bool, **options: Any) -> Any:
    _check_one_mask(attn_mask, is_causal=is_causal)
    shared = _has_shared_heads(query, key)
    return _SDPA(query, key, value, attn_mask=attn_mask, is_causal=is_causal, enable_gqa=shared, **options)


def _check_one_mask(attn_mask: Any, *, is_causal: bool) -> None:
    if is_causal and attn_mask is not None:
        raise Unsupported(
            "scaled_dot_product_attention is documented to take attn_mask or is_causal, not both"
        )


def _by_flash(
    query: Any, key: Any, value: Any, attn_mask: Any, *, scale: float | None, is_causal: bool
) -> Any:
    if query.shape[-1] != value.shape[-1] and 0 not in (query.shape[-1], value.shape[-1]):
        raise Unsupported("the fused kernel for the CPU requires values and keys of the same depth")
    if any(array.numel() and array.stride(-1) != 1 for array in (query, key, value)):
        raise Unsupported("the fused kernel for the CPU requires contiguous features")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        output = _SDPA(
            *(to_four_axes(array) for array in (query, key, value)),
            attn_mask=None if attn_mask is None else mask_of_four_axes(attn_mask, query.shape[:-2]),
            is_causal=is_causal,
            scale=scale,
            enable_gqa=_has_shared_heads(query, key),
        )
    return output.reshape(query.shape[:-1] + output.shape[-1:])


def _has_shared_heads(query: Any, key: Any) -> bool:
    """Whether shared heads are needed. Not every path of PyTorch supports them."""
    return bool(min(query.ndim, key.ndim) > 2 and query.shape[-3] != key.shape[-3])


def scale_deviation(*zero: Callable[[Arguments], Rows]) -> Deviation:
    """Declare that a scale that is not finite makes each row NaN, except for some rows of 0."""
    return Deviation(
        ("ERR-6",),
        "a scale of NaN or infinity is accepted, and gives NaN or 0",
        "torch/scale_not_finite",
        (Special(every_element), *(Special(row_elements(rows), (0.0,)) for rows in zero)),
    )


def rows_without_scores(arguments: Arguments) -> Rows:
    """Find the rows without a score above minus infinity: all if the scale is NaN."""
    return rows_all_below(arguments) | bool(np.isnan(arguments["scale"]))


def _rows_by_axes(arguments: Arguments) -> Rows:
    """Find the rows of 0 of the default path, which is fused for four axes and values as deep as keys."""
    fused = arguments["query"].ndim == 4 and arguments["key"].shape[-1] == arguments["value"].shape[-1]
    return rows_without_scores(arguments) if fused else rows_all_below(arguments)


#: The deviations of all paths, on a GPU too.
OF_EVERY_DEVICE = (
    Deviation(("ERR-5",), "a depth of 0 is accepted", "torch/depth_zero", OF_NO_DEPTH),
    mask_overflow("torch/masked_overflow", is_masked),
    Deviation(("MASK-6",), "a mask is added, so a query of NaN without an allowed key gives NaN",
        "torch/masked_nan_query", Special(row_elements(rows_of_nan)),
        when=lambda arguments: has_nan_query(arguments) and has_mask_or_bias(arguments)),
)  # fmt: skip
#: The deviations of all paths for the CPU.
OF_ALL = (
    *OF_EVERY_DEVICE,
    Deviation(("SHAPE-6",), "values without positions are accepted for any number of keys, and give 0",
        "torch/value_of_no_positions", Special(every_element, (0.0,)),
        when=lambda arguments: bool(arguments["value"].shape[-2] == 0 != arguments["key"].shape[-2])),
    Deviation(("HEAD-2",), "zero key heads are accepted with one query head or more, and give 0",
        "torch/no_key_heads", Special(every_element, (0.0,)),
        when=lambda arguments: 0 in arguments["key"].shape[:-2] and 0 not in arguments["query"].shape[:-2]),
)  # fmt: skip
#: For functions that take the fused path for arrays of any number of axes.
OF_SCALE = scale_deviation(rows_without_scores)
OF_MATH = (
    other_heads_of_value(
        "torch/heads_of_value", "if values and keys differ in their number of heads, heads are repeated"
    ),
)


def _with_keys_of_values(arguments: Arguments) -> Arguments:
    """Take as many keys as there are values. Missing keys are memory that nobody wrote."""
    key, count = arguments["key"], arguments["value"].shape[-2]
    missing = np.zeros((*key.shape[:-2], max(count - key.shape[-2], 0), key.shape[-1]), key.dtype)
    return {**arguments, "key": np.concatenate([key[..., :count, :], missing], axis=-2)}


def _with_missing_keys(arguments: Arguments) -> Rows:
    missing = arguments["key"].shape[-2] < arguments["value"].shape[-2]
    return np.full(arguments["query"].shape[:-1], missing)


def _with_lost_halves(arguments: Arguments) -> Arguments:
    """Leave the scores in the upper half of each vector of float32 without scale, mask and bias."""
    place, keys = np.arange(arguments["key"].shape[-2]), arguments["key"].shape[-2]
    lost = (place % _VECTOR >= _VECTOR // 2) & (place < keys // _VECTOR * _VECTOR)
    scale = arguments.get("scale", arguments["query"].shape[-1] ** -0.5)
    bias = np.where(lost, (1 - scale) * scores_of(arguments), arguments["bias"].astype(np.float64))
    mask = {"mask": lost | arguments["mask"]} if "mask" in arguments else {}
    return {**arguments, "bias": bias, **mask}


#: For functions that pass a bias of float32 beside float64 to the fused path.
OF_WIDE = Deviation(
    ("ERR-14",),
    "beside float64, half of a vector of a bias of float32 is lost, and the scale of its scores",
    "torch/flash_float64_bias",
    OtherCall(_with_lost_halves),
    dtypes=("float64",),
    when=lambda arguments: arguments["bias"].dtype == np.float32,
)
OF_FLASH = (
    Deviation(("SHAPE-6",),
        "the number of positions is that of the values: with fewer keys, memory past their end is read",
        "torch/flash_value_length",
        (Unwritten(row_elements(_with_missing_keys)), OtherCall(_with_keys_of_values)),
        when=has_other_length_of_value),
    Deviation(("SCORE-3", "MASK-3", "MASK-4"),
        "a causal mask with a scale of 0 or below gives NaN, because the mask is multiplied by the scale",
        "torch/flash_causal_scale", Special(row_elements(rows_with_disallowed)),
        when=lambda arguments: bool(arguments.get("is_causal") and arguments.get("scale", 1) <= 0)),
    Deviation(("NUM-11",), "without a mask, a query of NaN gives 0", "torch/flash_nan_query",
        Special(row_elements(rows_of_nan), (0.0,)),
        when=lambda arguments: has_nan_query(arguments) and not has_mask_or_bias(arguments)),
    Deviation(("NUM-11",),
        "from one vector of keys on (16 with AVX-512, 8 with AVX2), a score of infinity gives 0",
        "torch/flash_half_infinity", Special(row_elements(rows_of_infinity), (0.0,)),
        when=lambda arguments: has_infinity(arguments) and arguments["key"].shape[-2] >= _VECTOR,
        dtypes=("float16", "bfloat16")),
    SUMS_OF_GRADIENTS,
)  # fmt: skip


def seeded_dropout_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    dropout_p: float,
    seed: int,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
) -> Any:
    """Set the generator to the seed, and attend by the path of separate operations.

    The state of the generator is restored afterwards. PyTorch has no argument for a seed, and
    ``manual_seed`` drops the fraction of one, so only integers are passed on.
    """
    attn_mask = to_attn_mask(mask, bias, 0)
    _check_one_mask(attn_mask, is_causal=is_causal)
    options: dict[str, Any] = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    with torch.random.fork_rng(devices=[]), sdpa_kernel(SDPBackend.MATH):
        torch.manual_seed(operator.index(seed))
        return _by_default(query, key, value, attn_mask, **options)


_OF_DROPOUT = (
    Deviation(("DROP-12",), "a probability below 0 and one of NaN are accepted, and drop nothing",
        "torch/dropout_p_not_checked", OtherCall(lambda arguments: {**arguments, "dropout_p": 0.0}),
        when=lambda arguments: not arguments.get("dropout_p", 0) >= 0),
)  # fmt: skip
_OF_NESTED = (
    Deviation(("PACK-2", "PACK-7"),
        "sequences of nested tensors that have queries and no keys raise, but for some places among others",
        "torch/nested_no_keys", Raises("RuntimeError or ValueError", ""), when=has_queries_without_keys),
)  # fmt: skip


def packed_attention(
    query: Any, key: Any, value: Any, *, query_starts: Any, key_starts: Any, scale: float | None = None
) -> Any:
    """Attend within the sequences of nested tensors in the jagged layout, which cover their whole row."""
    if query.shape[-3] != key.shape[-3]:
        raise Unsupported("nested tensors do not share key heads on the CPU")
    for rows, starts in ((query, query_starts), (key, key_starts)):
        if int(starts[-1]) != rows.shape[-2] or len(starts) == 1:
            raise Unsupported("a nested tensor has sequences, which cover its whole row")
    nested = (_nest(query, query_starts), _nest(key, key_starts), _nest(value, key_starts))
    output = torch.nn.functional.scaled_dot_product_attention(*nested, scale=scale)
    return output.transpose(1, 2).values().transpose(0, 1)


def _nest(rows: Any, starts: Any) -> Any:
    """Nest an array of heads, positions and features, to sequences, heads, positions and features."""
    jagged = torch.nested.nested_tensor_from_jagged(rows.transpose(0, 1).contiguous(), offsets=starts)
    return jagged.transpose(1, 2)
