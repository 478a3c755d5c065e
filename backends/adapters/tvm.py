"""TVM: the operator ``relax.op.nn.attention``, compiled by LLVM with symbolic shapes."""

import math
from functools import cache
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import OF_NAN, Arguments, Rows, has_no_keys, pairs_of, scores_of
from attnspec.backends.adapters.deviations import bias_overflow
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import InDtype, OtherCall, Special, Unwritten, every_element, row_elements
from attnspec.backends.user.function import describe

#: The numbers of heads have letters of their own: the operator checks every other size.
_SHAPES = {"query": "blhd", "key": "bskd", "value": "bsve", "bias": "bhls"}


def attention_backend() -> Backend:
    """Run functions of one operator."""
    return describe(
        attention,
        name="tvm-attention",
        library="apache-tvm",
        dtypes=["float16", "float32", "float64"],
        layout="BSHD",
        axes=4,
        mask_axes=4,
        bias_dtype="query",
        concurrent=False,
        dialect={"MASK-2": "added", "NUM-5": {"float16": "storage"}},
        deviations=_DEVIATIONS,
        versions=">=0.27,<0.28",
    )


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    scale: float | None = None,
    bias: Any = None,
    is_causal: bool = False,
    query_offset: Any = 0,
) -> Any:
    """Express causality as ``TopLeft``, or as ``BottomRight`` if the last query is at the last key."""
    require_axes(4, query, key, value)
    arrays = [query, key, value]
    queries, keys = query.shape[1], key.shape[1]
    if 0 in (key.shape[2], value.shape[2]):
        raise Unsupported("zero key heads end the process; see the finding tvm/no_key_heads")
    causal = "TopLeft" if is_causal else None
    if is_causal and np.any(query_offset):
        if np.ndim(query_offset) or query_offset != keys - queries or query_offset < 0:
            raise Unsupported(
                "causal_mask aligns the first query with the first key, or the last with the last"
            )
        causal = "BottomRight"
    if bias is not None:
        shape = (query.shape[0], query.shape[2], queries, keys)
        arrays.append(broadcast(np, bias, shape))
    run = _function(query.dtype.name, len(arrays), causal, None if scale is None else float(scale))
    return run(*[tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays]).numpy()


@cache
def _function(dtype: str, count: int, causal: str | None, scale: float | None) -> Any:
    """Compile the operator for a number of arrays and its attributes."""
    sizes = {letter: tirx.Var(letter, "int64") for letter in "blshkvde"}
    inputs = [
        relax.Var(name, relax.TensorType([sizes[letter] for letter in letters], dtype))
        for name, letters in list(_SHAPES.items())[:count]
    ]
    builder = relax.BlockBuilder()
    with builder.function("attention", inputs):
        with builder.dataflow():
            result = relax.op.nn.attention(*inputs, scale=scale, causal_mask=causal)
            output = builder.emit_output(builder.emit(result))
        builder.emit_func_output(output)
    return relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())["attention"]


def _is_far_below_zero(arguments: Arguments) -> bool:
    """Whether a call is causal and a score may be far below 0, as far as the arrays tell."""
    query, key = (np.abs(arguments[name].astype(np.float64)) for name in ("query", "key"))
    if not arguments.get("is_causal") or not query.size or not key.size:
        return False
    # The exponential of less than -17 is 0 in float16, and that of less than -104 in float32.
    lowest = 16 if arguments["query"].dtype == np.float16 else 80
    return bool(query.max() * key.max() * query.shape[-1] > lowest)


def _rows_far_below(arguments: Arguments) -> Rows:
    """Find the rows whose scores are all so far below 0 that their exponentials are 0."""
    lowest = 16 if arguments["query"].dtype == np.float16 else 80
    scale = arguments.get("scale", arguments["query"].shape[-1] ** -0.5)
    scores = scores_of(arguments) * scale + np.asarray(arguments.get("bias", 0.0)).astype(np.float64)
    return np.asarray((np.where(pairs_of(arguments), scores, -np.inf) < -lowest).all(axis=-1))


def _with_heads_in_memory(arguments: Arguments) -> Arguments:
    """Give each query head of the batch the next key head in memory, and none past the last."""
    outer = arguments["query"].shape[:-2]

    def align(array: NDArray[Any]) -> NDArray[Any]:
        aligned = np.zeros((math.prod(outer), *array.shape[-2:]), array.dtype)
        flat = array.reshape(-1, *array.shape[-2:])[: len(aligned)]
        aligned[: len(flat)] = flat
        return aligned.reshape(*outer, *array.shape[-2:])

    return {**arguments, **{name: align(arguments[name]) for name in ("key", "value")}}


def _past_the_end(arguments: Arguments) -> dict[str, NDArray[np.bool_]]:
    """Mean the results of the query heads for which there is no key head, or no value head, in memory."""
    heads = arguments["query"].shape[:-2]
    last = min(math.prod(arguments[name].shape[:-2]) for name in ("key", "value"))
    past = np.arange(math.prod(heads)) >= last
    return dict.fromkeys(("output", "weights"), past.reshape(*heads, 1, 1))


_DEVIATIONS = (
    Deviation(("HEAD-1", "HEAD-2"),
        "the numbers of heads are not checked: heads are paired in the order of memory, and past its end",
        "tvm/other_heads", (Unwritten(_past_the_end), OtherCall(_with_heads_in_memory)),
        when=lambda arguments: len({arguments[name].shape[-3] for name in ("query", "key", "value")}) > 1),
    Deviation(("NUM-1",), "beside a scale the output of float16 has the dtype float32", "tvm/float16_scale",
        InDtype("float32"), dtypes=("float16",), when=lambda arguments: arguments.get("scale") is not None),
    Deviation(("SOFT-2", "MASK-4"), "beside causal_mask a row whose scores are all far below 0 is NaN",
        "tvm/causal_maximum", Special(row_elements(_rows_far_below)), when=_is_far_below_zero),
    Deviation(("MASK-6", "SHAPE-7"), "without keys the result is not written", "tvm/no_keys",
        Unwritten(every_element), when=has_no_keys),
    bias_overflow("tvm/bias_overflow", "float16", rules=("MASK-12", "MASK-4")),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "tvm/not_checked", OF_NAN),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "tvm/not_checked", OF_NAN),
)  # fmt: skip
