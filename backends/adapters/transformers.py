"""Transformers, on PyTorch: the attention functions ``eager`` (of Llama) and ``sdpa``."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.models.llama.modeling_llama import eager_attention_forward

from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_NO_DEPTH,
    OF_OTHER_TYPES,
    Arguments,
    has_bias_beyond_differences,
    has_empty_row_of_mask,
    has_mask_or_bias,
    has_nan_query,
    has_row_of_minus_infinity,
    rows_below,
    rows_of_nan,
    rows_without_keys,
    with_more_axes,
    with_number,
    with_repeated_heads,
    without,
)
from attnspec.backends.adapters.deviations import mask_overflow, other_heads_of_value, repeated_batch
from attnspec.backends.adapters.torch.sdpa import OF_ALL, OF_FLASH, OF_SCALE, OF_WIDE
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import OtherCall, Raises, Special, Variant, row_elements
from attnspec.backends.user.function import describe

_VERSIONS = ">=5.23,<5.24"


def eager_backend() -> Backend:
    """Run the function of separate operations. Masks are made as Transformers makes them."""

    def attention(
        query: Any, key: Any, value: Any, *, scale: float, bias: Any = None, mask: Any = None
    ) -> Any:
        if mask is not None:
            if mask.dtype != torch.bool:
                raise Unsupported(f"mask: expected booleans, got {mask.dtype}")
            zero, lowest = torch.zeros((), dtype=query.dtype), torch.finfo(query.dtype).min
            bias = torch.where(mask, zero if bias is None else bias, lowest)
        module = _module(query, key)
        output, weights = eager_attention_forward(module, query, key, value, bias, scaling=scale)
        return output.transpose(1, 2), weights

    dialect = {
        "MASK-2": "added",
        "MASK-6": {"mask": "uniform", "bias": "nan"},
        "NUM-2": "float32",
        "NUM-5": {"float16": "storage", "bfloat16": "storage"},
    }
    return _backend(
        "transformers-eager",
        attention,
        returns=["output", "weights"],
        dialect=dialect,
        deviations=(_LOWEST, _REPEATED, *_OF_EAGER),
    )


def sdpa_backend() -> Backend:
    """Run the function that calls PyTorch."""
    sdpa = AttentionInterface()["sdpa"]

    def attention(
        query: Any,
        key: Any,
        value: Any,
        *,
        scale: float | None = None,
        bias: Any = None,
        mask: Any = None,
        is_causal: bool = False,
    ) -> Any:
        if mask is not None and mask.dtype != torch.bool:
            raise Unsupported(f"mask: expected booleans, got {mask.dtype}")
        if bias is not None and not bias.dtype.is_floating_point:
            raise Unsupported(f"bias: expected floating-point numbers, got {bias.dtype}")
        options = {"scaling": scale, "position_bias": bias, "is_causal": is_causal}
        return sdpa(_module(query, key), query, key, value, mask, **options)[0].transpose(1, 2)

    deviations = (_LOWEST, _REPEATED, *_OF_SDPA, OF_SCALE, *OF_ALL, *OF_FLASH, OF_WIDE)
    return _backend(
        "transformers-sdpa",
        attention,
        mask_axes=4,
        deviations=deviations,
    )


def _backend(name: str, function: Any, **said: Any) -> Backend:
    fixed = {"library": "transformers", "array": "torch", "axes": 4, "versions": _VERSIONS}
    return describe(function, name=name, **fixed, **said)


def _module(query: Any, key: Any) -> Any:
    """Make what the functions read of a module."""
    groups = query.shape[1] // max(key.shape[1], 1)
    return SimpleNamespace(num_key_value_groups=groups, training=False)


def _has_lowest_bias_and_mask(arguments: Arguments) -> bool:
    """Whether a bias beside a mask is about as low as the numbers that stand for disallowed keys."""
    lowest = 6e4 if arguments["query"].dtype.name == "float16" else 1e38
    return "mask" in arguments and has_bias_beyond_differences(arguments, lowest)


#: The lowest number of the dtype.
_LOWEST_NUMBER = with_number()
_LOWEST = Deviation(
    ("MASK-5", "NUM-5"),
    "the score of a disallowed key is the lowest number, and a bias of allowed keys may be as low",
    "transformers/masked_lowest",
    _LOWEST_NUMBER,
    when=_has_lowest_bias_and_mask,
)
_REPEATED = repeated_batch("torch/batch_repeated")
_OF_EAGER = (
    mask_overflow("transformers/eager_overflow", has_mask_or_bias, "float16", rules=("MASK-12", "MASK-5")),
    Deviation(("MASK-6",), "a mask is added, so a query of NaN without an allowed key gives NaN",
        "transformers/eager_nan_query", Special(row_elements(rows_of_nan)),
        when=lambda arguments: has_nan_query(arguments) and has_mask_or_bias(arguments)),
    Deviation(("MASK-6", "MASK-1", "MASK-4"),
        "the lowest number of float64, which a mask adds, is minus infinity in the softmax of float32",
        "transformers/eager_empty_row_float64", (Variant("MASK-6", "nan"), Variant("GRAD-10", "nan")),
        dtypes=("float64",), when=has_empty_row_of_mask),
    Deviation(("MASK-5",),
        "a bias of float64 below the lowest number of float32 is minus infinity in the softmax",
        "transformers/eager_empty_row_float64", Special(row_elements(rows_below(1e38))), dtypes=("float64",),
        when=lambda arguments: has_bias_beyond_differences(arguments, 1e38)),
    Deviation(("GRAD-10",), "a mask is added, so that a query with nothing to attend to has gradients",
        "transformers/eager_empty_row_gradient", _LOWEST_NUMBER, when=has_empty_row_of_mask),
    Deviation(("GRAD-10",), "if a bias disallows all keys of a query, gradients of its head are NaN",
        "transformers/eager_nan_gradient", Special(row_elements(rows_without_keys("bias"))),
        when=has_row_of_minus_infinity),
    Deviation(("ERR-2",), "a mask of integers is accepted", "transformers/eager_not_checked", OF_OTHER_TYPES),
    Deviation(("ERR-5",), "values of depth 0 are accepted", "transformers/eager_not_checked", OF_NO_DEPTH),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "transformers/eager_not_checked", OF_NAN),
    Deviation(("ERR-15",), "a mask of more axes than the scores is accepted",
        "transformers/eager_not_checked", OtherCall(with_more_axes)),
    Deviation(("HEAD-2",), "values may have one head", "transformers/eager_not_checked",
        OtherCall(with_repeated_heads)),
)  # fmt: skip


def _has_no_rows(arguments: Arguments) -> bool:
    return 0 in arguments["query"].shape[:-1]


def _has_empty_row_of_both(arguments: Arguments) -> bool:
    """Whether a mask and a bias are given and leave a query no key."""
    return "bias" in arguments and has_empty_row_of_mask(arguments)


def _with_keys_of_queries(arguments: Arguments) -> Arguments:
    """Leave out the keys past the number of queries."""
    queries, keys = arguments["query"].shape[-2], arguments["key"].shape[-2]
    return {**arguments, "mask": arguments["mask"] & (np.arange(keys) < queries)}


_OF_SDPA = (
    Deviation(("MASK-3", "MASK-4", "ERR-3", "ERR-13", "GRAD-9"), "is_causal has no effect on a single query",
        "transformers/sdpa_one_query", without("is_causal"),
        when=lambda arguments: bool(arguments.get("is_causal")) and arguments["query"].shape[-2] == 1),
    Deviation(("MASK-4", "MASK-6", "ERR-3", "GRAD-9"), "is_causal has no effect beside a mask",
        "transformers/sdpa_mask_and_causal", without("is_causal"),
        when=lambda arguments: bool(arguments.get("is_causal")) and "mask" in arguments),
    Deviation(("MASK-4",),
        "beside a bias the score of a key after the query is the lowest number, and a bias of -inf is lower",
        "transformers/sdpa_bias_and_causal", (_LOWEST_NUMBER, OtherCall(_with_keys_of_queries)),
        when=lambda arguments: bool(arguments.get("is_causal")) and "bias" in arguments),
    Deviation(("MASK-4", "MASK-6"),
        "beside a bias a mask is the lowest number, so that a query with nothing to attend to attends to all",
        "transformers/sdpa_empty_row_beside_bias", _LOWEST_NUMBER, when=_has_empty_row_of_both),
    Deviation(("SHAPE-7", "GRAD-2", "GRAD-9"), "a call without queries or batch entries fails",
        "transformers/sdpa_no_queries", Raises("RuntimeError", ""), when=_has_no_rows),
    other_heads_of_value("torch/heads_of_value"),
)  # fmt: skip
