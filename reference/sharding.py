"""Sharded attention: the chapter `sharding`."""

from itertools import pairwise
from typing import Any

from attnspec.reference.attention import attention_of
from attnspec.reference.call import Arguments, Array, Call, step
from attnspec.reference.errors import check_declared, need
from attnspec.reference.functions import public
from attnspec.reference.gradients import attention_vjp_of

#: The arguments that say where shards begin. They have no effect on a result.
BOUNDARIES = ("query_shards", "key_shards", "head_shards")


def sharded_attention_of(call: Call, **arguments: Any) -> Any:
    """Attention whose queries, keys and heads are spread over ranks.

    Notes
    -----
    Rules SHARD-1 to SHARD-9.

    Examples
    --------
    >>> from attnspec.reference import sharded_attention
    >>> zeros, value = [[[0.0]] * 3], [[[1.0], [3.0], [5.0]]]
    >>> sharded_attention(
    ...     zeros, zeros, value, query_shards=[0, 2, 3], key_shards=[0, 1, 3], is_causal=True
    ... ).tolist()
    [[[1.0], [2.0], [3.0]]]
    """
    return attend_sharded(call, check_shards(call, "sharded_attention", arguments))


sharded_attention = public(sharded_attention_of)


def sharded_attention_vjp_of(call: Call, **arguments: Any) -> tuple[Array, ...]:
    """Gradients of sharded attention for given cotangents.

    Notes
    -----
    Rule SHARD-10.

    Examples
    --------
    >>> from attnspec.reference import sharded_attention_vjp
    >>> one = [[[1.0], [1.0]]]
    >>> d_query, d_key, d_value = sharded_attention_vjp(
    ...     one, one, one, one, query_shards=[0, 1, 2], key_shards=[0, 1, 2]
    ... )
    >>> d_value.tolist()
    [[[1.0], [1.0]]]
    """
    return sharded_backward(call, check_shards(call, "sharded_attention_vjp", arguments))


sharded_attention_vjp = public(sharded_attention_vjp_of)


@step
def check_shards(call: Call, operation: str, arguments: Arguments) -> Arguments:
    """Check the boundaries (SHARD-11), and that no rank has a part of two groups of heads (SHARD-12)."""
    check_declared(call, operation, arguments)
    cuts = arguments["head_shards"]
    if cuts is None:
        return arguments
    group = arguments["query"].shape[-3] // arguments["key"].shape[-3]
    numbers = [int(cuts[part]) for part in range(cuts.shape[0])]
    for first, end in pairwise(numbers):
        fits = ratio_survives(first, end, group)
        expected = f"parts of whole groups of {group} query heads, or of one group"
        need("head_shards", fits, expected, f"one from {first} to below {end}", "SHARD-12")
    return arguments


def ratio_survives(first: int, end: int, group: int) -> bool:
    """Whether each key head that query heads read has equally many of them, from `first` to below `end`.

    Examples
    --------
    >>> ratio_survives(2, 4, 4), ratio_survives(2, 6, 4)
    (True, False)
    """
    return first % group == end % group == 0 or end <= first or first // group == (end - 1) // group


def without_shards(arguments: Arguments) -> Arguments:
    """Return the call of attention for all shards together (SHARD-1)."""
    return {name: x for name, x in arguments.items() if name not in BOUNDARIES}


@step
def attend_sharded(call: Call, arguments: Arguments) -> Any:
    """Attend over all shards together (SHARD-1)."""
    return attention_of(call, **without_shards(arguments))


@step
def sharded_backward(call: Call, arguments: Arguments) -> tuple[Array, ...]:
    """Compute the gradients over all shards together (SHARD-10)."""
    return attention_vjp_of(call, **without_shards(arguments))
