"""ExecuTorch: the operator ``llama::custom_sdpa``, run from PyTorch."""

from typing import Any

import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401 - it registers the operator
from numpy.typing import NDArray

from attnspec.backends.adapters.broadcast import broadcast, require_axes
from attnspec.backends.adapters.conditions import OF_NAN, rows_with_disallowed
from attnspec.backends.adapters.deviations import bias_overflow
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import Special, Unwritten, every_element, row_elements
from attnspec.backends.user.function import describe


def custom_backend() -> Backend:
    """Run the operator. Queries follow keys that are in a cache."""
    return describe(
        attention,
        name="executorch-custom",
        library="executorch",
        array="numpy",
        to_library=_tensor,
        to_numpy=torch.Tensor.numpy,
        dtypes=["float32"],
        layout="BSHD",
        axes=4,
        mask_axes=2,
        # With another one the output is memory that nobody wrote. See the finding `executorch/value_depth`.
        value_depth="key",
        concurrent=False,
        dialect={"MASK-2": "added"},
        deviations=_DEVIATIONS,
        versions=">=1.5,<1.6",
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
    """Pass the number of keys before the queries as ``start_pos``, and a bias as ``attn_mask``."""
    _check(query, key, value)
    queries, keys = query.shape[1], key.shape[1]
    if is_causal and not (isinstance(query_offset, int) and query_offset == keys - queries):
        raise Unsupported("the last query is at the last key")
    if bias is not None:
        bias = broadcast(torch, bias, (queries, keys)).contiguous()
    attend = torch.ops.llama.custom_sdpa
    return attend(query, key, value, keys - queries, bias, 0.0, is_causal, scale)


def _tensor(array: NDArray[Any]) -> Any:
    """Make a tensor, which has no negative strides."""
    return torch.from_numpy(array.copy())


def _check(query: Any, key: Any, value: Any) -> None:
    """Decline what the operator does not check. It may end the process, or read past the end of an array."""
    require_axes(4, query, key, value)
    (batch, queries, heads, depth), (_, keys, key_heads, _) = query.shape, key.shape
    if {array.dtype for array in (query, key, value)} != {torch.float32}:
        raise Unsupported("query, key, value: expected arrays of float32")
    if 0 in query.shape or 0 in key.shape:
        raise Unsupported("an empty axis ends the process")
    if key.shape != (batch, keys, key_heads, depth) or value.shape != key.shape or heads % key_heads:
        raise Unsupported("shapes that do not fit are not checked; see the finding executorch/misfit")
    if queries > keys:
        raise Unsupported("the new keys are as many as the queries")


_DEVIATIONS = (
    Deviation(("SCORE-3", "MASK-3", "MASK-4", "MASK-7"), "a causal mask with a scale of 0 or below gives NaN",
        "executorch/causal_scale", Special(row_elements(rows_with_disallowed)),
        when=lambda arguments: bool(arguments.get("is_causal") and arguments.get("scale", 1) <= 0)),
    Deviation(("MASK-4",),
        "a mask beside is_causal is refused by a message alone: the output is memory that nobody wrote",
        "executorch/mask_and_causal", Unwritten(every_element),
        when=lambda arguments: bool(arguments.get("is_causal")) and "bias" in arguments),
    bias_overflow("executorch/bias_overflow"),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "executorch/not_checked", OF_NAN),
    Deviation(("ERR-2",),
        "the memory of a bias of another type is read as float32, past its end if it is shorter",
        "executorch/not_checked", Unwritten(every_element)),
)  # fmt: skip
