"""Attention whose queries, keys and values are codes: the chapter `quantization`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.call import Array, Call, step
from attnspec.reference.evaluate import evaluate
from attnspec.reference.notation import Window, stored
from attnspec.reference.quantization import Encoding, check_codes, decoded
from attnspec.reference.quantized_attention import attended_by_codes, check_quantized, keys_and_values


def low_precision_attention(
    query_scales: ArrayLike,
    query_codes: ArrayLike,
    key_codes: ArrayLike,
    value_codes: ArrayLike,
    *,
    key_scales: ArrayLike | None = None,
    value_scales: ArrayLike | None = None,
    encoding: Encoding = "int8",
    scale: float | None = None,
    softcap: float | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    query_offset: ArrayLike = 0,
    window: Window | None = None,
    query_lengths: ArrayLike | None = None,
    key_lengths: ArrayLike | None = None,
    query_segment_ids: ArrayLike | None = None,
    key_segment_ids: ArrayLike | None = None,
    sinks: ArrayLike | None = None,
    dropout_mask: ArrayLike | None = None,
    dropout_rate: float = 0.0,
    return_lse: bool = False,
    return_weights: bool = False,
    return_max: bool = False,
    dtype: DTypeLike = np.float64,
) -> Any:
    """Attention of quantised queries over quantised keys and values.

    Parameters
    ----------
    query_scales : broadcasts by blocks to (*B, Hq, L, D)
        The results have its dtype.
    query_codes : int (*B, Hq, L, D) or (L, D)
    key_codes, value_codes, key_scales, value_scales, encoding
        As in `quantized_attention`.
    scale, softcap, bias, mask, is_causal, query_offset, window, query_lengths, key_lengths
        As in `attention`.
    query_segment_ids, key_segment_ids, sinks, dropout_mask, dropout_rate
        As in `attention`.
    return_lse, return_weights, return_max
        As in `attention`.
    dtype : data type, optional
        Working precision and dtype of the results.

    Returns
    -------
    output, lse, weights
        As those of `attention`.

    Raises
    ------
    ArgumentError
        If an argument is refused.

    Notes
    -----
    Rules QUANT-10 and QUANT-11.

    Examples
    --------
    >>> from attnspec.reference import low_precision_attention
    >>> low_precision_attention([1.0], [[0]], [[1], [2]], [[3], [5]], value_scales=[0.5]).tolist()
    [[2.0]]
    """
    return evaluate(low_precision_attention_of, locals())


def low_precision_attention_of(
    call: Call,
    query_scales: Array,
    query_codes: Array,
    key_codes: Array,
    value_codes: Array,
    *,
    encoding: str,
    key_scales: Array,
    value_scales: Array,
    **options: Any,
) -> Any:
    """Check the arguments, decode, and attend in the working precision; round once."""
    check_codes(call, "query_", query_codes, query_scales, None, encoding)
    check_quantized(call, query_codes, key_codes, value_codes, "query_codes")
    check_codes(call, "key_", key_codes, key_scales, None, encoding)
    check_codes(call, "value_", value_codes, value_scales, None, encoding)
    query = decoded(call, query_codes, query_scales, None, encoding, query_scales)
    keys, values = (key_codes, key_scales, None), (value_codes, value_scales, None)
    key, value = keys_and_values(call, query, keys, values, encoding)
    return attended_in_short(call, query, key, value, stored(call, query_scales), options)


@step
def attended_in_short(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Attend as `quantized_attention` does. Weights keep the working precision (QUANT-11)."""
    return attended_by_codes(call, query, key, value, storage, options)
