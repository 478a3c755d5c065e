"""Conditions on the arguments of a call, for the field `when` of a deviation, and common outcomes.

A function `rows_...` finds rows of scores, for an outcome that speaks of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from attnspec import OPERATIONS
from attnspec.backends.outcome import Elements, InDtype, OtherCall, Special, every_element
from attnspec.dtypes import DTYPES
from attnspec.reference.masking import allowed_keys

Arguments = Mapping[str, Any]
Rows = NDArray[np.bool_]  # (*B, Hq, L), or (L,) without heads


def has_nan_query(arguments: Arguments) -> bool:
    """Whether a query has a NaN."""
    return bool(np.isnan(arguments["query"]).any())


def has_infinity(arguments: Arguments) -> bool:
    """Whether a query or a key has an infinity."""
    return bool(np.isinf(arguments["query"]).any() or np.isinf(arguments["key"]).any())


def has_mask_or_bias(arguments: Arguments) -> bool:
    """Whether a call has an `attn_mask` in PyTorch."""
    return "mask" in arguments or "bias" in arguments


def is_masked(arguments: Arguments) -> bool:
    """Whether a call in PyTorch may disallow keys."""
    return has_mask_or_bias(arguments) or bool(arguments.get("is_causal"))


def has_no_keys(arguments: Arguments) -> bool:
    """Whether there are no keys."""
    return bool(arguments["key"].shape[-2] == 0)


def has_scale_of_zero(arguments: Arguments) -> bool:
    """Whether the given scale is 0."""
    return bool(arguments.get("scale") == 0)


def has_empty_axis(arguments: Arguments) -> bool:
    """Whether queries or keys have no elements."""
    return 0 in arguments["query"].shape or 0 in arguments["key"].shape


def has_several_dtypes(arguments: Arguments) -> bool:
    """Whether queries, keys and values differ in their dtypes."""
    return len({arguments[name].dtype for name in ("query", "key", "value")}) > 1


def may_disallow(arguments: Arguments) -> bool:
    """Whether a call may disallow keys."""
    return is_masked(arguments) or "key_lengths" in arguments or "window" in arguments


def has_other_heads_of_value(arguments: Arguments) -> bool:
    """Whether values and keys differ in their number of heads."""
    return bool(arguments["key"].shape[-3] != arguments["value"].shape[-3])


def has_other_length_of_value(arguments: Arguments) -> bool:
    """Whether values and keys differ in number."""
    return bool(arguments["key"].shape[-2] != arguments["value"].shape[-2])


def has_repeated_batch_entry(arguments: Arguments) -> bool:
    """Whether queries and keys have batch axes of other sizes, one of which is 1."""
    query, key = (arguments[name].shape[:-3] for name in ("query", "key"))
    return query != key and all(
        one == other or 1 in (one, other) for one, other in zip(query, key, strict=False)
    )


def has_overflowing_score(arguments: Arguments, working: str = "float32") -> bool:
    """Whether queries and keys are finite and a score may overflow."""
    query, key = (arguments[name] for name in ("query", "key"))
    if not query.size or not key.size or not np.isfinite(query).all() or not np.isfinite(key).all():
        return False
    dtype = np.dtype(working) if query.dtype.itemsize == 2 else query.dtype
    # Logarithms, because a product of float64 may overflow.
    with np.errstate(divide="ignore"):
        top = sum(float(np.log2(np.abs(array.astype(np.float64)).max())) for array in (query, key))
    return bool(top + np.log2(query.shape[-1]) > np.log2(float(np.finfo(dtype).max)))


def has_bias_beyond_differences(arguments: Arguments, largest: float) -> bool:
    """Whether the bias has a finite number of at least the given magnitude."""
    bias = arguments.get("bias")
    if bias is None:
        return False
    finite = bias[np.isfinite(bias)]
    return bool(finite.size and np.abs(finite.astype(np.float64)).max() >= largest)


def has_row_below(arguments: Arguments, largest: float) -> bool:
    """Whether the bias of all allowed keys of a query is below minus a number."""
    return "bias" in arguments and bool(rows_below(largest)(arguments).any())


def has_empty_row_of_mask(arguments: Arguments) -> bool:
    """Whether a mask is given and a query has no key that it, the bias and causality allow."""
    if "mask" not in arguments:
        return False
    allowed = arguments["mask"]
    if "bias" in arguments:
        allowed = allowed & ~np.isneginf(arguments["bias"].astype(np.float64))
    if arguments.get("is_causal"):
        pairs = arguments["query"].shape[-2], arguments["key"].shape[-2]
        allowed = allowed & np.tri(*pairs, dtype=bool)
    return not allowed.any(axis=-1).all()


def has_row_of_minus_infinity(arguments: Arguments) -> bool:
    """Whether the bias disallows all keys of a query."""
    bias = arguments.get("bias")
    return bias is not None and bool(np.isneginf(bias.astype(np.float64)).all(axis=-1).any())


def has_queries_without_keys(arguments: Arguments) -> bool:
    """Whether a packed call has a sequence with queries and no keys."""
    queries, keys = (np.diff(arguments[f"{of}_starts"]) for of in ("query", "key"))
    return bool(((queries > 0) & (keys == 0)).any())


def scores_of(arguments: Arguments) -> NDArray[np.float64]:
    """Compute the products of queries and keys, without the scale, which may be infinite or NaN."""
    query, key = (arguments[name].astype(np.float64) for name in ("query", "key"))
    return _products(query, key)


def scaled_scores_of(arguments: Arguments) -> NDArray[np.float64]:
    """Compute the products of scaled queries and keys, which may be infinite or NaN."""
    query, key = (arguments[name].astype(np.float64) for name in ("query", "key"))
    return _products(query * arguments.get("scale", query.shape[-1] ** -0.5), key)


def _products(query: NDArray[np.float64], key: NDArray[np.float64]) -> NDArray[np.float64]:
    if query.ndim > 2 and key.shape[-3] and query.shape[-3] != key.shape[-3]:
        key = np.repeat(key, query.shape[-3] // key.shape[-3], axis=-3)
    with np.errstate(invalid="ignore", over="ignore"):
        found: NDArray[np.float64] = query @ np.swapaxes(key, -1, -2)
    return found  # (*B, Hq, L, S)


def pairs_of(arguments: Arguments) -> NDArray[np.bool_]:
    """Find the allowed pairs of queries and keys of a call."""
    shape = (*arguments["query"].shape[:-1], arguments["key"].shape[-2])
    names = OPERATIONS["attention"].names("masks")
    return np.asarray(allowed_keys(shape, **{name: arguments[name] for name in names if name in arguments}))


def rows_with_disallowed(arguments: Arguments) -> Rows:
    """Find the rows with a disallowed key."""
    return np.asarray(~pairs_of(arguments).all(axis=-1))


def rows_of_nan(arguments: Arguments) -> Rows:
    """Find the rows whose query has a NaN."""
    return np.asarray(np.isnan(arguments["query"].astype(np.float64)).any(axis=-1))


def rows_of_infinity(arguments: Arguments) -> Rows:
    """Find the rows with a score that is not finite, although no query or key is NaN."""
    return np.asarray(~np.isfinite(scores_of(arguments)).all(axis=-1) & ~rows_of_nan(arguments))


def rows_not_finite(arguments: Arguments) -> Rows:
    """Find the rows with a score that is NaN or infinite."""
    scores = scores_of(arguments)
    if "bias" in arguments:
        scores = scores + arguments["bias"].astype(np.float64)
    return np.asarray(~np.isfinite(scores).all(axis=-1))


def rows_with_overflow(working: str = "float32", *, disallowed: bool = True) -> Callable[[Arguments], Rows]:
    """Return the function that finds the rows in which the score of a disallowed or any key may overflow."""

    def rows(arguments: Arguments) -> Rows:
        query, key = (np.abs(arguments[name].astype(np.float64)) for name in ("query", "key"))
        own = arguments["query"].dtype
        dtype = np.dtype(working) if own.itemsize == 2 else own
        sizes = _products(query, key) * max(1.0, abs(arguments.get("scale") or 0.0))
        over = ~(sizes < np.finfo(dtype).max / 2)
        return np.asarray((over & ~pairs_of(arguments) if disallowed else over).any(axis=-1))

    return rows


def rows_without_keys(*names: str) -> Callable[[Arguments], Rows]:
    """Return the function that finds the rows to which some arguments, or all, allow no key."""

    def rows(arguments: Arguments) -> Rows:
        less = {x: arguments[x] for x in ("query", "key", *names) if x in arguments} if names else arguments
        return np.asarray(~pairs_of(less).any(axis=-1))

    return rows


def with_dtype(dtype: str = "", widest: str = "float64") -> OtherCall:
    """State that arrays are cast to a dtype, or to the widest of queries, keys and values up to one."""

    def change(arguments: Arguments) -> Arguments:
        arrays = ("query", "key", "value")
        given = {arguments[name].dtype.name for name in arrays}
        # Two dtypes of half precision have float32 in common.
        several = "float32" if len(given) > 1 else next(iter(given))
        to = dtype or next((x for x in ("float64", "float32") if x in given), several)
        to = min(to, widest, key=lambda name: np.dtype(name).itemsize)
        return {
            name: thing.astype(to) if name in (*arrays, "bias", "sinks") else thing
            for name, thing in arguments.items()
        }

    return OtherCall(change)


def some_outputs(*names: str) -> Elements:
    """Mean every element of some outputs."""
    return lambda _: dict.fromkeys(names, np.ones((), np.bool_))


def lse_elements(rows: Callable[[Arguments], Rows]) -> Elements:
    """Mean the lse of some rows."""
    return lambda arguments: {"lse": rows(arguments)}


#: Every number is NaN, and an lse may be infinite.
OF_NAN = (Special(every_element), Special(some_outputs("lse"), (np.inf, -np.inf)))


def as_booleans(name: str) -> OtherCall:
    """State that a mask of numbers is one of booleans, True where the number is not 0."""
    return OtherCall(lambda arguments: {**arguments, name: arguments[name] != 0})


def with_more_axes(arguments: Arguments) -> Arguments:
    """Repeat the arrays for the axes that a mask or a bias has before those of the scores."""
    name = "mask" if "mask" in arguments else "bias"
    added, axes = arguments[name], arguments["query"].ndim
    batch = np.broadcast_shapes(added.shape[:-3], arguments["query"].shape[:-3])
    arrays = {
        of: np.broadcast_to(arguments[of], (*batch, *(1,) * (3 - min(axes, 3)), *arguments[of].shape[-3:]))
        for of in ("query", "key", "value")
    }
    return {**arguments, **arrays}


def with_window_as_mask(arguments: Arguments) -> Arguments:
    """Make a mask of a window whose sides are any numbers."""
    left, right = (np.inf if side is None else side for side in arguments["window"])
    i = np.arange(arguments["query"].shape[-2])[:, None] + np.asarray(arguments.get("query_offset", 0))
    j = np.arange(arguments["key"].shape[-2])
    mask = (i - left <= j) & (j <= i + right)
    if arguments.get("mask") is not None:
        mask = mask & arguments["mask"]
    return {**{name: x for name, x in arguments.items() if name != "window"}, "mask": mask}


def with_masked_rows_open(arguments: Arguments, *, equal: bool = False) -> Arguments:
    """Allow all keys, but for those of other arguments, in rows that the mask alone leaves empty.

    A mask that is added as a finite number has no effect in such a row, or hides the scores.
    """
    others = {name: x for name, x in arguments.items() if name != "mask"}
    pairs = pairs_of(others)
    empty = pairs.any(axis=-1, keepdims=True) & ~(pairs & arguments["mask"]).any(axis=-1, keepdims=True)
    changed = {**others, "mask": np.where(empty, True, arguments["mask"])}
    if equal:
        bias = np.asarray(arguments.get("bias", 0.0)).astype(np.float64)
        changed["bias"] = np.where(empty, -scaled_scores_of(arguments), bias)
    return changed


def rows_below(largest: float) -> Callable[[Arguments], Rows]:
    """Return the function that finds the rows whose allowed keys all have a finite bias below a number."""

    def rows(arguments: Arguments) -> Rows:
        allowed = pairs_of(arguments)
        bias = np.broadcast_to(arguments["bias"].astype(np.float64), allowed.shape)
        return np.asarray(((bias < -largest) | ~allowed).all(axis=-1) & allowed.any(axis=-1))

    return rows


#: Differences of scores vanish beside a number of this magnitude in float32.
_FAR = 1e30


def with_number(*, added: float | None = None, of_float16: float | None = None) -> OtherCall:
    """State that disallowed keys have a number for their bias, the lowest by default.

    A bias of minus infinity is lower. A row without a key above it is the mean over its highest keys.
    """

    def change(arguments: Arguments) -> Arguments:
        dtype = arguments["query"].dtype
        number = of_float16 if dtype == np.float16 and of_float16 is not None else added
        lowest = -float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call] # it has no types
        number = lowest if number is None else number
        names = {*OPERATIONS["attention"].names("masks"), "query_offset"}
        less = {name: x for name, x in arguments.items() if name not in names}
        others = pairs_of({name: x for name, x in arguments.items() if name != "bias"})
        given = np.broadcast_to(np.asarray(arguments.get("bias", 0.0)).astype(np.float64), others.shape)
        bias = np.where(others, given, number)
        top = bias.max(axis=-1, keepdims=True, initial=-np.inf)
        level = np.isfinite(top) & (top < -_FAR)
        scores = scaled_scores_of(arguments)
        # In other rows disallowed keys have no weight. A large number would raise their budget.
        near = (top < number / 2) | ~(np.abs(scores).max(axis=-1, keepdims=True, initial=0) < -number / 4)
        # A bias that cancels the scores makes the weights equal.
        bias = np.where(level, -scores, np.where(near, bias, given))
        return {
            **less,
            "bias": bias,
            "mask": np.where(level, np.where(others, given, number) == top, near | others),
        }

    return OtherCall(change)


def _as_numbers(arguments: Arguments) -> Arguments:
    arrays = {
        name: arguments[name] for name in ("query", "key", "value", "bias", "sinks") if name in arguments
    }
    known = [array.dtype for name, array in arrays.items() if array.dtype.name in DTYPES]
    to = np.result_type(*known) if known else np.dtype(np.float32)
    cast = {name: np.real(array).astype(to) for name, array in arrays.items()}
    return {**arguments, **cast}


#: Arrays of other types are converted, and the results have some dtype.
OF_OTHER_TYPES = (OtherCall(_as_numbers), InDtype(""))


def with_depth(arguments: Arguments) -> Arguments:
    """Give queries and keys without features one feature of 0, so that all scores are 0."""
    deep = {
        name: np.zeros((*arguments[name].shape[:-1], 1), arguments[name].dtype)
        for name in ("query", "key")
        if not arguments[name].shape[-1]
    }
    return {**arguments, **deep}


#: A depth of 0 makes all scores 0. Values without features give nothing to compare.
OF_NO_DEPTH = OtherCall(with_depth)


def rows_all_below(arguments: Arguments) -> Rows:
    """Find the rows whose scores are all minus infinity, because the scale is infinite."""
    with np.errstate(invalid="ignore"):
        scores = scores_of(arguments) * arguments["scale"]
    return np.asarray((scores == -np.inf).all(axis=-1))


def with_repeated_heads(arguments: Arguments) -> Arguments:
    """Repeat the heads of keys and of values, each as often as it needs for those of queries."""
    heads = arguments["query"].shape[-3]
    repeated = {
        name: np.repeat(arguments[name], heads // arguments[name].shape[-3], axis=-3)
        for name in ("key", "value")
    }
    return {**arguments, **repeated}


def with_broadcast_batch(arguments: Arguments) -> Arguments:
    """Broadcast the batch axes of queries, keys and values."""
    names = ("query", "key", "value")
    batch = np.broadcast_shapes(*(arguments[name].shape[:-3] for name in names))
    wide = {
        name: np.broadcast_to(arguments[name], (*batch, *arguments[name].shape[-3:])).copy() for name in names
    }
    return {**arguments, **wide}


def without(*names: str) -> OtherCall:
    """State that some arguments are ignored."""
    return OtherCall(lambda arguments: {name: x for name, x in arguments.items() if name not in names})
