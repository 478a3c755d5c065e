"""x-transformers, on PyTorch: the module ``Attend``, by separate operations and by a function of PyTorch."""

from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from x_transformers.attend import Attend

from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_NO_DEPTH,
    OF_OTHER_TYPES,
    Arguments,
    has_bias_beyond_differences,
    has_mask_or_bias,
    rows_below,
    rows_without_keys,
    with_number,
)
from attnspec.backends.adapters.deviations import (
    bias_overflow,
    empty_row_gradient,
    other_heads_of_value,
    repeated_batch,
)
from attnspec.backends.adapters.torch.sdpa import OF_ALL, OF_SCALE, OF_WIDE
from attnspec.backends.adapters.torch.sdpa import OF_FLASH as _OF_TORCH_FLASH
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.errors import Unsupported
from attnspec.backends.outcome import OtherCall, Special, Variant, row_elements
from attnspec.backends.user.function import describe
from attnspec.dtypes import SHORT


def attend_backend() -> Backend:
    """Run the module of separate operations."""

    def attention(
        query: Any,
        key: Any,
        value: Any,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        bias: Any = None,
        mask: Any = None,
        is_causal: bool = False,
        sinks: Any = None,
    ) -> Any:
        clamp = {} if softcap is None else {"softclamp_logits": True, "logit_softclamp_value": softcap}
        heads = {} if sinks is None else {"heads": query.shape[1], "head_learned_sink": True}
        module = Attend(causal=is_causal, scale=scale, **clamp, **heads)
        own = {} if sinks is None else {"head_attn_sink": sinks}
        options = {"mask": _boolean(mask), "attn_bias": bias}
        output, between = torch.func.functional_call(module, own, (query, key, value), options)
        weights = between.post_softmax_attn
        return output, weights if sinks is None else weights[..., 1:]

    dialect = {
        "SCORE-5": "after-bias",
        "MASK-2": "added",
        "MASK-3": "bottom-right",
        "MASK-6": {"mask": "uniform", "bias": "nan"},
        "HEAD-1": "tiled",
        "GRAD-10": "uniform",
        "NUM-2": "float32",
        "NUM-5": {"float16": "storage", "bfloat16": "storage"},
    }
    return _backend("x-transformers-attend", attention, ["output", "weights"], dialect, _OF_ATTEND)


def flash_backend() -> Backend:
    """Run the module with ``flash``, which calls ``scaled_dot_product_attention``."""

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
        module = Attend(causal=is_causal, scale=scale, flash=True)
        return module(query, key, value, mask=_boolean(mask), attn_bias=bias)[0]

    half = dict.fromkeys(SHORT, "storage")  # queries are multiplied by the scale in their dtype
    dialect = {"MASK-3": "bottom-right", "HEAD-1": "tiled", "NUM-5": half}
    return _backend("x-transformers-flash", attention, ["output"], dialect, _OF_FLASH)


def _boolean(mask: Any) -> Any:
    if mask is not None and mask.dtype != torch.bool:
        raise Unsupported(f"mask: expected booleans, got {mask.dtype}, which ~ does not negate")
    return mask


def _backend(
    name: str, function: Any, returns: list[str], dialect: Any, deviations: tuple[Deviation, ...]
) -> Backend:
    fixed = {"library": "x-transformers", "array": "torch", "axes": 4, "mask_axes": 4}
    return describe(
        function,
        name=name,
        returns=returns,
        dialect=dialect,
        deviations=deviations,
        versions=">=2.31,<2.32",
        **fixed,
    )


def _has_lowest_bias(arguments: Arguments) -> bool:
    """Whether a bias beside a mask is about as low as the numbers that stand for disallowed keys."""
    lowest = 6e4 if arguments["query"].dtype.name == "float16" else 1e38
    disallows = "mask" in arguments or bool(arguments.get("is_causal"))
    return disallows and has_bias_beyond_differences(arguments, lowest)


def _empty_row_elements(arguments: Arguments) -> dict[str, NDArray[np.bool_]]:
    """Mean the output, and not the weights, of the rows that a mask leaves empty by itself."""
    return {"output": rows_without_keys("mask")(arguments)[..., None]} if "mask" in arguments else {}


_OF_BOTH = (
    repeated_batch("torch/batch_repeated"),
    Deviation(("ERR-5",), "values of depth 0 are accepted", "x-transformers/not_checked", OF_NO_DEPTH),
    other_heads_of_value("x-transformers/not_checked"),
)
_OF_ATTEND = (
    *_OF_BOTH,
    Deviation(
        ("MASK-6", "MASK-4", "GRAD-10"),
        "the output of a row that a mask alone leaves empty is 0, and its weights are uniform",
        "x-transformers/empty_row",
        (Variant("GRAD-10", ""), Special(_empty_row_elements, (0.0,))),
        when=lambda arguments: (
            bool(_empty_row_elements(arguments)) and bool(_empty_row_elements(arguments)["output"].any())
        ),
    ),
    Deviation(("MASK-5", "NUM-5"),
        "the score of a disallowed key is the lowest number, and a bias of allowed keys may be as low",
        "x-transformers/masked_lowest", with_number(), when=_has_lowest_bias),
    Deviation(("MASK-6", "MASK-4", "GRAD-10"),
        "the lowest number of float64, which stands for a disallowed score, is minus infinity in float32",
        "x-transformers/empty_row_float64", (Variant("MASK-6", "nan"), Variant("GRAD-10", "nan")),
        dtypes=("float64",), when=lambda arguments: "mask" in arguments or bool(arguments.get("is_causal"))),
    Deviation(("MASK-5",),
        "a bias of float64 below the lowest number of float32 is minus infinity in the softmax",
        "x-transformers/empty_row_float64", Special(row_elements(rows_below(1e38))), dtypes=("float64",),
        when=lambda arguments: has_bias_beyond_differences(arguments, 1e38)),
    bias_overflow("x-transformers/bias_overflow", "float16"),
    empty_row_gradient("x-transformers/empty_row_gradient_bias"),
    Deviation(("ERR-2",), "a bias and sinks of any type are taken", "x-transformers/not_checked",
        OF_OTHER_TYPES),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "x-transformers/not_checked", OF_NAN),
    Deviation(("SCORE-6",), "an infinite softcap is accepted", "x-transformers/not_checked", OF_NAN),
)  # fmt: skip


def _has_more_queries(arguments: Arguments) -> bool:
    more = arguments["query"].shape[-2] > arguments["key"].shape[-2]
    return bool(arguments.get("is_causal")) and more and not has_mask_or_bias(arguments)


def _with_top_left(arguments: Arguments) -> Arguments:
    others = {name: x for name, x in arguments.items() if name != "is_causal"}
    return {**others, "mask": np.tri(arguments["query"].shape[-2], arguments["key"].shape[-2], dtype=bool)}


def _with_half_of_lowest(arguments: Arguments) -> Arguments:
    """Give disallowed keys half of the lowest number for their bias, by the alignment of the module."""
    queries, keys = arguments["query"].shape[-2], arguments["key"].shape[-2]
    mask = arguments.get("mask", True)
    if arguments.get("is_causal") and queries > 1:
        mask = mask & np.tri(queries, keys, keys - queries, dtype=bool)
    others = {name: x for name, x in arguments.items() if name != "is_causal"}
    lowest = -float(ml_dtypes.finfo(arguments["query"].dtype).max) / 2  # type: ignore[no-untyped-call] # no types
    changed: Arguments = with_number(added=lowest).change(
        {**others, "mask": np.broadcast_to(mask, (queries, keys)) if np.ndim(mask) < 2 else mask}
    )
    return changed


#: What the module prevents: it scales the queries itself, and gives rows of 0. No call shows the sums of
#: gradients to be off.
_NOT_SHOWN = (
    "torch/flash_gradient_sums",
    "torch/flash_causal_scale",
    "torch/depth_zero",
    "torch/masked_nan_query",
    "torch/no_key_heads",
)
_OF_FLASH = (
    *_OF_BOTH,
    Deviation(("MASK-3", "HEAD-1", "GRAD-1", "GRAD-9"),
        "with more queries than keys and neither mask nor bias, causality is aligned at the top left",
        "x-transformers/flash_more_queries", OtherCall(_with_top_left), when=_has_more_queries),
    Deviation(
        ("MASK-4", "MASK-5", "MASK-6", "GRAD-10"),
        "beside a bias the score of a disallowed key is half of the lowest number",
        "x-transformers/flash_masked_lowest",
        OtherCall(_with_half_of_lowest),
        when=lambda arguments: (
            "bias" in arguments and ("mask" in arguments or bool(arguments.get("is_causal")))
        ),
    ),
    OF_SCALE,
    OF_WIDE,
    *(deviation for deviation in (*OF_ALL, *_OF_TORCH_FLASH) if deviation.source not in _NOT_SHOWN),
)  # fmt: skip
