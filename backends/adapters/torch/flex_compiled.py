"""PyTorch: compiled ``flex_attention``, as far as compilation for a CPU is fast enough.

Each combination of a number of heads, a depth and a causal mask takes about five seconds to
compile. Therefore only float32 and four axes are supported. There is no scale, because each
number is compiled separately. There are no mask and bias, because the code that looks them up
does not compile (`torch/flex_compiled_mask`). It returns no lse.
"""

import os
import shutil
from dataclasses import replace
from typing import Any

import torch
import torch._dynamo
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from attnspec.backends.adapters.conditions import (
    has_nan_query,
    has_other_heads_of_value,
    has_other_length_of_value,
)
from attnspec.backends.adapters.torch import VERSIONS
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import BackendError, Unsupported
from attnspec.backends.library import load_library

_compiled = torch.compile(flex_attention, dynamic=True, fullgraph=True)
#: With more forms than this limit, PyTorch would continue without compilation.
_FORMS = {
    "recompile_limit": 1000,
    "accumulated_recompile_limit": 1000,
    "fail_on_recompile_limit_hit": True,
}


def compiled_backend() -> Backend:
    """Run it compiled."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BackendError(
            f"backend torch-flex-compiled: expected a C++ compiler, {compiler} or that of CXX, got none"
        )
    library = load_library("torch")
    made = Backend(
        "torch-flex-compiled", library, _flex, ("float32",), deviations=_DEVIATIONS, versions=VERSIONS
    )
    return replace(made, concurrent=False)  # the settings of the compiler hold for all threads


def _flex(query: Any, key: Any, value: Any, *, is_causal: bool = False) -> Any:
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
        block_mask = create_block_mask(_not_after, None, None, queries, keys, device="cpu")
    with torch._dynamo.config.patch(**_FORMS):  # noqa: SLF001 - these settings are not public
        return _compiled(
            query, key, value, block_mask=block_mask, enable_gqa=bool(query.shape[1] != key.shape[1])
        )


def _not_after(_batch: Any, _head: Any, i: Any, j: Any) -> Any:
    return i >= j


_DEVIATIONS = (
    Deviation(
        ("NUM-11",),
        "a query of NaN gives 0",
        "torch/flex_compiled_nan_query",
        when=has_nan_query,
    ),
    Deviation(
        ("SHAPE-6",),
        "a number of batch entries of value other than that of key is accepted",
        "torch/flex_compiled_batch_of_value",
        when=lambda arguments: bool(arguments["key"].shape[:-3] != arguments["value"].shape[:-3]),
    ),
    Deviation(
        ("SHAPE-6",),
        "with fewer values than keys, values are read past their end; additional values are ignored",
        "torch/flex_compiled_value_length",
        when=has_other_length_of_value,
    ),
    Deviation(
        ("HEAD-2",),
        "a number of heads of value other than that of key is accepted",
        "torch/flex_compiled_heads_of_value",
        when=has_other_heads_of_value,
    ),
)
