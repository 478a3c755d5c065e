"""Self-attention and multi-head attention: projections, attention, and a projection of the merged heads."""

from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Array, Call, Given, step
from attnspec.reference.errors import need, same_dtype, whole
from attnspec.reference.functions import public
from attnspec.reference.heads import merge_heads_of, split_heads_of
from attnspec.reference.notation import narrow, stored
from attnspec.reference.projection import project

#: The results of the projections.
PROJECTED = ("query", "key", "value")


def self_attention_of(call: Call, **given: Any) -> Array:
    """Project tokens three times, and attend.

    Examples
    --------
    >>> from attnspec.reference import self_attention
    >>> self_attention([[1.0], [2.0]], [[0.0]], [[1.0]], [[10.0]]).tolist()
    [[15.0], [15.0]]
    """
    given = check_self(call, given)
    tokens, columns = given["tokens"], given["convention"] == "column"
    same_dtype(call, tokens=tokens, **{f"{name}_weight": given[f"{name}_weight"] for name in PROJECTED})
    rows = []
    for name in PROJECTED:
        weight, bias = given[f"{name}_weight"], given[f"{name}_bias"]
        found = project(call, name, tokens, weight, bias, given["convention"])
        rows.append(call.xp.matrix_transpose(found) if columns else found)
    depth, other = rows[0].shape[-1], rows[1].shape[-1]
    need("key_weight", other == depth, f"{depth} features as query_weight has", other, "SHAPE-6")
    options = {name: given[name] for name in ("scale", "mask", "is_causal")}
    output = attention_of(call, *rows, **options)  # (*B, L, Dv)
    return narrow(call, call.xp.matrix_transpose(output) if columns else output, stored(call, tokens))


self_attention = public(self_attention_of)


@step
def check_self(_call: Call, given: Given) -> Given:
    """Check nothing: the parts check their own arguments."""
    return given


def multi_head_attention_of(call: Call, **given: Any) -> Array:
    """Project tokens, attend head by head, and project the merged result.

    Notes
    -----
    Vaswani et al., "Attention Is All You Need", 2017, section 3.2.2.

    Examples
    --------
    >>> from attnspec.reference import multi_head_attention
    >>> identity = [[1.0, 0.0], [0.0, 1.0]]
    >>> tokens = [[1.0, 10.0], [3.0, 30.0]]
    >>> zero = [[0.0, 0.0], [0.0, 0.0]]
    >>> multi_head_attention(tokens, zero, identity, identity, identity, heads=2).tolist()
    [[2.0, 20.0], [2.0, 20.0]]
    """
    source = given["tokens"] if given["memory"] is None else given["memory"]
    key_heads = given["heads"] if given["key_heads"] is None else given["key_heads"]
    given = check_multi_head(call, given | {"source": source, "key_heads": key_heads})

    def rows(name: str, tokens: Array) -> Array:
        return project(
            call, name, tokens, given[f"{name}_weight"], given[f"{name}_bias"], given["convention"]
        )

    query = rows("query", given["tokens"])  # (*B, L, heads * D)
    key, value = (rows(name, given["source"]) for name in ("key", "value"))
    query = split_heads_of(call, query, heads=given["heads"])  # (*B, heads, L, D)
    key, value = (split_heads_of(call, each, heads=given["key_heads"]) for each in (key, value))
    options = {name: given[name] for name in ("scale", "mask", "is_causal")}
    merged = merge_heads_of(call, attention_of(call, query, key, value, **options))
    return narrow(call, rows("output", merged), stored(call, given["tokens"]))


multi_head_attention = public(multi_head_attention_of)


@step
def check_multi_head(call: Call, given: Given) -> Given:
    """Check the numbers of heads and the shapes of weights (HEAD-2, HEAD-5, HEAD-6)."""
    names = ("tokens", "query_weight", "key_weight", "value_weight", "output_weight", "memory")
    same_dtype(call, **{name: given[name] for name in names if given[name] is not None})
    batch, of_source = tuple(given["tokens"].shape[:-2]), tuple(given["source"].shape[:-2])
    need("memory", of_source == batch, f"batch axes {batch} as in tokens", of_source, "SHAPE-6")
    convention = given["convention"]
    need("convention", convention in ("row", "linear"), "'row' or 'linear'", repr(convention), "ERR-16")
    inputs, features = (0, -1) if convention == "row" else (-1, 0)
    heads = whole("heads", given["heads"], 1, "HEAD-5")
    key_heads = whole("key_heads", given["key_heads"], 1, "HEAD-2")
    need("key_heads", heads % key_heads == 0, f"a divisor of the {heads} heads", key_heads, "HEAD-2")
    for name in ("query", "key", "value"):
        depth = given["tokens" if name == "query" else "source"].shape[-1]
        shape = tuple(given[f"{name}_weight"].shape)
        fits = len(shape) == 2 and shape[inputs] == depth
        fitting = f"({depth}, F)" if convention == "row" else f"(F, {depth})"
        need(f"{name}_weight", fits, f"shape {fitting}", shape, "PROJ-4")
    columns = {name: given[f"{name}_weight"].shape[features] for name in ("query", "key", "value")}
    for name, count in (("query", heads), ("value", key_heads)):
        divides = columns[name] % count == 0
        expected = f"a number of columns that {count} heads divide"
        need(f"{name}_weight", divides, expected, columns[name], "HEAD-5")
    wanted = columns["query"] // heads * key_heads
    need("key_weight", columns["key"] == wanted, f"{wanted} columns", columns["key"], "SHAPE-6")
    return given
