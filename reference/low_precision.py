"""Attention whose queries, keys and values are codes: the chapter `quantization`."""

from typing import Any

from attnspec.reference.call import Array, Call, step
from attnspec.reference.functions import public
from attnspec.reference.notation import stored
from attnspec.reference.quantization import check_codes, decoded
from attnspec.reference.quantized_attention import attended_by_codes, check_quantized, keys_and_values


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
    """Attention of quantised queries over quantised keys and values.

    Notes
    -----
    Rules QUANT-10 and QUANT-11.

    Examples
    --------
    >>> from attnspec.reference import low_precision_attention
    >>> low_precision_attention([1.0], [[0]], [[1], [2]], [[3], [5]], value_scales=[0.5]).tolist()
    [[2.0]]
    """
    check_codes(call, "query_", query_codes, query_scales, None, encoding)
    check_quantized(call, query_codes, key_codes, value_codes, "query_codes")
    check_codes(call, "key_", key_codes, key_scales, None, encoding)
    check_codes(call, "value_", value_codes, value_scales, None, encoding)
    query = decoded(call, query_codes, query_scales, None, encoding, query_scales)
    keys, values = (key_codes, key_scales, None), (value_codes, value_scales, None)
    key, value = keys_and_values(call, query, keys, values, encoding)
    return attended_in_short(call, query, key, value, stored(call, query_scales), options)


low_precision_attention = public(low_precision_attention_of)


@step
def attended_in_short(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Attend as `quantized_attention` does. Weights keep the working precision (QUANT-11)."""
    return attended_by_codes(call, query, key, value, storage, options)
