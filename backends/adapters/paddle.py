"""Paddle: ``paddle.nn.functional.scaled_dot_product_attention``, on the CPU."""

from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.adapters.conditions import (
    OF_NAN,
    OF_NO_DEPTH,
    OF_OTHER_TYPES,
    Arguments,
    has_mask_or_bias,
    has_overflowing_score,
    has_scale_of_zero,
    is_masked,
    pairs_of,
    rows_not_finite,
    rows_with_overflow,
    scaled_scores_of,
    with_more_axes,
    with_number,
    without,
)
from attnspec.backends.adapters.deviations import repeated_batch
from attnspec.backends.backend import Backend
from attnspec.backends.deviation import Deviation
from attnspec.backends.outcome import OtherCall, Special, Unwritten, Variant, row_elements
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


def _scores(arguments: Arguments) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the scores without masks and biases, and with them."""
    plain = scaled_scores_of(arguments)
    bias = np.asarray(arguments.get("bias", 0.0)).astype(np.float64)
    return plain, np.where(pairs_of(arguments), plain + bias, -np.inf)


def _with_floor(arguments: Arguments) -> Arguments:
    """Raise scores to 64 below the largest of their row, where that is finite."""
    plain, scores = _scores(arguments)
    largest = float(np.finfo(arguments["query"].dtype).max)
    top = np.minimum(scores, largest).max(axis=-1, keepdims=True, initial=-np.inf)
    raised = np.where(np.isfinite(top), np.clip(scores, top - 64, largest), scores)
    # Beside large scores a bias that takes their place is not exact. Without a query it need not be.
    far = (np.abs(plain) > 1e6).any(axis=-1, keepdims=True) | ~np.isfinite(plain).all(axis=-1, keepdims=True)
    query = np.where(far, 0, arguments["query"]).astype(arguments["query"].dtype)
    bias = np.where(far | ~np.isfinite(raised), raised, raised - np.where(far, 0, plain))
    names = OPERATIONS["attention"].names("masks")
    others = {name: x for name, x in arguments.items() if name not in names}
    empty = np.isneginf(top)  # such a row is that of MASK-6, and a mask leaves it so
    mask = {"mask": np.broadcast_to(~empty, scores.shape)} if empty.any() else {}
    return {**others, "query": query, "bias": np.where(empty, 0.0, bias), **mask}


def _with_exchanged_axes(arguments: Arguments) -> Arguments:
    """Exchange the queries and the axis before the heads, as the output has them after an axis too many.

    Each of its queries attends to the keys that belonged to it before.
    """
    wide = with_more_axes(arguments)
    name = "mask" if "mask" in wide else "bias"
    query, key, value = (wide[of] for of in ("query", "key", "value"))
    heads, queries, keys = query.shape[-3], query.shape[-2], key.shape[-2]
    if query.ndim < 5 or key.shape[-3] != heads:
        return wide
    batch = query.shape[-4]
    # (*B, batch, Hq, L, S) to (*B, Hq, L, batch, batch * S), with each entry of the batch at its own keys
    full = np.moveaxis(np.broadcast_to(wide[name], (*query.shape[:-1], keys)), -4, -2)
    absent = False if name == "mask" else -np.inf
    own = np.eye(batch, dtype=bool)[..., None]
    added = np.where(own, full[..., None, :], absent).reshape(*full.shape[:-1], batch * keys)

    def repeat(array: NDArray[Any]) -> NDArray[Any]:
        """Convert (*B, batch, Hq, S, D) to (*B, Hq, L, batch * S, D)."""
        each = np.moveaxis(array, -4, -3)
        flat = each.reshape(*each.shape[:-3], 1, batch * keys, array.shape[-1])
        return np.repeat(flat, queries, axis=-3)

    moved = {"query": np.moveaxis(query, -4, -2), "key": repeat(key), "value": repeat(value)}
    return {**wide, **moved, name: added}


def _without_heads(arguments: Arguments) -> Arguments:
    return {**arguments, "query": arguments["query"][..., :0, :, :]}


_DEVIATIONS = (
    Deviation(("SCORE-3", "ERR-3", "ERR-13", "MASK-1", "MASK-4", "HEAD-1"),
        "a scale of 0 is replaced by the default", "paddle/scale_zero", without("scale"),
        when=has_scale_of_zero),
    Deviation(("MASK-12",), "a masked key whose score overflows makes the row NaN", "paddle/masked_overflow",
        Special(row_elements(rows_with_overflow())),
        when=lambda arguments: is_masked(arguments) and has_overflowing_score(arguments)),
    Deviation(("SOFT-2", "MASK-3", "MASK-12"), "a causal mask adds -10000", "paddle/causal_finite",
        with_number(added=-10000.0),
        when=lambda arguments: bool(arguments.get("is_causal")) and _has_large_scores(arguments)),
    Deviation(("MASK-4", "MASK-6", "ERR-3"), "beside is_causal a mask or a bias has no effect",
        "paddle/mask_and_causal", without("mask", "bias"),
        when=lambda arguments: bool(arguments.get("is_causal")) and has_mask_or_bias(arguments)),
    Deviation(("NUM-11",), "with 8 keys or more a score of NaN gives numbers", "paddle/nan_of_eight",
        Unwritten(row_elements(rows_not_finite)), dtypes=("float32",), when=_has_eight_keys),
    Deviation(("MASK-6", "MASK-1", "MASK-2"),
        "with 8 keys or more a query with nothing to attend to gives the mean of the values",
        "paddle/empty_row_of_eight", Variant("MASK-6", "uniform"), dtypes=("float32",),
        when=lambda arguments: _has_eight_keys(arguments) and has_mask_or_bias(arguments)),
    repeated_batch("paddle/batch_repeated"),
    Deviation(("ERR-2",), "arrays of integers and booleans are accepted", "paddle/not_checked",
        OF_OTHER_TYPES),
    Deviation(("ERR-5",), "a depth of 0 is accepted", "paddle/not_checked", OF_NO_DEPTH),
    Deviation(("ERR-6",), "a scale of NaN or infinity is accepted", "paddle/not_checked", OF_NAN),
    Deviation(("ERR-15",),
        "a mask of more axes than the scores is accepted, and exchanges axes of the output",
        "paddle/not_checked", OtherCall(_with_exchanged_axes)),
    Deviation(("HEAD-2",), "zero key heads are accepted", "paddle/not_checked", OtherCall(_without_heads)),
    # After the others, which it joins.
    Deviation(("SOFT-1",), "no exponential is below that of -64, so that all keys have a weight",
        "paddle/softmax_floor", OtherCall(_with_floor),
        when=lambda arguments: arguments["query"].shape[-1] > 0),
)  # fmt: skip
