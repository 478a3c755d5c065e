"""Paddle: ``paddle.nn.functional.scaled_dot_product_attention``, on the CPU."""

from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

from attnspec.backends.adapters.conditions import (
    Arguments,
    has_mask_or_bias,
    has_overflowing_score,
    has_scale_of_zero,
    repeated_batch,
)
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.user.function import describe


def default_backend() -> Backend:
    """Run it. Its half precision needs a GPU."""
    return describe(
        paddle.nn.functional.scaled_dot_product_attention,
        name="paddle-sdpa",
        library="paddlepaddle",
        to_library=paddle.to_tensor,
        to_numpy=_to_numpy,
        dtypes=["float32", "float64"],
        layout="BSHD",
        axes=4,
        bias_dtype="query",
        names={"mask": "attn_mask", "bias": "attn_mask"},
        ignore=["dropout_p", "training", "backend", "enable_gqa", "name"],
        versions=">=3.3,<3.4",
        dialect={"MASK-2": "added", "MASK-6": "nan"},
        deviations=_DEVIATIONS,
    )


def _to_numpy(tensor: Any) -> NDArray[Any]:
    array: NDArray[Any] = tensor.numpy()
    return array


def _has_eight_keys(arguments: Arguments) -> bool:
    return bool(arguments["key"].shape[-2] >= 8)


def _has_large_scores(arguments: Arguments) -> bool:
    query, key = (arguments[name] for name in ("query", "key"))
    if not query.size or not key.size:
        return False
    scale = abs(arguments.get("scale", query.shape[-1] ** -0.5))
    top = float(np.nanmax(np.abs(query))) * float(np.nanmax(np.abs(key)))
    return bool(top * query.shape[-1] * scale > 2000)


_FLOOR = "paddle/softmax_floor"
#: The rules that the suite judges by weights, in any call with a small one.
_OF_WEIGHTS = """SOFT-1 SOFT-2 SOFT-3 SCORE-2 SCORE-3 SCORE-4 MASK-1 MASK-2 MASK-3 MASK-4 MASK-5 MASK-6
MASK-12 HEAD-1 CACHE-3 NUM-1 NUM-3 NUM-8 SHAPE-1 SHAPE-2 SHAPE-5 SHAPE-9 ERR-13"""
_OF_OUTPUTS = "SOFT-2 SHAPE-9 MASK-1 MASK-2 MASK-3 MASK-4 HEAD-1 NUM-11 ERR-13"
_DEVIATIONS = (
    Deviation(
        ("SCORE-3", "ERR-3", "ERR-13", "MASK-1", "MASK-4", "HEAD-1"),
        "a scale of 0 is replaced by the default",
        "paddle/scale_zero",
        when=has_scale_of_zero,
    ),
    Deviation(
        ("SOFT-2", "MASK-3", "MASK-12"),
        "a causal mask adds -10000",
        "paddle/causal_finite",
        when=lambda arguments: bool(arguments.get("is_causal")) and _has_large_scores(arguments),
    ),
    Deviation(
        ("MASK-4", "MASK-6", "ERR-3"),
        "beside is_causal a mask or a bias has no effect",
        "paddle/mask_and_causal",
        when=lambda arguments: bool(arguments.get("is_causal")) and has_mask_or_bias(arguments),
    ),
    Deviation(
        ("NUM-11",),
        "with 8 keys or more a score of NaN gives numbers",
        "paddle/nan_of_eight",
        dtypes=("float32",),
        when=_has_eight_keys,
    ),
    Deviation(
        ("MASK-6", "MASK-1", "MASK-2"),
        "with 8 keys or more a query with nothing to attend to gives the mean of the values",
        "paddle/empty_row_of_eight",
        dtypes=("float32",),
        when=lambda arguments: _has_eight_keys(arguments) and has_mask_or_bias(arguments),
    ),
    repeated_batch("paddle/batch_repeated"),
    Deviation(("ERR-2",), "arrays of integers and booleans are accepted", "paddle/not_checked"),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "paddle/not_checked"),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "paddle/not_checked"),
    Deviation(("ERR-15",), "a mask of more axes than the scores is accepted", "paddle/not_checked"),
    Deviation(("HEAD-2",), "zero key heads are accepted", "paddle/not_checked"),
    Deviation(
        ("MASK-12",),
        "a masked key whose score overflows makes the row NaN",
        "paddle/masked_overflow",
        when=lambda arguments: has_mask_or_bias(arguments) and has_overflowing_score(arguments),
    ),
    # After the others: these cover most calls, and the first that covers a call counts.
    Deviation(
        tuple(_OF_WEIGHTS.split()),
        "no exponential is below that of -64, so that all keys have a weight",
        _FLOOR,
        outputs=("weights",),
        within=1e-27,
    ),
    Deviation(
        tuple(_OF_OUTPUTS.split()),
        "as above, where values or sums are small",
        _FLOOR,
        outputs=("output",),
        within=1e-25,
    ),
)
