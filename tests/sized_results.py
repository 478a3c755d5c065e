"""A sized case, and the portable backend with changed results."""

from dataclasses import replace

from attnspec.backends import load
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.formula import Formula

PORTABLE = load("numpy-portable")
right = PORTABLE.attention
#: A causal problem with fewer queries than keys, more than 512 of them, an odd number.
OPTIONS = {"is_causal": True, "query_offset": 561}
FORMULA = Formula(40, 601, 16, 8, batch=(2,), heads=4, key_heads=2, options=OPTIONS)
ITEM = SizedCase("one", "", ("MASK-3", "SOFT-3"), "sizes: one", FORMULA, "float32")


def changed(change, **options):
    """A backend whose results are `change(output, lse, arguments)`; options are those of the backend."""

    def attention(query, key, value, *, return_lse=False, **given):
        every = {"query": query, "key": key, "value": value, **given}
        output, lse = right(query, key, value, return_lse=True, **given)
        output, lse = change(output, lse, every)
        return (output, lse) if return_lse else output

    # It has the arguments of the function that it calls.
    attention.__wrapped__ = right
    return replace(PORTABLE, name="changed", attention=attention, **options)


def unchanged(output, lse, _):
    return output, lse


def without_lse(query, key, value, *, is_causal=False, query_offset=0):
    return right(query, key, value, is_causal=is_causal, query_offset=query_offset)
