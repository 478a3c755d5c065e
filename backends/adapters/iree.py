"""IREE: the operation ``iree_linalg_ext.attention``, compiled for the CPU."""

from functools import cache
from typing import Any

import iree.compiler
import iree.runtime
import numpy as np

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_NO_DEPTH,
    Arguments,
    has_bias_beyond_differences,
    has_mask_or_bias,
    has_no_keys,
    rows_below,
)
from attnspec.backends.adapters.deviations import mask_overflow
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import OtherCall, Special, row_elements
from attnspec.backends.user.function import describe

#: A module of one function. All sizes are dynamic but the depth. See the finding `iree/dynamic_depth`.
_SOURCE = """
#query = affine_map<(b, i, c, d, j) -> (b, i, d)>
#key = affine_map<(b, i, c, d, j) -> (b, j, d)>
#value = affine_map<(b, i, c, d, j) -> (b, j, c)>
#scale = affine_map<(b, i, c, d, j) -> ()>
#mask = affine_map<(b, i, c, d, j) -> (b, i, j)>
#output = affine_map<(b, i, c, d, j) -> (b, i, c)>
!deep = tensor<?x?xDEPTHxTYPE>
!arrays = tensor<?x?x?xTYPE>
func.func @attention(
    %query: !deep, %key: !deep, %value: !arrays, %given: tensor<TYPE>, %mask: tensor<?x?x?xOF_MASK>
) -> !arrays {
  %scale = tensor.extract %given[] : tensor<TYPE>
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %2 = arith.constant 2 : index
  %heads = tensor.dim %query, %0 : !deep
  %queries = tensor.dim %query, %1 : !deep
  %depth = tensor.dim %value, %2 : !arrays
  %empty = tensor.empty(%heads, %queries, %depth) : !arrays
  %found = iree_linalg_ext.attention <{indexing_maps = [#query, #key, #value, #scaleMAP, #output]}>
      ins(%query, %key, %value, %scaleNAME : !deep, !deep, !arrays, TYPEADDED)
      outs(%empty : !arrays) {
    ^bb0(%score: f32): iree_linalg_ext.yield %score : f32
  } -> !arrays
  return %found : !arrays
}
"""
_TYPES = {"float16": "f16", "float32": "f32", "bool": "i1"}


def attention_backend() -> Backend:
    """Run modules of one operation. Batch entries and heads share an axis."""
    return describe(
        attention,
        name="iree-attention",
        library="iree-base-compiler",
        dtypes=["float16", "float32"],
        axes=4,
        mask_axes=4,
        heads="equal",
        bias_dtype="query",
        given=["scale"],
        concurrent=False,
        deviations=_DEVIATIONS,
        dialect={"MASK-2": "added", "MASK-6": "nan", "NUM-5": {"float16": "storage"}},
        versions=">=3.13,<3.14",
    )


def attention(query: Any, key: Any, value: Any, *, scale: float, mask: Any = None, bias: Any = None) -> Any:
    """Pass a mask of booleans or a bias as the operand `mask`."""
    if mask is not None and bias is not None:
        raise Unsupported("the operation takes one mask")
    if mask is not None and mask.dtype != bool:
        raise Unsupported(f"mask: expected booleans, got {mask.dtype}")
    if query.dtype.name not in _TYPES or not query.dtype == key.dtype == value.dtype:
        raise Unsupported("query, key, value: expected arrays of float16 or float32, all of one dtype")
    require_axes(4, query, key, value)
    shape = (*query.shape[:-1], key.shape[-2])
    if key.shape != (*shape[:2], shape[3], query.shape[-1]) or value.shape[:-1] != key.shape[:-1]:
        raise Unsupported("query, key, value: expected shapes that fit, as the operation does not check them")
    added = mask if bias is None else bias
    arrays = [query, key, value] if added is None else [query, key, value, broadcast(np, added, shape)]
    folded = [np.ascontiguousarray(x).reshape(x.shape[0] * x.shape[1], *x.shape[2:]) for x in arrays]
    run = _function(query.dtype.name, "" if added is None else added.dtype.name, query.shape[-1])
    output = run(*folded[:3], np.array(scale, query.dtype), *folded[3:])
    return np.array(output.to_host()).reshape(*shape[:3], value.shape[-1])


@cache
def _function(dtype: str, mask: str, depth: int) -> Any:
    """Compile the operation for a dtype, the dtype of a mask, or none, and a depth."""
    kind = _TYPES[dtype]
    text = _SOURCE if mask else _SOURCE.replace(", %mask: tensor<?x?x?xOF_MASK>", "")
    of_mask = _TYPES.get(mask, "")
    words = {"MAP": ", #mask", "NAME": ", %mask", "ADDED": f", tensor<?x?x?x{of_mask}>"}
    for word, there in words.items():
        text = text.replace(word, there if mask else "")
    text = text.replace("OF_MASK", of_mask).replace("TYPE", kind).replace("DEPTH", str(depth))
    options = {"target_backends": ["llvm-cpu"], "extra_args": ["--iree-llvmcpu-target-cpu=host"]}
    module = iree.compiler.compile_str(text, **options)
    context = iree.runtime.SystemContext(config=iree.runtime.Config("local-sync"))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, module))
    return context.modules.module["attention"]


def _with_tiles_as_keys(arguments: Arguments) -> Arguments:
    """Make a key of each tile of its features. The softmax runs over all of them."""
    query, key = arguments["query"], arguments["key"]
    depth, keys = key.shape[-2:][::-1]
    tile = next(size for size in range(16, 0, -1) if depth % size == 0)
    tiles = range(0, depth, tile)
    parts = [np.where(np.arange(depth) // tile * tile == start, key, 0) for start in tiles]
    whole = {
        name: np.broadcast_to(arguments[name], (*query.shape[:-1], keys))
        for name in ("mask", "bias")
        if name in arguments
    }
    return {
        **arguments,
        "key": np.concatenate(parts, axis=-2).astype(key.dtype),
        "value": np.concatenate([arguments["value"]] * len(tiles), axis=-2),
        **{name: np.concatenate([array] * len(tiles), axis=-1) for name, array in whole.items()},
    }


_DEVIATIONS = (
    Deviation(("SCORE-1", "SCORE-3", "SCORE-4", "SOFT-3", "MASK-1", "MASK-2", "MASK-6"),
        "with a depth above 128 each tile of the features of a key counts as a key", "iree/deep",
        OtherCall(_with_tiles_as_keys), when=lambda arguments: arguments["query"].shape[-1] > 128),
    Deviation(("MASK-6", "SHAPE-7"), "without keys the result is NaN", "iree/no_keys", OF_NAN,
        when=has_no_keys),
    Deviation(("MASK-5",), "a row whose keys all have the lowest bias is NaN", "iree/lowest_bias",
        Special(row_elements(rows_below(1e38))),
        when=lambda arguments: has_bias_beyond_differences(arguments, 1e38)),
    mask_overflow("iree/masked_overflow", has_mask_or_bias),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted, and gives NaN", "iree/not_checked",
        OF_NAN),
    Deviation(("ERR-5",), "values of depth 0 are accepted", "iree/not_checked", OF_NO_DEPTH),
)  # fmt: skip
