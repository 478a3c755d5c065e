"""tinygrad: ``Tensor.scaled_dot_product_attention``, by its device that runs kernels in Python."""

import os
from typing import Any

os.environ.setdefault("DEV", "PYTHON")  # the device CPU needs clang

from tinygrad import Tensor

from attnspec.backends.adapters.conditions import (
    OF_NO_DEPTH,
    has_overflowing_score,
    rows_with_overflow,
    with_broadcast_batch,
    with_repeated_heads,
)
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import InDtype, OtherCall, Special, row_elements
from attnspec.backends.user.function import describe


def sdpa_backend() -> Backend:
    """Run the method of a tensor."""
    return describe(
        attention,
        name="tinygrad-sdpa",
        library="tinygrad",
        dtypes=["float32", "float64"],  # float16 raises: see findings/tinygrad/float16_raises
        names={"mask": "attn_mask", "bias": "attn_mask"},
        to_library=Tensor,
        to_numpy=Tensor.numpy,
        axes=4,
        dialect={"MASK-2": "added", "MASK-6": "nan"},
        deviations=_DEVIATIONS,
        versions=">=0.14,<0.15",
        concurrent=False,
    )


def attention(query: Any, key: Any, value: Any, *, attn_mask: Any = None, is_causal: bool = False) -> Any:
    """Repeat shared heads."""
    if is_causal and attn_mask is not None:
        raise Unsupported("tinygrad takes no attn_mask beside is_causal")
    options = {"attn_mask": attn_mask, "is_causal": is_causal, "enable_gqa": True}
    return query.scaled_dot_product_attention(key, value, **options)


_DEVIATIONS = (
    Deviation(("MASK-12",),
        "minus infinity is added to a disallowed score, which is infinite: the row is NaN",
        "tinygrad/mask_overflow", Special(row_elements(rows_with_overflow())), when=has_overflowing_score),
    Deviation(("HEAD-2",), "a value with fewer heads than the key is accepted", "tinygrad/not_checked",
        OtherCall(with_repeated_heads)),
    Deviation(("SHAPE-6",), "batch axes that do not fit are broadcast", "tinygrad/not_checked",
        OtherCall(with_broadcast_batch)),
    Deviation(("NUM-1",), "beside values of another dtype the output has that of the values",
        "tinygrad/mixed_dtypes", InDtype("value"),
        when=lambda arguments: arguments["value"].dtype != arguments["query"].dtype),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "tinygrad/not_checked", OF_NO_DEPTH),
)  # fmt: skip
