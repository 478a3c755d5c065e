"""PyTorch: ``flex_attention`` compiled, as far as it compiles for a CPU in a time that a suite can wait.

A form, which is a number of heads and a depth, with or without a causal mask, takes
some five seconds. So it is asked in float32 and on four axes; without scale, for
every number is a form of its own; and without mask and bias, as the code that looks
them up does not compile (`torch/flex_compiled_mask`). It returns no lse.
"""

import os
import shutil
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
#: Past the number that PyTorch allows it would go on uncompiled.
_FORMS = {
    "recompile_limit": 1000,
    "accumulated_recompile_limit": 1000,
    "fail_on_recompile_limit_hit": True,
}


def compiled_backend() -> Backend:
    """Run it compiled.

    Raises
    ------
    BackendError
        When there is no C++ compiler.
    """
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BackendError(
            f"backend torch-flex-compiled: expected a C++ compiler, {compiler} or what CXX names, got none"
        )
    library = load_library("torch")
    return Backend(
        "torch-flex-compiled", library, _flex, ("float32",), deviations=_DEVIATIONS, versions=VERSIONS
    )


def _flex(query: Any, key: Any, value: Any, *, is_causal: bool = False) -> Any:
    if query.ndim != 4:
        raise Unsupported("asked on four axes alone: any other number would be more to compile")
    queries, keys = query.shape[-2], key.shape[-2]
    if 1 in (queries, keys):
        raise Unsupported("asked for more than one query and key alone: one of them is a form of its own")
    # Either would end the process, and with it the run: it stands among the findings, not in the verdicts.
    if not keys:
        raise Unsupported("without keys the process ends by a signal: torch/flex_compiled_no_keys")
    if not value.shape[-2]:
        raise Unsupported("without values the process ends by a signal: torch/flex_compiled_no_values")
    block_mask = None
    if is_causal:
        block_mask = create_block_mask(_not_after, None, None, queries, keys, device="cpu")
    with torch._dynamo.config.patch(**_FORMS):  # noqa: SLF001 - its settings have no other place
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
        "another number of batch entries of value than of key is taken",
        "torch/flex_compiled_batch_of_value",
        when=lambda arguments: bool(arguments["key"].shape[:-3] != arguments["value"].shape[:-3]),
    ),
    Deviation(
        ("SHAPE-6",),
        "of fewer values than keys, values are read past their end; more are left out",
        "torch/flex_compiled_value_length",
        when=has_other_length_of_value,
    ),
    Deviation(
        ("HEAD-2",),
        "other heads of value than of key are taken",
        "torch/flex_compiled_heads_of_value",
        when=has_other_heads_of_value,
    ),
)
