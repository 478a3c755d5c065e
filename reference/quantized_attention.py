"""Attention over codes: of keys and values, and of queries too."""

from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Array, Call, step
from attnspec.reference.errors import array, need, real
from attnspec.reference.functions import public
from attnspec.reference.notation import narrow, stored, wide
from attnspec.reference.quantization import check_codes, decoded

#: Codes, their scales and their zero points.
Quantised = tuple[Array, Array, Array]


def quantized_attention_of(
    call: Call, query: Array, key_codes: Array, value_codes: Array, *, encoding: str, **options: Any
) -> Any:
    """Attention over quantised keys and values.

    Notes
    -----
    Rule QUANT-8.

    Examples
    --------
    >>> from attnspec.reference import quantized_attention
    >>> quantized_attention([[0.0]], [[1], [2]], [[3], [5]], value_scales=[0.5]).tolist()
    [[2.0]]
    """
    real(call, "query", query, "ERR-2")
    check_quantized(call, query, key_codes, value_codes)
    given = []
    for name, codes in (("key", key_codes), ("value", value_codes)):
        own = options.pop(f"{name}_scales"), options.pop(f"{name}_zero_points")
        check_codes(call, f"{name}_", codes, own[0], own[1], encoding)
        given.append((codes, *own))
    key, value = keys_and_values(call, query, given[0], given[1], encoding)
    return attended_by_codes(call, wide(call, query), key, value, stored(call, query), options)


quantized_attention = public(quantized_attention_of)


@step
def keys_and_values(
    call: Call, query: Array, key: Quantised, value: Quantised, encoding: str
) -> tuple[Array, Array]:
    """Decode keys and values in the working precision of the query (QUANT-8)."""
    return decoded(call, *key, encoding, query), decoded(call, *value, encoding, query)


@step
def attended_by_codes(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Attend in the working precision, and round output and weights once (QUANT-8)."""
    results = attention_of(call, query, key, value, **options)
    if not isinstance(results, tuple):
        return narrow(call, results, storage)
    last = len(results) - 1
    kept = {1} if options["return_lse"] else set()  # an lse and a maximum have a dtype of their own (NUM-7)
    kept |= {last} if options["return_max"] else set()
    return tuple(each if place in kept else narrow(call, each, storage) for place, each in enumerate(results))


@step
def check_quantized(
    call: Call, query: Array, key_codes: Array, value_codes: Array, name: str = "query"
) -> None:
    """Check that codes of keys and values fit the query and each other (QUANT-9)."""
    arguments = {name: query, "key_codes": key_codes, "value_codes": value_codes}
    shape, keys, values = (tuple(array(call, own, each, "QUANT-9").shape) for own, each in arguments.items())
    need(
        name,
        len(shape) >= 2,
        "two axes or more",
        f"shape {shape}",
        "SHAPE-6" if name == "query" else "QUANT-9",
    )
    if name != "query" and len(keys) == len(values) and keys[:-3] == values[:-3]:
        same = len(shape) == len(keys) and shape[:-3] == keys[:-3]
        need(name, same, f"batch axes {keys[:-3]} as in key_codes", f"shape {shape}", "QUANT-9")
    for codes, own in (("key_codes", keys), ("value_codes", values)):
        same = len(own) == len(shape) and own[:-3] == shape[:-3]
        need(codes, own[-1:] != (0,), "a depth of 1 or more", 0, "ERR-5")
        need(codes, same, f"batch axes {shape[:-3]} as in query", f"shape {own}", "QUANT-9")
    need("key_codes", keys[-1] == shape[-1], f"depth {shape[-1]} as in query", keys[-1], "QUANT-9")
    need("value_codes", values[-2] == keys[-2], f"{keys[-2]} positions", values[-2], "QUANT-9")
    if len(shape) > 2:
        need("key_codes", keys[-3] > 0, "one head or more", 0, "HEAD-2")
        fits = shape[-3] % keys[-3] == 0
        need("key_codes", fits, f"a divisor of the {shape[-3]} heads", keys[-3], "QUANT-9")
        need("value_codes", values[-3] == keys[-3], f"{keys[-3]} heads", values[-3], "QUANT-9")


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
