"""The gradients of multi-head attention: the chain rule through its projections (GRAD-23)."""

from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Array, Call, Given, step
from attnspec.reference.functions import public
from attnspec.reference.gradients import attention_vjp_of, summed_to
from attnspec.reference.gradients_of_companions import check_cotangent
from attnspec.reference.heads import merge_heads_of, split_heads_of
from attnspec.reference.multi_head import check_multi_head
from attnspec.reference.notation import narrow, stored, wide
from attnspec.reference.projection import check_projection, project

_OPTIONS = ("scale", "mask", "is_causal")


def multi_head_attention_vjp_of(call: Call, **given: Any) -> tuple[Array, ...]:
    """Gradients of multi-head attention, for a given cotangent of its output.

    Notes
    -----
    Rule GRAD-23.

    Examples
    --------
    >>> from attnspec.reference import multi_head_attention_vjp
    >>> identity, zero = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]
    >>> found = multi_head_attention_vjp(
    ...     [[1.0, 10.0], [3.0, 30.0]], zero, identity, identity, identity, [[1.0, 2.0], [0.0, 0.0]], heads=2
    ... )
    >>> found[0].tolist()  # both tokens have a weight of one half
    [[0.5, 1.0], [0.5, 1.0]]
    """
    source = given["tokens"] if given["memory"] is None else given["memory"]
    key_heads = given["heads"] if given["key_heads"] is None else given["key_heads"]
    given = check_multi_head(call, given | {"source": source, "key_heads": key_heads})
    heads = {"query": given["heads"], "key": key_heads, "value": key_heads}
    query, key, value = (
        split_heads_of(call, _rows(call, name, given), heads=count) for name, count in heads.items()
    )
    options = {name: given[name] for name in _OPTIONS}
    merged = merge_heads_of(call, attention_of(call, query, key, value, **options))  # (*B, L, heads * Dv)
    weight, bias = given["output_weight"], given["output_bias"]
    check_projection(call, "output", merged, weight, bias, given["convention"])
    features = weight.shape[-1 if given["convention"] == "row" else 0]
    shape = (*given["tokens"].shape[:-1], features)
    check_cotangent(call, "d_output", given["d_output"], given["tokens"], shape)
    g = wide(call, given["d_output"])
    d_merged = d_projected(call, g, wide(call, weight), given["convention"])
    cotangent = split_heads_of(call, d_merged, heads=given["heads"])
    found = attention_vjp_of(call, query, key, value, cotangent, **options)
    ds = dict(zip(heads, (merge_heads_of(call, d) for d in found), strict=True)) | {"output": g}
    gradients = {**_of_parameters(call, given, ds, merged), **_of_tokens(call, given, ds)}
    names = ("tokens", *(f"{name}_weight" for name in ds), "memory", *(f"{name}_bias" for name in ds))
    there = [name for name in names if given[name] is not None]
    return tuple(narrow(call, gradients[name], stored(call, given[name])) for name in there)


multi_head_attention_vjp = public(multi_head_attention_vjp_of)


def _rows(call: Call, name: str, given: Given) -> Array:
    tokens = given["tokens" if name == "query" else "source"]
    return project(call, name, tokens, given[f"{name}_weight"], given[f"{name}_bias"], given["convention"])


def _of_parameters(call: Call, given: Given, ds: Given, merged: Array) -> Given:
    found = {}
    tokens, source = wide(call, given["tokens"]), wide(call, given["source"])
    for name, inputs in (("query", tokens), ("key", source), ("value", source), ("output", merged)):
        found[f"{name}_weight"] = d_weight(call, inputs, ds[name], given["convention"])
        found[f"{name}_bias"] = d_shift(call, ds[name])
    return found


def _of_tokens(call: Call, given: Given, ds: Given) -> Given:
    """Compute the gradients through the projections to queries, keys and values."""
    parts = [
        d_projected(call, ds[name], wide(call, given[f"{name}_weight"]), given["convention"])
        for name in ("query", "key", "value")
    ]
    of_tokens, of_memory = collected(call, *parts, cross=given["memory"] is not None)
    return {"tokens": of_tokens, "memory": of_memory}


@step
def d_projected(call: Call, d: Array, weight: Array, convention: str) -> Array:
    """Return the gradient with respect to the projected tokens, by the transposed weight (GRAD-23)."""
    return d @ (call.xp.matrix_transpose(weight) if convention == "row" else weight)


@step
def d_weight(call: Call, inputs: Array, d: Array, convention: str) -> Array:
    """Return the gradient with respect to a weight, summed over all positions (GRAD-23, PROJ-7)."""
    turned = call.xp.matrix_transpose
    products = turned(inputs) @ d if convention == "row" else turned(d) @ inputs
    return summed_to(call.xp, products, tuple(products.shape[-2:]))


@step
def d_shift(call: Call, d: Array) -> Array:
    """Return the gradient with respect to a bias, summed over all positions (GRAD-23)."""
    return summed_to(call.xp, d, tuple(d.shape[-1:]))


@step
def collected(
    _call: Call, by_query: Array, by_key: Array, by_value: Array, *, cross: bool
) -> tuple[Array, Array]:
    """Return the gradients of tokens and memory. Without a memory, tokens collect all three (GRAD-23)."""
    of_source = by_key + by_value
    return (by_query, of_source) if cross else (by_query + of_source, None)
