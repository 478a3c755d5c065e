"""PyTorch: ``flex_attention``, run eagerly, and compiled as far as compilation for a CPU is fast enough."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
import torch._dynamo
from numpy.typing import NDArray
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import (
    OF_NO_DEPTH,
    OF_OTHER_TYPES,
    Arguments,
    Rows,
    has_nan_query,
    has_no_keys,
    has_other_heads_of_value,
    has_other_length_of_value,
    has_row_below,
    pairs_of,
    rows_all_below,
    rows_of_nan,
)
from attnspec.backends.adapters.deviations import bias_overflow, other_heads_of_value
from attnspec.backends.adapters.torch import VERSIONS, to_four_axes
from attnspec.backends.backend import Backend
from attnspec.backends.constraints import Constraints
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.library import load_library
from attnspec.backends.outcome import (
    NoArray,
    Raises,
    Special,
    Unwritten,
    every_element,
    row_elements,
)

#: The size of a block that PyTorch takes by default.
_DEFAULT = 128


def eager_backend() -> Backend:
    """Run it without compilation."""
    library = load_library("torch")
    companions = {"block_sparse_attention": _block_sparse}
    made = Backend(
        "torch-flex", library, _flex, library.dtypes, companions, deviations=_OF_EAGER, versions=VERSIONS
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
            raise Unsupported(f"{name}: expected a size of 1 or more, got {size}")
    for name, flag in (("is_causal", is_causal), ("return_lse", return_lse)):
        if not isinstance(flag, bool):
            raise Unsupported(f"{name}: expected True or False, got {flag!r}")
    if block_mask is None:
        return _attend(query, key, value, scale, bias, mask, is_causal=is_causal, return_lse=return_lse)
    rows, columns = -(-query.shape[-2] // query_block), -(-key.shape[-2] // key_block)
    if block_mask.dtype != torch.bool:
        raise Unsupported(f"block_mask: expected booleans, got {block_mask.dtype}")
    blocks = broadcast(torch, block_mask, (*query.shape[:-2], rows, columns))
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
    require_axes(2, query, key, value)
    outer, (queries, keys) = query.shape[:-2], (query.shape[-2], key.shape[-2])
    flat = [to_four_axes(array) for array in (query, key, value)]
    batch, heads = flat[0].shape[:2]
    block_mask = None
    if mask is not None or blocks is not None or is_causal:
        allowed = None if mask is None else broadcast(torch, mask, (*outer, queries, keys))
        # flex_attention accepts a function of any dtype as a mask, so the dtype is checked here.
        if allowed is not None and allowed.dtype != torch.bool:
            raise Unsupported(f"mask: expected booleans, got {allowed.dtype}")
        allowed = None if allowed is None else allowed.reshape(batch, heads, queries, keys)

        def may_attend(b: Any, h: Any, i: Any, j: Any) -> Any:
            shown = i >= j if is_causal else i >= 0
            shown = shown if blocks is None else shown & blocks[b, h, i // sizes[0], j // sizes[1]]
            return shown if allowed is None else shown & allowed[b, h, i, j]

        block_mask = create_block_mask(may_attend, batch, heads, queries, keys, "cpu", BLOCK_SIZE=sizes)
    score_mod = None
    if bias is not None:
        if not bias.dtype.is_floating_point:
            raise Unsupported(f"bias: expected floating-point numbers, got {bias.dtype}")
        added = broadcast(torch, bias, (*outer, queries, keys)).reshape(batch, heads, queries, keys)

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


def _rows_of_lowest(arguments: Arguments) -> Rows:
    """Find the rows whose biases are all close to the lowest number of float32, or below it."""
    shape = (*arguments["query"].shape[:-1], arguments["key"].shape[-2])
    low = np.broadcast_to(arguments["bias"].astype(np.float64) < -3.3e38, shape)
    return np.asarray((low | ~pairs_of(arguments)).all(axis=-1))


def _integer_elements(arguments: Arguments) -> Mapping[str, NDArray[np.bool_]]:
    return {"output": np.asarray(arguments["query"].dtype.kind in "biu")}


_OF_SCALE = (
    Special(every_element, (np.nan, np.inf)),
    Special(row_elements(rows_all_below), (0.0, -np.inf)),
)
_OF_EAGER = (
    Deviation(("ERR-2",),
        "keys and values of other types are converted; with a query of integers, weights are integers",
        "torch/flex_integers", (Special(_integer_elements, (0.0,)), *OF_OTHER_TYPES)),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "torch/flex_depth_zero", OF_NO_DEPTH),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "torch/flex_scale_not_finite", _OF_SCALE),
    other_heads_of_value("torch/flex_heads_of_value",
        "if values and keys differ in their number of heads, heads are repeated"),
    Deviation(("SHAPE-7", "MASK-6"), "it raises an error if there are no keys", "torch/flex_no_keys",
        Raises("RuntimeError or ValueError or IndexError", ""), when=has_no_keys),
    Deviation(("SHAPE-7", "SHAPE-3"), "the requested lse is None if there are no queries",
        "torch/flex_no_queries", NoArray("lse"), when=lambda arguments: 0 in arguments["query"].shape[:-1]),
    bias_overflow("torch/flex_bias_overflow"),
    Deviation(("SOFT-6", "MASK-5", "NUM-5"),
        "the lse of a row whose scores are all the lowest finite number is minus infinity",
        "torch/flex_lse_of_lowest", Special(row_elements(_rows_of_lowest), (-np.inf,)),
        when=lambda arguments: has_row_below(arguments, 3.3e38), outputs=("lse",)),
)  # fmt: skip


#: With more forms than this limit, PyTorch would continue without compilation.
_FORMS = {
    "recompile_limit": 1000,
    "accumulated_recompile_limit": 1000,
    "fail_on_recompile_limit_hit": True,
}


def compiled_backend() -> Backend:
    """Run it compiled.

    Each combination of a number of heads, a depth and a causal mask takes about five seconds to
    compile. Therefore only float32 and four axes are supported. There is no scale, because each
    number is compiled separately. There are no mask and bias, because the code that looks them up
    does not compile (`torch/flex_compiled_mask`). It returns no lse.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BackendError(
            f"backend torch-flex-compiled: expected a C++ compiler, {compiler} or that of CXX, got none"
        )
    library = load_library("torch")
    made = Backend(
        "torch-flex-compiled",
        library,
        _compiled_attention,
        ("float32",),
        deviations=_OF_COMPILED,
        versions=VERSIONS,
    )
    return replace(made, concurrent=False)  # the settings of the compiler hold for all threads


def cuda_backend() -> Backend:
    """Run it compiled for a GPU, with the restrictions of `compiled_backend` but the axes and dtypes."""
    if not torch.cuda.is_available():
        raise BackendError(
            f"backend torch-cuda-flex: expected a GPU for PyTorch {torch.__version__}, got none"
        )
    return Backend(
        "torch-cuda-flex",
        load_library("torch"),
        _compiled_attention,
        ("float16", "bfloat16", "float32"),
        device="cuda",
        versions=">=2.11,<2.12",
        constraints=Constraints(depths=(16, 64)),
        concurrent=False,
    )


@cache
def _compile() -> Any:
    return torch.compile(flex_attention, dynamic=True, fullgraph=True)


def _compiled_attention(query: Any, key: Any, value: Any, *, is_causal: bool = False) -> Any:
    if query.ndim != 4:
        raise Unsupported(
            "only four axes are supported, because any other number would have to be compiled too"
        )
    queries, keys = query.shape[-2], key.shape[-2]
    if 1 in (queries, keys):
        raise Unsupported("one query or one key is not supported, because it would have to be compiled too")
    # Both calls would end the process and thus the run. They are in the findings instead of the verdicts.
    if not keys:
        raise Unsupported("a call without keys kills the process: torch/flex_compiled_no_keys")
    if not value.shape[-2]:
        raise Unsupported("a call without values kills the process: torch/flex_compiled_no_values")
    block_mask = None
    if is_causal:
        block_mask = create_block_mask(_not_after, None, None, queries, keys, device=query.device)
    with torch._dynamo.config.patch(**_FORMS):  # noqa: SLF001 - these settings are not public
        return _compile()(
            query, key, value, block_mask=block_mask, enable_gqa=bool(query.shape[1] != key.shape[1])
        )


def _not_after(_batch: Any, _head: Any, i: Any, j: Any) -> Any:
    return i >= j


_OF_COMPILED = (
    Deviation(("NUM-11",), "a query of NaN gives 0", "torch/flex_compiled_nan_query",
        Special(row_elements(rows_of_nan), (0.0,)), when=has_nan_query),
    Deviation(("SHAPE-6",), "a number of batch entries of value other than that of key is accepted",
        "torch/flex_compiled_batch_of_value", Unwritten(every_element),
        when=lambda arguments: bool(arguments["key"].shape[:-3] != arguments["value"].shape[:-3])),
    Deviation(("SHAPE-6",),
        "with fewer values than keys, values are read past their end; additional values are ignored",
        "torch/flex_compiled_value_length", Unwritten(every_element), when=has_other_length_of_value),
    Deviation(("HEAD-2",), "a number of heads of value other than that of key is accepted",
        "torch/flex_compiled_heads_of_value", Unwritten(every_element), when=has_other_heads_of_value),
)  # fmt: skip
