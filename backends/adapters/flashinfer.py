"""FlashInfer on a GPU: attention of one batch entry, packed sequences, pages, and merges of partial results.

Kernels are compiled when they are first called. Those of ``fa2`` run on all GPUs.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import flashinfer
import numpy as np
import torch

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import Arguments, Rows, has_several_dtypes, pairs_of, scores_of
from attnspec.backends.adapters.torch import to_four_axes
from attnspec.backends.backend import Backend
from attnspec.backends.constraints import Constraints
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.outcome import Bound, OtherCall, Unwritten, every_element, row_elements
from attnspec.dtypes import SHORT

_KERNEL = "fa2"
#: Words of the messages of calls that it does not offer.
_DECLINED = ("mask_mode is set to MaskMode::kCausal", "does not match qo_indptr", "Unsupported head_dim")
#: Bytes of the buffer that the wrappers share.
_WORKSPACE = 1 << 27


def fa2_backend() -> Backend:
    """Run the kernels for all GPUs."""
    if not torch.cuda.is_available():
        raise BackendError(
            f"backend flashinfer-fa2: expected a GPU for PyTorch {torch.__version__}, got none"
        )
    return Backend(
        "flashinfer-fa2",
        replace(load_library("torch"), name="flashinfer", version=flashinfer.__version__),
        attention,
        SHORT,
        {
            "packed_attention": packed_attention,
            "paged_attention": paged_attention,
            "merge_partials": merge_partials,
        },
        dialect={
            "MASK-3": "bottom-right",
            "PACK-5": "bottom-right",
            "SOFT-6": "base-2",
            "SOFT-7": "finite",
        },
        deviations=_DEVIATIONS,
        device="cuda",
        versions=">=0.6,<0.7",
        constraints=Constraints(depths=(64, 128), value_depth="key"),
        concurrent=False,  # the wrappers share a buffer
    )


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    mask: Any = None,
    is_causal: bool = False,
    window: Any = None,
    return_lse: bool = False,
) -> Any:
    """Call ``single_prefill_with_kv_cache`` for each batch entry."""
    require_axes(2, query, key, value)
    _check_sizes(query, key)
    outer, pairs = query.shape[:-2], (query.shape[-2], key.shape[-2])
    flat = [to_four_axes(array) for array in (query, key, value)]
    if len({len(array) for array in flat}) > 1:
        raise Unsupported("a call has one batch entry")
    masks = None if mask is None else _masks_of_entries(mask, outer, pairs)
    results = [
        _run(
            flashinfer.single_prefill_with_kv_cache,
            *(array.transpose(0, 1).contiguous() for array in entry),
            custom_mask=None if masks is None else masks[b],
            causal=is_causal,
            sm_scale=scale,
            window_left=_left_of(window, is_causal=is_causal),
            logits_soft_cap=softcap,
            backend=_KERNEL,
            return_lse=True,
        )
        for b, entry in enumerate(zip(*flat, strict=True))
    ]
    output, lse = (
        torch.stack([part.transpose(0, 1) for part in parts]) for parts in zip(*results, strict=True)
    )
    output = output.reshape((*query.shape[:-1], value.shape[-1]))
    return (output, lse.reshape(query.shape[:-1])) if return_lse else output


def _check_sizes(query: Any, key: Any) -> None:
    """Decline what ends the process: the findings `flashinfer/no_queries` and `flashinfer/too_few_heads`."""
    if 0 in query.shape or 0 in key.shape[:-2] or query.shape[:-2][-1:] < key.shape[:-2][-1:]:
        raise Unsupported("a call without queries or heads, or with fewer than key heads, ends the process")


def _run(function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    """Call a function, whose error for a call that it does not offer is one of its documentation."""
    try:
        return function(*arrays, **options)
    except (RuntimeError, ValueError) as error:
        if any(words in str(error) for words in _DECLINED):
            raise Unsupported(str(error)) from None
        raise


def _masks_of_entries(mask: Any, outer: tuple[int, ...], pairs: tuple[int, int]) -> Any:
    if mask.dtype != torch.bool:
        raise Unsupported(f"mask: expected booleans, got {mask.dtype}")
    if mask.ndim > 2 and mask.shape[-3] != 1:
        raise Unsupported("a mask is for all heads")
    whole = to_four_axes(broadcast(torch, mask, (*outer[:-1], 1, *pairs)))
    return whole[:, 0].contiguous()


def _left_of(window: Any, *, is_causal: bool) -> int:
    left, right = window or (None, None)
    if right is not None and not (right == 0 and is_causal):
        raise Unsupported("a window ends at the query with causal, and has no end without")
    if left is not None and left < 0:
        raise Unsupported("window_left is the number of keys, or -1 for all")
    return -1 if left is None else left


@cache
def _workspace() -> Any:
    return torch.empty(_WORKSPACE, dtype=torch.uint8, device="cuda")


def packed_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    query_starts: Any,
    key_starts: Any,
    scale: float | None = None,
    softcap: float | None = None,
    is_causal: bool = False,
    window: Any = None,
    return_lse: bool = False,
) -> Any:
    """Plan and run ``BatchPrefillWithRaggedKVCacheWrapper``."""
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(_workspace(), "NHD", backend=_KERNEL)
    wrapper.plan(
        query_starts.to(torch.int32),
        key_starts.to(torch.int32),
        query.shape[0],
        key.shape[0],
        query.shape[-1],
        causal=is_causal,
        window_left=_left_of(window, is_causal=is_causal),
        logits_soft_cap=softcap,
        sm_scale=scale,
        q_data_type=query.dtype,
        kv_data_type=key.dtype,
    )
    rows = [array.transpose(0, 1).contiguous() for array in (query, key, value)]
    output, lse = _run(wrapper.run, *rows, return_lse=True)
    return (output.transpose(0, 1), lse.transpose(0, 1)) if return_lse else output.transpose(0, 1)


def paged_attention(
    query: Any,
    key_pages: Any,
    value_pages: Any,
    *,
    block_table: Any,
    key_lengths: Any,
    scale: float | None = None,
    softcap: float | None = None,
    is_causal: bool = False,
    window: Any = None,
    return_lse: bool = False,
) -> Any:
    """Plan and run ``BatchPrefillWithPagedKVCacheWrapper`` on as many queries of each sequence."""
    alone = query.ndim == 3
    query, block_table = (query[None], block_table[None]) if alone else (query, block_table)
    _check_sizes(query, key_pages)
    batch, heads, queries, depth = query.shape
    size = key_pages.shape[-2]
    lengths = torch.as_tensor(key_lengths, device="cuda").expand(batch)
    counts = (lengths + size - 1) // size
    ends = torch.cumsum(counts, 0)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(_workspace(), "HND", backend=_KERNEL)
    wrapper.plan(
        torch.arange(batch + 1, device="cuda", dtype=torch.int32) * queries,
        torch.cat([ends.new_zeros(1), ends]).to(torch.int32),
        torch.cat([row[:count] for row, count in zip(block_table, counts.tolist(), strict=True)]).to(
            torch.int32
        ),
        (lengths - (counts - 1).clamp(min=0) * size).to(torch.int32),
        heads,
        key_pages.shape[-3],
        depth,
        size,
        causal=is_causal,
        window_left=_left_of(window, is_causal=is_causal),
        logits_soft_cap=softcap,
        sm_scale=scale,
        q_data_type=query.dtype,
        kv_data_type=key_pages.dtype,
    )
    rows = query.transpose(1, 2).reshape(batch * queries, heads, depth).contiguous()
    output, lse = wrapper.run(rows, (key_pages.contiguous(), value_pages.contiguous()), return_lse=True)
    output = output.reshape(batch, queries, heads, depth).transpose(1, 2)
    lse = lse.reshape(batch, queries, heads).transpose(1, 2)
    output, lse = (output[0], lse[0]) if alone else (output, lse)
    return (output, lse) if return_lse else output


def merge_partials(outputs: Any, lses: Any, *, return_lse: bool = False) -> Any:
    """Call ``merge_states``, which has the parts on the axis after that of the rows."""
    shape = outputs.shape[1:]
    parts, depth = outputs.shape[0], shape[-1]
    heads = shape[-3] if len(shape) > 2 else 1
    states = outputs.reshape(parts, -1, heads, shape[-2], depth).permute(1, 3, 0, 2, 4)
    given = lses.reshape(parts, -1, heads, shape[-2]).permute(1, 3, 0, 2)
    rows = states.shape[0] * states.shape[1]
    output, lse = _run(
        flashinfer.merge_states,
        states.reshape(rows, parts, heads, depth).contiguous(),
        given.reshape(rows, parts, heads).contiguous(),
    )
    output = output.reshape(-1, shape[-2], heads, depth).transpose(1, 2).reshape(shape)
    return (
        (output, lse.reshape(-1, shape[-2], heads).transpose(1, 2).reshape(shape[:-1]))
        if return_lse
        else output
    )


def _rows_far_below(arguments: Arguments) -> Rows:
    """Find the rows whose allowed dot products are all near the constant for disallowed ones, or below."""
    dots = np.where(pairs_of(arguments), scores_of(arguments), -np.inf)
    return np.asarray(dots.max(axis=-1, initial=-np.inf) < _FAR)


#: The constant that FlashInfer has for minus infinity is -5e4, to which float16 adds its rounding.
_FAR = -4.9e4
_DEVIATIONS = (
    Deviation(("SCORE-3", "STACK-2", "PACK-1", "PAGE-1", "ERR-13"),
        "a scale of 0 or below gives NaN or other numbers", "flashinfer/scale",
        Unwritten(every_element), when=lambda arguments: arguments.get("scale", 1) <= 0),
    # A weight of bfloat16 is off by 2^-9 at most, so the lse by 2^-9 / log(2): 20 budgets at an lse near 1.
    Deviation(("NUM-5",), "the lse is that of weights rounded to half precision", "flashinfer/lse_of_weights",
        Bound(20), outputs=("lse",), when=lambda _: True),
    Deviation(("MASK-4", "SOFT-4"), "is_causal has no effect beside a mask", "flashinfer/causal_and_mask",
        OtherCall(lambda arguments: {**arguments, "is_causal": False}),
        when=lambda arguments: bool(arguments.get("is_causal")) and "mask" in arguments),
    Deviation(("SOFT-2",), "a row whose dot products are all below -5e4 is treated as an empty one",
        "flashinfer/far_below", Unwritten(row_elements(_rows_far_below)),
        when=lambda arguments: bool(_rows_far_below(arguments).any())),
    Deviation(("SCORE-5",), "the number for a disallowed score is multiplied by the softcap, so it is near 0",
        "flashinfer/small_softcap", Unwritten(every_element),
        when=lambda arguments: 0 < arguments.get("softcap", 1) < 1e-3),
    Deviation(("SHAPE-6", "HEAD-2", "SCORE-6", "ERR-2", "ERR-6"),
        "shapes and dtypes of values, an infinite scale and a softcap below 0 are not checked",
        "flashinfer/not_checked", Unwritten(every_element)),
    Deviation(("ERR-1", "SHAPE-6"), "an array of another dtype is read in that of another array",
        "flashinfer/not_checked", Unwritten(every_element), when=has_several_dtypes),
)  # fmt: skip
