"""Correct entries that compute one step in another way: other formulas, orders, precisions and forms."""

import math
from typing import Any

import numpy as np

from attnspec import OPERATIONS, claimable
from attnspec.conformance.gallery.bases.online import TILED, WINDOWED, WINDOWED_SMALL
from attnspec.conformance.gallery.bases.splitting import DECODING, FEW
from attnspec.conformance.gallery.entry import Array, Entry, base, correct
from attnspec.conformance.gallery.invariance import in_splits, in_tiles, products_by_feature
from attnspec.conformance.gallery.quantization import shorten, with_weights
from attnspec.reference.attention import attention_of
from attnspec.reference.call import Arguments, Call, Mask
from attnspec.reference.frequencies import Frequencies
from attnspec.reference.latent import ARRAYS
from attnspec.reference.masking import SOURCES
from attnspec.reference.notation import Attention, narrow
from attnspec.reference.quantized_attention import Quantised
from attnspec.reference.sparsity import Sparse

plain = Entry("plain", "The implementation that all others differ from.", {})


@correct("score")
def scale_in_the_query(call: Attention) -> Any:
    """Scale the queries before the product."""
    x = (call.query * base.factor(call)) @ np.swapaxes(base.repeat_heads(call, call.key), -1, -2)
    return base.add_bias(call, base.cap(call, x))


@correct("score")
def scale_by_its_root(call: Attention) -> Any:
    """Multiply queries and keys by the root of the scale, its sign taken out first."""
    scale = call.query.dtype.type(base.factor(call))
    root = np.sqrt(np.abs(scale))
    query, key = call.query * (np.sign(scale) * root), base.repeat_heads(call, call.key) * root
    return base.add_bias(call, base.cap(call, query @ np.swapaxes(key, -1, -2)))


@correct("product")
def feature_by_feature(call: Attention) -> Any:
    """Add up the products of one feature after the other."""
    return products_by_feature(call)


@correct("product")
def heads_in_groups(call: Attention) -> Any:
    """Give the queries of a group an axis of their own, and repeat no key."""
    *batch, heads, queries, depth = call.query.shape
    shared = call.key.shape[-3]
    query = call.query.reshape(*batch, shared, heads // shared, queries, depth)  # (*B, Hkv, G, L, D)
    return np.einsum("...gld,...sd->...gls", query, call.key).reshape(call.shape)


@correct("score")
def softcap_by_exponentials(call: Attention) -> Any:
    """Take the hyperbolic tangent from exponentials of a number that is never positive."""
    x = base.product(call) * base.factor(call)
    if call.softcap is None:
        return base.add_bias(call, x)
    cap = x.dtype.type(call.softcap)
    less = -np.expm1(-2 * np.abs(x / cap))
    return base.add_bias(call, cap * np.copysign(less / (2 - less), x))


@correct("allowed_pairs")
def masks_counted(call: Attention) -> Any:
    """Count the sources that allow a key, and ask for all of them."""
    sources = [source(call) for source in SOURCES]
    count = sum((np.broadcast_to(source, call.shape).astype(np.int8) for source in sources), np.int8(0))
    return count == len(sources)


@correct("exponentials")
def exponentials_to_base_two(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Take powers of 2, as hardware does."""
    return np.where(allowed, np.exp2((s - top) * s.dtype.type(np.log2(np.e))), 0)


@correct("exponentials")
def minus_infinity_filled_in(_call: Attention, s: Array, allowed: Mask, top: Array) -> Any:
    """Put minus infinity in the place of disallowed scores, and mask no more."""
    return np.exp(np.where(allowed, s, -np.inf).astype(s.dtype) - top)


@correct("softmax_of")
def weights_from_their_logarithm(call: Attention, s: Array, allowed: Mask) -> Any:
    """Take the logarithm of the denominator from the scores, and one exponential of that."""
    top = base.top(call, s, allowed)
    total = base.total(call, base.exponentials(call, s, allowed, top), top)
    shifted = (s - top) - np.log(np.where(total == 0, 1, total))
    return np.where(allowed, np.exp(shifted), 0), base.lse(call, top, total)


@correct("softmax_of")
def sink_as_a_key(call: Attention, s: Array, allowed: Mask) -> Any:
    """Put the sink in front of the scores as a key of its own, and drop its weight."""
    if call.sinks is None:
        return base.softmax_of(call, s, allowed)
    column = (*s.shape[:-1], 1)
    longer = np.concatenate([np.broadcast_to(call.sink, column), s], axis=-1)
    seen = np.concatenate([np.broadcast_to(call.sink != -np.inf, column), allowed], axis=-1)
    top = base.top(call, longer, seen)
    e = base.exponentials(call, longer, seen, top)
    total = e.sum(axis=-1, keepdims=True)
    return base.normalise(call, e, total)[..., 1:], base.lse(call, top, total)


@correct("softmax_of")
def keys_down_the_columns(call: Attention, s: Array, allowed: Mask) -> Any:
    """Hold scores with a row for each key, and take the softmax along the columns."""
    turned, seen = (np.ascontiguousarray(np.swapaxes(array, -1, -2)) for array in (s, allowed))  # (..., S, L)
    top = np.where(seen, turned, -np.inf).max(axis=-2, initial=-np.inf)[..., None, :]
    if call.sinks is not None:
        top = np.maximum(top, call.sink)
    top = np.where(top == -np.inf, 0, top).astype(s.dtype)
    e = np.where(seen, np.exp(turned - top), 0)
    total = np.add.reduce(e, axis=-2, keepdims=True)
    if call.sinks is not None:
        total = total + np.exp(call.sink - top)
    p = e / np.where(total == 0, 1, total)
    return np.swapaxes(p, -1, -2), (top + np.log(total))[..., 0, :]


@correct("total")
def sums_with_compensation(call: Attention, e: Array, top: Array) -> Any:
    """Carry what each addition lost on to the next."""
    total = np.zeros_like(top) if call.sinks is None else np.exp(call.sink - top)
    lost = np.zeros_like(total)
    for j in range(e.shape[-1]):
        term = e[..., j, None] - lost
        more = total + term
        total, lost = more, (more - total) - term
    return total


@correct("wide")
def everything_in_float64(_call: Attention, array: Array) -> Any:
    """Compute in float64 whatever the inputs are, and round at the end."""
    return array.astype(np.float64)


@correct("drop")
def dropout_by_a_factor(call: Attention, p: Array) -> Any:
    """Multiply the weights by the mask over the share that is kept."""
    if call.dropout_mask is None:
        return p
    return p * (call.dropout_mask / p.dtype.type(1 - call.dropout_rate)).astype(p.dtype)


@correct("weighted_sum", "cast")
def weights_cast_to_storage(call: Attention, p: Array, allowed: Mask) -> Any:
    """Round the weights to the dtype of the query before they meet the values, as fused kernels do."""
    return base.weighted_sum(call, p.astype(call.storage).astype(p.dtype), allowed)


@correct("weighted_sum")
def nan_carried_beside_the_product(call: Attention, p: Array, allowed: Mask) -> Any:
    """Use one product of matrices for the finite values, and add what is not finite after it."""
    value = base.repeat_heads(call, call.value)
    finite = np.isfinite(value)
    output = p @ np.where(finite, value, 0)
    if finite.all():
        return output
    seen, others = allowed[..., None], value[..., None, :, :]
    return output + np.where(seen & ~finite[..., None, :, :], p[..., None] * others, 0).sum(axis=-2)


@correct("llama3")
def smooth_by_wavelengths(call: Frequencies) -> Any:
    """Compare wavelengths, in float32, as the published code does."""
    plain = base.base_frequencies(call).astype(np.float32)
    length, low, high = call.original_length, call.low_frequency_factor, call.high_frequency_factor
    if call.features.dtype == np.float64:
        plain = base.base_frequencies(call)
    wavelength = 2 * math.pi / plain
    smooth = (length / wavelength - low) / (high - low)
    between = (1 - smooth) * plain / call.factor + smooth * plain
    result: Array = np.where(wavelength > length / low, plain / call.factor, plain)
    return np.where((wavelength <= length / low) & (wavelength >= length / high), between, result)


LOOPS = tuple(
    Entry(f"tiles_of_{each.name}", f"Go through keys {each.words}.", {"attend": each.attend})
    for each in TILED
)
WINDOWS = tuple(
    Entry(
        f"tiles_{each.name}",
        f"Visit only tiles within window, causal mask and lengths, {each.words}.",
        {"attend": each.attend},
    )
    for each in (WINDOWED, WINDOWED_SMALL)
)
SPLITS = tuple(
    Entry(f"splits_{each.name}", f"Merge finished results {each.words}.", {"attend": each.attend})
    for each in (*DECODING, FEW)
)


@correct("keys_and_values", "cast")
def codes_decoded_to_the_dtype_of_the_query(
    call: Call, query: Array, key: Quantised, value: Quantised, encoding: str
) -> Any:
    """Round decoded keys and values to the dtype of the query."""
    result = base.keys_and_values(call, query, key, value, encoding)
    return tuple(narrow(call, each, query.dtype).astype(each.dtype) for each in result)


@correct("attend_low_precision", "cast")
def weights_of_eight_bits_raised(call: Call, *arrays: Any) -> Any:
    """Multiply weights by 256, round them to e4m3fn where the result has half precision, and divide."""
    if np.dtype(arrays[3]).itemsize > 2:  # in float32 and float64 weights are not rounded
        return base.attend_low_precision(call, *arrays)
    return base.attend_low_precision(with_weights(call, lambda p: shorten(p, 256)), *arrays)


@correct("scale_codes")
def scales_multiplied_by_two_factors(_call: Call, numbers: Array, scale: Array) -> Any:
    """Split each scale into its power of 2 and its digits."""
    digits, exponent = np.frexp(scale)
    return np.ldexp(numbers * digits, exponent)


@correct("attend", claims=claimable())
def one_order_of_sums(call: Attention) -> Any:
    """Add up features and keys one after the other, whatever is beside them."""
    return in_splits(call)


@correct("attend", claims=claimable())
def tiles_of_a_fixed_size(call: Attention) -> Any:
    """Add up the keys in tiles of 32 from the first key on, however many there are."""
    return in_tiles(call, 32)


@correct("attend_sparse")
def listed_keys_gathered(given: Sparse) -> Any:
    """Gather the listed keys and values of each query, and attend to each of them once."""
    plain = ("query", "key", "value", "key_indices", "scale", "return_lse")
    known = {argument.name: argument.default for argument in OPERATIONS["listed_attention"].named}
    others = (name for name in known if name not in plain)
    if given.key_indices is None or any(getattr(given, name) is not known[name] for name in others):
        return base.attend_sparse(given)
    work = np.float64 if given.query.dtype == np.float64 else np.float32
    query, key, value = (x.astype(work) for x in (given.query, given.key, given.value))
    lists = given.key_indices
    lists = np.broadcast_to(lists, (*key.shape[:-2], query.shape[-2], lists.shape[-1]))
    if query.ndim > 2:
        group = query.shape[-3] // key.shape[-3]
        key, value, lists = (np.repeat(x, group, axis=-3) for x in (key, value, lists))
    width = lists.shape[-1]
    before = np.tril(np.ones((width, width), bool), -1)
    again = ((lists[..., :, None] == lists[..., None, :]) & before).any(axis=-1)
    none = (lists < 0) | again  # (*B, Hq, L, W)
    scale = 1 / np.sqrt(query.shape[-1]) if given.scale is None else given.scale
    scores = (query[..., :, None, :] * _gather(key, lists, none)).sum(axis=-1) * work(scale)
    scores = np.where(none, -np.inf, scores)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(top == -np.inf, 0, top)
    rates = np.exp(scores - top)
    total = rates.sum(axis=-1, keepdims=True)
    weights = rates / np.where(total == 0, 1, total)
    output = (weights[..., None] * _gather(value, lists, none)).sum(axis=-2).astype(given.query.dtype)
    lse = np.where(total == 0, -np.inf, top + np.log(np.where(total == 0, 1, total)))[..., 0].astype(work)
    return (output, lse) if given.return_lse else output


def _gather(array: Array, lists: Array, none: Array) -> Array:
    """Gather rows of an array, ``(*B, Hq, L, W, D)``, and 0 for no key."""
    places = np.where(none, 0, lists)[..., None]
    return np.where(none[..., None], 0, np.take_along_axis(array[..., None, :, :], places, axis=-2))


def absorb(call: Call, given: Arguments, values: Array | None = None, dtype: Any = None) -> Any:
    """Attend over the latent with one key head, and project the result."""
    query = given["query"] @ np.swapaxes(given["key_weight"], -1, -2)  # (*B, Hq, L, Dc)
    query = query if dtype is None else query.astype(dtype).astype(query.dtype)
    query = np.concatenate([query, given["query_rotary"]], axis=-1)
    key = np.concatenate([given["latent"], given["key_rotary"]], axis=-1)[..., None, :, :]
    value = (given["latent"] if values is None else values)[..., None, :, :]
    options = {name: thing for name, thing in given.items() if name not in ARRAYS}
    result = attention_of(call, query, key, value, **options)
    context, *others = result if isinstance(result, tuple) else (result,)
    context = context if dtype is None else context.astype(dtype).astype(context.dtype)
    output = context @ given["value_weight"]
    return (output, *others) if others else output


@correct("attend_latent")
def latent_absorbed(call: Call, given: Arguments, _storage: Any) -> Any:
    """Multiply queries by the key weight, and the result by the value weight, as decoding kernels do."""
    return absorb(call, given)


@correct("attend_latent")
def latent_absorbed_and_stored(call: Call, given: Arguments, storage: Any) -> Any:
    """Round the absorbed queries and the attended latent to the dtype of the call."""
    return absorb(call, given, dtype=storage)


@correct("latent_keys")
def latent_part_by_part(call: Call, given: Arguments) -> Any:
    """Project the keys by one feature of the latent after the other."""
    result = base.latent_keys(call, given)
    own = np.zeros_like(result[..., : given["query"].shape[-1]])
    for feature in range(given["latent"].shape[-1]):
        row = given["key_weight"][:, None, feature, :]  # (Hq, 1, D)
        own = own + given["latent"][..., None, :, feature, None] * row
    return np.concatenate([own, result[..., own.shape[-1] :]], axis=-1)


@correct("select")
def last_of_equal_scores_selected(call: Call, scores: Array, places: int, candidates: Mask) -> Array:
    """Select the last keys among those with the same score."""
    lists = base.select(call, scores[..., ::-1], places, candidates[..., ::-1])
    return np.where(lists >= 0, scores.shape[-1] - 1 - lists, -1)


@correct("select")
def lists_by_index(call: Call, scores: Array, places: int, candidates: Mask) -> Array:
    """Sort the entries of a list, those of -1 first, and return int32."""
    return np.sort(base.select(call, scores, places, candidates), axis=-1).astype(np.int32)


@correct("select")
def selection_bit_by_bit(_call: Call, scores: Array, places: int, candidates: Mask) -> Array:
    """Find the score of the last place from its first bit on, then list what is above it, then its equals."""
    form, sign = f"u{scores.dtype.itemsize}", 8 * scores.dtype.itemsize - 1
    bits = np.where(scores == 0, 0, scores).astype(scores.dtype).view(form)
    key = np.where(bits >> sign == 1, ~bits, bits | np.ones((), form) << sign).astype(np.uint64)
    last = np.zeros((*scores.shape[:-1], 1), np.uint64)  # in the order of the scores
    for bit in range(sign, -1, -1):
        higher = last + np.uint64(2**bit)
        enough = (candidates & (key >= higher)).sum(axis=-1, keepdims=True) >= places
        last = np.where(enough, higher, last)
    above, equal = candidates & (key > last), candidates & (key == last)
    left = places - above.sum(axis=-1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, axis=-1) <= left))
    lists = np.full((*scores.shape[:-1], places), -1)
    for row in np.ndindex(*scores.shape[:-1]):
        found = np.flatnonzero(chosen[row])
        lists[(*row, slice(len(found)))] = found
    return lists
