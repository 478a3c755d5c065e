"""tinygrad: ``Tensor.scaled_dot_product_attention``, by its device that runs kernels in Python."""

import os
from typing import Any

os.environ.setdefault("DEV", "PYTHON")  # the device CPU needs clang

from tinygrad import Tensor

from attnspec.backends.backend import Backend
from attnspec.backends.errors import Unsupported
from attnspec.backends.user.described import describe


def sdpa_backend() -> Backend:
    """Run the method of a tensor."""
    return describe(
        attention,
        name="tinygrad-sdpa",
        library="tinygrad",
        dtypes=["float16", "float32", "float64"],
        names={"mask": "attn_mask", "bias": "attn_mask"},
        to_library=Tensor,
        to_numpy=Tensor.numpy,
        axes=4,
        dialect={"MASK-2": "added", "MASK-6": "nan", "NUM-5": {"float16": "storage"}},
        concurrent=False,
    )


def attention(query: Any, key: Any, value: Any, *, attn_mask: Any = None, is_causal: bool = False) -> Any:
    """Repeat shared heads."""
    if is_causal and attn_mask is not None:
        raise Unsupported("tinygrad takes no attn_mask beside is_causal")
    options = {"attn_mask": attn_mask, "is_causal": is_causal, "enable_gqa": True}
    return query.scaled_dot_product_attention(key, value, **options)
