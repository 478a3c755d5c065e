"""Wrong implementations, each in one way: the portable source with one thing changed."""

import math

import ml_dtypes  # noqa: F401 - bfloat16 by its name
import numpy as np

from attnspec import OPERATIONS
from attnspec.backends import load
from attnspec.reference.masking import allowed_keys

portable = load("numpy-portable")
right = portable.attention
MASKING = OPERATIONS["attention"].names("masks")


def changed(change):
    """Attention whose options are changed on the way."""

    def attention(
        query,
        key,
        value,
        *,
        scale=None,
        softcap=None,
        bias=None,
        mask=None,
        is_causal=False,
        query_offset=0,
        window=None,
        query_lengths=None,
        key_lengths=None,
        query_segment_ids=None,
        key_segment_ids=None,
        sinks=None,
        dropout_mask=None,
        dropout_rate=0.0,
        return_lse=False,
        return_weights=False,
    ):
        options = {name: thing for name, thing in locals().items() if name != "change"}
        arrays = {name: options.pop(name) for name in ("query", "key", "value")}
        return change(arrays, options)

    return attention


def options_of(**replace):
    """Attention with some options replaced by a function of all arguments."""

    def change(arrays, options):
        new = {name: replacing(**(arrays | options)) for name, replacing in replace.items()}
        return right(*arrays.values(), **(options | new))

    return changed(change)


def result(function):
    """Attention whose results are changed: function(outputs by name, all arguments) -> outputs."""

    def change(arrays, options):
        whole = right(*arrays.values(), **(options | {"return_lse": True, "return_weights": True}))
        outputs = function(dict(zip(("output", "lse", "weights"), whole, strict=True)), arrays | options)
        wanted = ["output"]
        wanted += [name for name in ("lse", "weights") if options[f"return_{name}"]]
        return tuple(outputs[name] for name in wanted) if len(wanted) > 1 else outputs["output"]

    return changed(change)


def inputs(function):
    """Attention whose arguments are changed: function(all arguments) -> those to be changed."""

    def change(arrays, options):
        every = {**arrays, **options}
        every |= function(every)
        given = [every.pop(name) for name in arrays]
        return right(*given, **every)

    return changed(change)


def dense(
    query,
    key,
    value,
    *,
    scale=None,
    softcap=None,
    bias=None,
    mask=None,
    is_causal=False,
    lowest=None,
    order="scores",
    return_weights=False,
):
    """What half of the world writes: scores, minus a large number where masked, softmax, product."""
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    s = query @ np.swapaxes(key, -1, -2) * np.asarray(scale, query.dtype)
    s = s if bias is None else s + bias
    allowed = allowed_keys(s.shape, mask=mask, is_causal=is_causal)
    with np.errstate(all="ignore"):
        if order == "mask first":
            s = np.where(allowed, s, -np.inf)
            s = s if softcap is None else softcap * np.tanh(s / softcap)
        elif order == "added":
            s = s + np.where(allowed, 0, lowest)
        else:
            s = np.where(allowed, s, lowest)
        e = np.exp(s - s.max(axis=-1, keepdims=True, initial=-np.inf))
        weights = (e / e.sum(axis=-1, keepdims=True)).astype(query.dtype)
        return (weights @ value, weights) if return_weights else weights @ value


def softcap_after_mask(query, key, value, *, scale=None, softcap=None, mask=None, is_causal=False):
    return dense(
        query, key, value, scale=scale, softcap=softcap, mask=mask, is_causal=is_causal, order="mask first"
    )


def finite_sentinel(query, key, value, *, scale=None, bias=None, mask=None, is_causal=False):
    return dense(query, key, value, scale=scale, bias=bias, mask=mask, is_causal=is_causal, lowest=-1e4)


def added_sentinel(query, key, value, *, mask=None, is_causal=False, return_weights=False):
    return dense(
        query,
        key,
        value,
        mask=mask,
        is_causal=is_causal,
        lowest=-1e4,
        order="added",
        return_weights=return_weights,
    )


def zero_times_nan(query, key, value, *, mask=None, is_causal=False):
    weights = right(query, key, np.zeros_like(value), mask=mask, is_causal=is_causal, return_weights=True)[1]
    with np.errstate(all="ignore"):
        return weights @ value


def with_heads(key, like, *, tiled):
    groups = like.shape[-3] // key.shape[-3]
    return np.concatenate([key] * groups, axis=-3) if tiled else np.repeat(key, groups, axis=-3)


def tiled(every):
    return {name: with_heads(every[name], every["query"], tiled=True) for name in ("key", "value")}


softcap_ignored = options_of(softcap=lambda **_: None)
bias_before_cap = inputs(
    lambda every: (
        every
        if every["softcap"] is None or every["bias"] is None
        else {
            "bias": np.where(
                np.isinf(every["bias"]),
                every["bias"],
                _capped(every, every["bias"]) - _capped(every, np.zeros(1, every["query"].dtype)),
            ).astype(every["query"].dtype),
        }
    )
)


def _capped(every, bias):
    scale = 1 / math.sqrt(every["query"].shape[-1]) if every["scale"] is None else every["scale"]
    s = every["query"] @ np.swapaxes(every["key"], -1, -2) * scale
    with np.errstate(invalid="ignore"):
        return every["softcap"] * np.tanh((s + np.where(np.isinf(bias), 0, bias)) / every["softcap"])


offset_negated = options_of(query_offset=lambda query_offset, **_: -np.asarray(query_offset))
offset_of_the_first = options_of(
    query_offset=lambda query_offset, **_: int(np.asarray(query_offset).ravel()[0])
)
bottom_right = options_of(
    query_offset=lambda query, key, query_offset, is_causal, **_: (
        key.shape[-2] - query.shape[-2] if is_causal and np.all(query_offset == 0) else query_offset
    )
)
exclusive_left = options_of(
    mask=lambda query, key, mask, window, query_offset, **_: (
        mask
        if not window or window[0] is None
        else (True if mask is None else mask)
        & (
            np.arange(key.shape[-2])
            - np.arange(query.shape[-2])[:, None]
            - np.reshape(query_offset, np.shape(query_offset) + (1, 1, 1) * (np.ndim(query_offset) > 0))
            > -window[0]
        )
    )
)
window_lost_beside_a_mask = options_of(window=lambda window, mask, **_: window if mask is None else None)
causal_lost_beside_dropout = options_of(
    is_causal=lambda is_causal, dropout_mask, **_: is_causal and dropout_mask is None
)
lengths_off_by_one = options_of(
    key_lengths=lambda key, key_lengths, **_: (
        None if key_lengths is None else np.minimum(np.asarray(key_lengths) + 1, key.shape[-2])
    )
)
query_lengths_ignored = options_of(query_lengths=lambda **_: None)
segments_of_sign = inputs(
    lambda every: (
        {}
        if every["key_segment_ids"] is None
        else {name: np.sign(every[name]) for name in ("query_segment_ids", "key_segment_ids")}
    )
)
scale_folded_into_sink = options_of(
    sinks=lambda sinks, scale, query, **_: (
        None
        if sinks is None
        else (sinks * (query.shape[-1] ** -0.5 if scale is None else scale)).astype(sinks.dtype)
    )
)
sink_of_first_head = options_of(
    sinks=lambda sinks, **_: None if sinks is None else np.full_like(sinks, sinks[0])
)
base_two = result(lambda out, _: out | {"lse": (out["lse"] / np.log(2)).astype(out["lse"].dtype)})
plus_infinity = result(lambda out, _: out | {"lse": np.where(out["lse"] == -np.inf, np.inf, out["lse"])})
lse_flat = result(lambda out, _: out | {"lse": out["lse"][..., None]})
lse_short = result(lambda out, every: out | {"lse": out["lse"].astype(every["query"].dtype)})
tiled_heads = inputs(lambda every: tiled(every) if every["query"].ndim > 2 else {})
nan_to_number = result(lambda out, _: {name: np.nan_to_num(x, nan=0) for name, x in out.items()})
value_cleaned = inputs(lambda every: {"value": np.nan_to_num(every["value"])})
infinity_as_zero = inputs(
    lambda every: {"key": np.where(np.isinf(every["key"]), 0, every["key"]).astype(every["key"].dtype)}
)
lse_of_what_is_left = result(
    lambda out, every: (
        out if every["dropout_mask"] is None else out | {"lse": (out["lse"] + 0.125).astype(out["lse"].dtype)}
    )
)


def dropout_before_softmax(arrays, options):
    dropped, options = options["dropout_mask"], options | {"dropout_mask": None, "dropout_rate": 0.0}
    if dropped is not None:
        options["mask"] = dropped if options["mask"] is None else dropped & options["mask"]
    return right(*arrays.values(), **options)


dropout_as_mask = changed(dropout_before_softmax)
dropout_without_rate = options_of(dropout_rate=lambda **_: 0.0)


def memory_order(query, key, value):
    """Reads the buffer as it lies, whatever the strides."""
    flat = [np.ravel(array, order="K").reshape(array.shape) for array in (query, key, value)]
    return right(*flat)


def noisy(query, key, value):
    output = right(query, key, value)
    step = np.spacing(np.abs(output))
    return np.where(np.random.default_rng().random(output.shape) < 0.5, output, output + step)


def batch_dependent(query, key, value):
    output = right(query, key, value)
    return output + np.spacing(np.abs(output)) if query.shape[0] > 1 else output


def promoting(query, key, value):
    dtype = np.result_type(query, key, value)
    return right(*(array.astype(dtype) for array in (query, key, value))).astype(query.dtype)


def converting(query, key, value):
    return right(*(np.real(array).astype(np.float32) for array in (query, key, value)))


mask_of_anything = options_of(
    mask=lambda mask, **_: None if mask is None else mask.astype(bool),
    dropout_mask=lambda dropout_mask, **_: None if dropout_mask is None else dropout_mask.astype(bool),
)


def depth_of_nothing(query, key, value):
    if 0 in (query.shape[-1], value.shape[-1]):
        return np.zeros((*query.shape[:-1], value.shape[-1]), query.dtype)
    return right(query, key, value)


scale_of_anything = options_of(
    scale=lambda scale, **_: scale if scale is None or math.isfinite(scale) else 1.0
)
softcap_of_zero = options_of(softcap=lambda softcap, **_: softcap or None)
window_of_minus_one = options_of(
    window=lambda window, **_: (
        window if not isinstance(window, tuple) else tuple(None if bound == -1 else bound for bound in window)
    )
)
offset_truncated = options_of(query_offset=lambda query_offset, **_: int(query_offset))
lengths_clamped = options_of(
    key_lengths=lambda key, key_lengths, **_: (
        None if key_lengths is None else np.clip(key_lengths, 0, key.shape[-2])
    )
)
ids_of_one_side = inputs(
    lambda every: (
        {}
        if (every["key_segment_ids"] is None) == (every["query_segment_ids"] is None)
        else {"key_segment_ids": None, "query_segment_ids": None}
    )
)
sinks_broadcast = options_of(
    sinks=lambda sinks, query, **_: None if sinks is None else np.resize(sinks, query.shape[-3:-2] or 1)
)


def silent(arrays, options):
    try:
        return right(*arrays.values(), **options)
    except ValueError:
        raise ValueError("invalid argument") from None


unnamed_errors = changed(silent)
_kept = {}


def keeping(arrays, options):
    """A scale that is taken from the first call of the shapes."""
    key = tuple(array.shape for array in arrays.values()), str(arrays["query"].dtype)
    return right(*arrays.values(), **(options | {"scale": _kept.setdefault(key, options["scale"])}))


stale_scale = changed(keeping)
bias_rounded = options_of(bias=lambda bias, query, **_: None if bias is None else bias.astype(query.dtype))


def few_heads(query, key, value):
    """Broadcasts heads that do not divide."""
    if query.ndim > 2 and query.shape[-3] % key.shape[-3]:
        return right(query, *(np.resize(x, (*query.shape[:-2], *x.shape[-2:])) for x in (key, value)))
    return right(query, key, value)
