"""Self-attention and multi-head attention: projections, attention, and a projection of the merged heads."""

from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Arguments, Array, Call, step
from attnspec.reference.errors import need, same_dtype, whole
from attnspec.reference.functions import public
from attnspec.reference.heads import merge_heads_of, split_heads_of
from attnspec.reference.notation import narrow, out_dtype
from attnspec.reference.projection import project

#: The results of the projections.
PROJECTED = ("query", "key", "value")


def self_attention_of(call: Call, **arguments: Any) -> Array:
    """Project tokens three times, and attend.

    Examples
    --------
    >>> from attnspec.reference import self_attention
    >>> self_attention([[1.0], [2.0]], [[0.0]], [[1.0]], [[10.0]]).tolist()
    [[15.0], [15.0]]
    """
    arguments = check_self(call, arguments)
    tokens, columns = arguments["tokens"], arguments["convention"] == "column"
    same_dtype(call, tokens=tokens, **{f"{name}_weight": arguments[f"{name}_weight"] for name in PROJECTED})
    rows = []
    for name in PROJECTED:
        weight, bias = arguments[f"{name}_weight"], arguments[f"{name}_bias"]
        result = project(call, name, tokens, weight, bias, arguments["convention"])
        rows.append(call.xp.matrix_transpose(result)[..., None, :, :] if columns else result[..., None, :, :])
    depth, other = rows[0].shape[-1], rows[1].shape[-1]
    need("key_weight", other == depth, f"{depth} features as query_weight has", other, "SHAPE-6")
    options = {name: arguments[name] for name in ("scale", "mask", "is_causal")}
    if getattr(options["mask"], "ndim", 0) > 2:
        options["mask"] = options["mask"][..., None, :, :]
    output = attention_of(call, *rows, **options)[..., 0, :, :]  # (*B, L, Dv), of one head
    return narrow(call, call.xp.matrix_transpose(output) if columns else output, out_dtype(call, tokens))


self_attention = public(self_attention_of)


@step
def check_self(_call: Call, arguments: Arguments) -> Arguments:
    """Check nothing: the parts check their own arguments."""
    return arguments


def multi_head_attention_of(call: Call, **arguments: Any) -> Array:
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
    arguments, arrays, options = heads_to_attend(call, arguments)
    merged = merge_heads_of(call, attention_of(call, *arrays, **options))
    projected = project_by(call, "output", merged, arguments)
    return narrow(call, projected, out_dtype(call, arguments["tokens"]))


multi_head_attention = public(multi_head_attention_of)


def heads_to_attend(
    call: Call, arguments: Arguments
) -> tuple[Arguments, tuple[Array, Array, Array], Arguments]:
    """Check a call: return its arguments, queries, keys and values in heads, and the options of attention."""
    source = arguments["tokens"] if arguments["memory"] is None else arguments["memory"]
    key_heads = arguments["heads"] if arguments["key_heads"] is None else arguments["key_heads"]
    arguments = check_multi_head(call, arguments | {"source": source, "key_heads": key_heads})
    query = project_by(call, "query", arguments["tokens"], arguments)  # (*B, L, heads * D)
    key, value = (project_by(call, name, arguments["source"], arguments) for name in ("key", "value"))
    query = split_heads_of(call, query, heads=arguments["heads"])  # (*B, heads, L, D)
    key, value = (split_heads_of(call, each, heads=arguments["key_heads"]) for each in (key, value))
    options = {name: arguments[name] for name in ("scale", "mask", "is_causal")}
    return arguments, (query, key, value), options


def project_by(call: Call, name: str, tokens: Array, arguments: Arguments) -> Array:
    """Project tokens by the weight and the bias of a name."""
    weight, bias = arguments[f"{name}_weight"], arguments[f"{name}_bias"]
    return project(call, name, tokens, weight, bias, arguments["convention"])


@step
def check_multi_head(call: Call, arguments: Arguments) -> Arguments:
    """Check the numbers of heads and the shapes of weights (HEAD-2, HEAD-5, HEAD-6)."""
    names = ("tokens", "query_weight", "key_weight", "value_weight", "output_weight", "memory")
    same_dtype(call, **{name: arguments[name] for name in names if arguments[name] is not None})
    batch, of_source = tuple(arguments["tokens"].shape[:-2]), tuple(arguments["source"].shape[:-2])
    need("memory", of_source == batch, f"batch axes {batch} as in tokens", of_source, "SHAPE-6")
    convention = arguments["convention"]
    need("convention", convention in ("row", "linear"), "'row' or 'linear'", repr(convention), "ERR-16")
    inputs, features = (0, -1) if convention == "row" else (-1, 0)
    heads = whole("heads", arguments["heads"], 1, "HEAD-5", kind="ERR-16")
    key_heads = whole("key_heads", arguments["key_heads"], 1, "HEAD-2", kind="ERR-16")
    need("key_heads", heads % key_heads == 0, f"a divisor of the {heads} heads", key_heads, "HEAD-2")
    for name in ("query", "key", "value"):
        depth = arguments["tokens" if name == "query" else "source"].shape[-1]
        shape = tuple(arguments[f"{name}_weight"].shape)
        fits = len(shape) == 2 and shape[inputs] == depth
        fitting = f"({depth}, F)" if convention == "row" else f"(F, {depth})"
        need(f"{name}_weight", fits, f"shape {fitting}", shape, "PROJ-4")
    columns = {name: arguments[f"{name}_weight"].shape[features] for name in ("query", "key", "value")}
    for name, count in (("query", heads), ("value", key_heads)):
        divides = columns[name] % count == 0
        expected = f"a number of columns that {count} heads divide"
        need(f"{name}_weight", divides, expected, columns[name], "HEAD-5")
    wanted = columns["query"] // heads * key_heads
    need("key_weight", columns["key"] == wanted, f"{wanted} columns", columns["key"], "SHAPE-6")
    return arguments
