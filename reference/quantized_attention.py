"""Attention over codes: of keys and values, and of queries too."""

from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Arguments, Array, Call, step
from attnspec.reference.errors import check_declared
from attnspec.reference.functions import public
from attnspec.reference.notation import by_name, in_storage, out_dtype, wide
from attnspec.reference.quantization import check_code_range, check_zero_points, decode

#: Codes, their scales and their zero points.
Quantised = tuple[Array, Array, Array]


def quantized_attention_of(call: Call, **arguments: Any) -> Any:
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
    coded, options = split(call, check_declared(call, "quantized_attention", arguments))
    return attend_coded(call, options.pop("query"), coded, options)


quantized_attention = public(quantized_attention_of)


def split(call: Call, arguments: Arguments) -> tuple[dict[str, Quantised], Arguments]:
    """Return the codes of each array with their scales and zero points, and the other arguments."""
    rest, coded = dict(arguments), {}
    for name in ("query", "key", "value"):
        if f"{name}_codes" in rest:
            codes, scales = rest.pop(f"{name}_codes"), rest.pop(f"{name}_scales")
            zero_points = rest.pop(f"{name}_zero_points", None)
            check_code_range(call, f"{name}_codes", codes, arguments["encoding"])
            check_zero_points(call, f"{name}_zero_points", zero_points, arguments["encoding"])
            coded[name] = (codes, scales, zero_points)
    return coded, rest


@step
def attend_coded(call: Call, query: Array, coded: dict[str, Quantised], options: Arguments) -> Any:
    """Decode keys and values, and attend to them (QUANT-8)."""
    key, value = keys_and_values(call, query, coded["key"], coded["value"], options.pop("encoding"))
    return attend_by_codes(call, wide(call, query), key, value, out_dtype(call, query), options)


@step
def keys_and_values(
    call: Call, query: Array, key: Quantised, value: Quantised, encoding: str
) -> tuple[Array, Array]:
    """Decode keys and values in the working precision of the query (QUANT-8)."""
    return decode(call, *key, encoding, query), decode(call, *value, encoding, query)


@step
def attend_by_codes(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Attend in the working precision, and round output and weights once (QUANT-8)."""
    outputs = by_name("attention", options, attention_of(call, query, key, value, **options))
    return in_storage(call, "attention", outputs, storage)


def low_precision_attention_of(call: Call, **arguments: Any) -> Any:
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
    coded, options = split(call, check_declared(call, "low_precision_attention", arguments))
    scales, encoding = arguments["query_scales"], options.pop("encoding")
    query = decode(call, *coded["query"], encoding, scales)
    key, value = keys_and_values(call, query, coded["key"], coded["value"], encoding)
    return attend_low_precision(call, query, key, value, out_dtype(call, scales), options)


low_precision_attention = public(low_precision_attention_of)


@step
def attend_low_precision(
    call: Call, query: Array, key: Array, value: Array, storage: Any, options: dict[str, Any]
) -> Any:
    """Attend as `quantized_attention` does. Weights keep the working precision (QUANT-11)."""
    return attend_by_codes(call, query, key, value, storage, options)
