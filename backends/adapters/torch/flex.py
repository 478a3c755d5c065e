"""PyTorch: ``flex_attention``, run eagerly. Masks and biases are passed as functions that look them up."""

from dataclasses import replace
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnspec.backends.adapters.conditions import (
    has_other_heads_of_value,
    has_overflowing_score,
    has_row_below,
)
from attnspec.backends.adapters.torch import VERSIONS
from attnspec.backends.adapters.torch.arguments import to_four_axes
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.library import load_library

#: The size of a block that PyTorch takes by default.
_DEFAULT = 128


def eager_backend() -> Backend:
    """Run it without compilation."""
    library = load_library("torch")
    companions = {"block_sparse_attention": _block_sparse}
    made = Backend(
        "torch-flex", library, _flex, library.dtypes, companions, deviations=_DEVIATIONS, versions=VERSIONS
    )
    return replace(made, concurrent=False)  # the stance of the compiler holds for all threads


def _flex(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
    return_lse: bool = False,
) -> Any:
    return _attend(query, key, value, scale, bias, mask, is_causal=is_causal, return_lse=return_lse)


def _block_sparse(
    query: Any,
    key: Any,
    value: Any,
    *,
    query_block: int,
    key_block: int,
    block_mask: Any = None,
    scale: float | None = None,
    bias: Any = None,
    mask: Any = None,
    is_causal: bool = False,
    return_lse: bool = False,
) -> Any:
    for name, size in (("query_block", query_block), ("key_block", key_block)):
        if size < 1:  # create_block_mask divides by the sizes
            raise ValueError(f"{name}: expected a size of 1 or more, got {size}")
    if block_mask is None:
        return _attend(query, key, value, scale, bias, mask, is_causal=is_causal, return_lse=return_lse)
    rows, columns = -(-query.shape[-2] // query_block), -(-key.shape[-2] // key_block)
    if block_mask.dtype != torch.bool:
        raise TypeError(f"block_mask: expected booleans, got {block_mask.dtype}")
    blocks = torch.broadcast_to(block_mask, (*query.shape[:-2], rows, columns))
    blocks = blocks.reshape(*to_four_axes(query).shape[:2], rows, columns)
    sizes = query_block, key_block
    return _attend(
        query, key, value, scale, bias, mask, blocks, sizes, is_causal=is_causal, return_lse=return_lse
    )


def _attend(
    query: Any,
    key: Any,
    value: Any,
    scale: float | None,
    bias: Any,
    mask: Any,
    blocks: Any = None,
    sizes: tuple[int, int] = (_DEFAULT, _DEFAULT),
    *,
    is_causal: bool,
    return_lse: bool,
) -> Any:
    outer, (queries, keys) = query.shape[:-2], (query.shape[-2], key.shape[-2])
    flat = [to_four_axes(array) for array in (query, key, value)]
    batch, heads = flat[0].shape[:2]
    block_mask = None
    if mask is not None or blocks is not None or is_causal:
        allowed = None if mask is None else torch.broadcast_to(mask, (*outer, queries, keys))
        # flex_attention accepts a function of any dtype as a mask, so the dtype is checked here.
        if allowed is not None and allowed.dtype != torch.bool:
            raise TypeError(f"mask: expected booleans, got {allowed.dtype}")
        allowed = None if allowed is None else allowed.reshape(batch, heads, queries, keys)

        def may_attend(b: Any, h: Any, i: Any, j: Any) -> Any:
            shown = i >= j if is_causal else i >= 0
            shown = shown if blocks is None else shown & blocks[b, h, i // sizes[0], j // sizes[1]]
            return shown if allowed is None else shown & allowed[b, h, i, j]

        block_mask = create_block_mask(may_attend, batch, heads, queries, keys, "cpu", BLOCK_SIZE=sizes)
    score_mod = None
    if bias is not None:
        if not bias.dtype.is_floating_point:
            raise TypeError(f"bias: expected floating-point numbers, got {bias.dtype}")
        added = torch.broadcast_to(bias, (*outer, queries, keys)).reshape(batch, heads, queries, keys)

        def score_mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return score + added[b, h, i, j]

    with torch.compiler.set_stance("force_eager"):  # otherwise it is traced again for every shape
        returned = flex_attention(
            *flat,
            score_mod=score_mod,
            block_mask=block_mask,
            scale=scale,
            enable_gqa=bool(flat[0].shape[1] != flat[1].shape[1]),
            return_lse=return_lse,
        )
    output, lse = returned if return_lse else (returned, None)
    output = output.reshape(*outer, queries, value.shape[-1])
    if lse is not None:
        lse = lse.reshape(*outer, queries)
    return (output, lse) if return_lse else output


_DEVIATIONS = (
    Deviation(("ERR-2",), "arrays of integers are accepted", "torch/flex_integers"),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "torch/flex_depth_zero"),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "torch/flex_scale_not_finite"),
    Deviation(
        ("HEAD-2",),
        "if values and keys differ in their number of heads, heads are repeated",
        "torch/flex_heads_of_value",
        when=has_other_heads_of_value,
    ),
    Deviation(
        ("SHAPE-7", "MASK-6"),
        "it raises an error if there are no keys",
        "torch/flex_no_keys",
        when=lambda arguments: bool(arguments["key"].shape[-2] == 0),
    ),
    Deviation(
        ("SHAPE-7", "SHAPE-3"),
        "the requested lse is None if there are no queries",
        "torch/flex_no_queries",
        when=lambda arguments: 0 in arguments["query"].shape[:-1],
    ),
    Deviation(
        ("MASK-12",),
        "a bias of minus infinity is added, and the score of a finite key may be infinite: the row is NaN",
        "torch/flex_bias_overflow",
        when=lambda arguments: "bias" in arguments and has_overflowing_score(arguments),
    ),
    Deviation(
        ("SOFT-6", "MASK-5", "NUM-5"),
        "the lse of a row whose scores are all the lowest finite number is minus infinity",
        "torch/flex_lse_of_lowest",
        when=lambda arguments: has_row_below(arguments, 3.3e38),
        outputs=("lse",),
    ),
)
