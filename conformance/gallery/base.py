"""One small correct attention in NumPy, as a row of steps: what the entries of the gallery differ from.

It is written to be read. Every step is a function that is found by its name in the
steps of the call, so that an entry can put another in its place.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Mask = NDArray[np.bool_]


class Steps(SimpleNamespace):
    """The steps by name, and `memory`, a dict that lives as long as the implementation."""

    def __repr__(self) -> str:
        return "the steps"


@dataclass(frozen=True)
class Call:
    """One call of attention.

    Attributes
    ----------
    own : Steps
        The implementation.
    query : (*B, Hq, L, D)
        In the working precision, as `key` and `value`; one head where it was given without.
    key : (*B, Hkv, S, D)
    value : (*B, Hkv, S, Dv)
    storage : dtype
        Of the query as it was given.
    flat : bool
        Whether it was given with two axes.

    The others are the options, by their canonical names.
    """

    own: Steps
    query: Array
    key: Array
    value: Array
    storage: Any
    flat: bool
    scale: float | None = None
    softcap: float | None = None
    bias: Array | None = None
    mask: Mask | None = None
    is_causal: bool = False
    query_offset: Any = 0
    window: tuple[int | None, int | None] | None = None
    query_lengths: Any = None
    key_lengths: Any = None
    query_segment_ids: Array | None = None
    key_segment_ids: Array | None = None
    sinks: Array | None = None
    dropout_mask: Mask | None = None
    dropout_rate: float = 0.0
    return_lse: bool = False
    return_weights: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the scores, ``(*B, Hq, L, S)``."""
        return (*self.query.shape[:-1], self.key.shape[-2])

    @property
    def queries(self) -> int:
        """How many there are, ``L``."""
        return int(self.query.shape[-2])

    @property
    def keys(self) -> int:
        """How many there are, ``S``."""
        return int(self.key.shape[-2])

    @property
    def i(self) -> Array:
        """Index of each query, ``(L, 1)``."""
        return np.arange(self.queries)[:, None]

    @property
    def j(self) -> Array:
        """Index of each key, ``(S,)``."""
        return np.arange(self.keys)

    @property
    def sink(self) -> Array:
        """The sinks in the working precision, against the scores, ``(Hq, 1, 1)``."""
        return np.asarray(self.sinks).astype(self.query.dtype)[:, None, None]


def attention(
    own: Steps,
    query: Array,
    key: Array,
    value: Array,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    bias: Array | None = None,
    mask: Mask | None = None,
    is_causal: bool = False,
    query_offset: Any = 0,
    window: tuple[int | None, int | None] | None = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    query_segment_ids: Array | None = None,
    key_segment_ids: Array | None = None,
    sinks: Array | None = None,
    dropout_mask: Mask | None = None,
    dropout_rate: float = 0.0,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Any:
    """Scaled dot-product attention, every rule of the standard."""
    given = {name: thing for name, thing in locals().items() if name != "own"}
    with np.errstate(all="ignore"):  # what is not finite is an affair of NUM-11 to NUM-14
        call = own.entered(own, own.checked(own, given))
        return own.returned(call, *own.attend(call))


def entered(own: Steps, given: dict[str, Any]) -> Call:
    """Give the arrays an axis of heads and the working precision."""
    flat = given["query"].ndim == 2
    arrays = {
        name: own.wide(given[name][None] if flat else given[name]) for name in ("query", "key", "value")
    }
    return Call(own, storage=given["query"].dtype, flat=flat, **{**given, **arrays})


def wide(array: Array) -> Array:
    """Half precision is computed in float32, anything else as it is (NUM-2, NUM-5)."""
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32)


def narrow(array: Array, storage: Any) -> Array:
    """Round a result to nearest, once (NUM-1, NUM-6)."""
    return array.astype(storage)


def attend(call: Call) -> tuple[Array, Array, Array]:
    """Compute output, lse and weights."""
    own = call.own
    s = own.scored(call)  # (*B, Hq, L, S)
    allowed = own.allowed(call)
    p, lse = own.softmax(call, s, allowed)
    p = own.dropped(call, p)
    return own.weighted(call, p, allowed), lse, p


def scored(call: Call) -> Array:
    """Dot products, scaled, then capped, then biased (SCORE-4, SCORE-5)."""
    own = call.own
    s: Array = own.biased(call, own.capped(call, own.product(call) * own.factor(call)))
    return s


def product(call: Call) -> Array:
    """Dot product of each query with each key of its head (SCORE-1)."""
    key: Array = call.own.shared(call, call.key)
    return call.query @ np.swapaxes(key, -1, -2)


def shared(call: Call, array: Array) -> Array:
    """Repeat key heads in place, one for each query head (HEAD-1)."""
    return np.repeat(array, call.query.shape[-3] // array.shape[-3], axis=-3)


def factor(call: Call) -> Any:
    """Take the scale, by default one over the root of the depth (SCORE-2, SCORE-3)."""
    scale = 1 / np.sqrt(call.query.shape[-1]) if call.scale is None else call.scale
    return call.query.dtype.type(scale)


def capped(call: Call, x: Array) -> Array:
    """Squeeze the scaled scores (SCORE-5)."""
    if call.softcap is None:
        return x
    cap = x.dtype.type(call.softcap)
    squeezed: Array = cap * np.tanh(x / cap)
    return squeezed


def biased(call: Call, x: Array) -> Array:
    """Add the bias, in the working precision (SCORE-4, ERR-14)."""
    return x if call.bias is None else x + call.bias.astype(x.dtype)


def softmax(call: Call, s: Array, allowed: Mask) -> tuple[Array, Array]:
    """Weights and lse of each row, over its allowed keys (SOFT-1, SOFT-6)."""
    own = call.own
    top = own.top(call, s, allowed)
    e = own.exponentials(call, s, allowed, top)
    total = own.total(call, e, top)
    return own.normalised(call, e, total), own.lse(call, top, total)


def top(call: Call, s: Array, allowed: Mask) -> Array:
    """Largest of what is in each row's denominator, 0 if nothing is (SOFT-2)."""
    most: Array = np.where(allowed, s, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    if call.sinks is not None:
        most = np.maximum(most, call.sink)
    return np.where(most == -np.inf, 0, most)


def exponentials(_call: Call, s: Array, allowed: Mask, top: Array) -> Array:
    """Shifted by the largest, and 0 where the key is disallowed (MASK-5)."""
    return np.where(allowed, np.exp(s - top), 0)


def total(call: Call, e: Array, top: Array) -> Array:
    """Sum up the denominator of each row, its sink included (SOFT-5)."""
    kept: Array = e.sum(axis=-1, keepdims=True)
    return kept if call.sinks is None else kept + np.exp(call.sink - top)


def normalised(_call: Call, e: Array, total: Array) -> Array:
    """Weights; a row with nothing to attend to is 0 (MASK-6)."""
    return e / np.where(total == 0, 1, total)


def lse(_call: Call, top: Array, total: Array) -> Array:
    """Logarithm of the denominator, of 0 minus infinity (SOFT-6, SOFT-7)."""
    return (top + np.log(total))[..., 0]


def dropped(call: Call, p: Array) -> Array:
    """Drop weights after the softmax, and raise the others by the rate (DROP-1, DROP-2)."""
    if call.dropout_mask is None:
        return p
    return np.where(call.dropout_mask, p / p.dtype.type(1 - call.dropout_rate), 0)


def weighted(call: Call, p: Array, allowed: Mask) -> Array:
    """Sum of the values by their weights, disallowed ones left out and not multiplied by 0 (MASK-13)."""
    value = call.own.shared(call, call.value)
    kept = np.where(allowed[..., None], value[..., None, :, :], 0)  # (*B, Hq, L, S, Dv)
    output: Array = (p[..., None] * kept).sum(axis=-2)
    return output


def returned(call: Call, output: Array, lse: Array, weights: Array) -> Any:
    """Round to the dtype of the query, all but the lse, and give what is asked for (NUM-1, NUM-7)."""
    own = call.own
    results = [own.narrow(output, call.storage)]
    if call.return_lse:
        results.append(lse)
    if call.return_weights:
        results.append(own.narrow(weights, call.storage))
    if call.flat:
        results = [array[0] for array in results]
    return tuple(results) if len(results) > 1 else results[0]
