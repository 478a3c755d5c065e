"""The gradients of forms of attention: packed (PACK-7), sparse (SPARSE-12) and latent (LATENT-5)."""

from dataclasses import dataclass
from typing import Any, cast

from attnspec.reference.call import Arguments, Array, Call, step
from attnspec.reference.errors import check_declared, check_lse_dtype
from attnspec.reference.functions import public
from attnspec.reference.gradients import (
    Gradients,
    attention_vjp_of,
    attention_vjp_part,
    check_cotangents,
    sum_to,
)
from attnspec.reference.latent import ARRAYS, latent_keys, latent_scale, latent_values
from attnspec.reference.notation import narrow, out_dtype, wide
from attnspec.reference.packing import Packed, packed_call, sequence_of_row, within_sequences
from attnspec.reference.sparsity import Sparse, check_blocks, check_lists, plain_fields, sparse


@dataclass(frozen=True)
class PackedGradients(Packed, Gradients):
    """A call of packed attention, with the cotangents of its outputs."""


def packed_attention_vjp_of(call: Call, **arguments: Any) -> tuple[Array, ...]:
    """Gradients of packed attention for given cotangents.

    Notes
    -----
    Rule PACK-7.

    Examples
    --------
    >>> from attnspec.reference import packed_attention_vjp
    >>> zeros, ends = [[[0.0]] * 3], [0, 1, 3]
    >>> found = packed_attention_vjp(
    ...     zeros, zeros, zeros, [[[1.0], [2.0], [4.0]]], query_starts=ends, key_starts=ends
    ... )
    >>> found[2].tolist()  # both keys of the second sequence have a weight of one half
    [[[1.0], [3.0], [3.0]]]
    """
    checked: Any = packed_call(call, check_declared(call, "packed_attention_vjp", arguments), PackedGradients)
    return attention_vjp_part(cast("Gradients", without_the_rest(cast("Any", check_cotangents(checked)))))


packed_attention_vjp = public(packed_attention_vjp_of)


@step
def without_the_rest(call: PackedGradients) -> PackedGradients:
    """Keep within sequences, and take no cotangent of the lse of a row of no sequence (PACK-3)."""
    call = cast("PackedGradients", within_sequences(call))
    if call.d_lse is None:
        return call
    inside = sequence_of_row(call, call.query_starts, call.queries) < call.query_starts.shape[0] - 1  # (L,)
    return call.but(d_lse=call.xp.where(inside, call.d_lse, call.xp.zeros_like(call.d_lse)))


#: The arguments of gradients that blocks and lists do not change.
_OWN = ("d_lse", "return_d_scale")


def block_sparse_attention_vjp_of(
    call: Call, query: Array, key: Array, value: Array, d_output: Array, **options: Any
) -> Any:
    """Gradients of attention with blocks, for given cotangents.

    Notes
    -----
    Rule SPARSE-12.

    Examples
    --------
    >>> from attnspec.reference import block_sparse_attention_vjp
    >>> one = [[1.0], [1.0]]
    >>> found = block_sparse_attention_vjp(
    ...     one, one, one, one, query_block=2, key_block=1, block_mask=[[False, True]]
    ... )
    >>> found[2].tolist()
    [[0.0], [2.0]]
    """
    own = {"d_output": d_output} | {name: options.pop(name) for name in _OWN}
    return sparse_gradients(check_blocks(sparse(call, query, key, value, options)), own)


block_sparse_attention_vjp = public(block_sparse_attention_vjp_of)


def listed_attention_vjp_of(
    call: Call, query: Array, key: Array, value: Array, d_output: Array, **options: Any
) -> Any:
    """Gradients of attention with lists of keys, for given cotangents.

    Notes
    -----
    Rule SPARSE-12.

    Examples
    --------
    >>> from attnspec.reference import listed_attention_vjp
    >>> one = [[1.0], [1.0]]
    >>> listed_attention_vjp(one, one, one, one, key_indices=[[1], [-1]])[2].tolist()
    [[0.0], [1.0]]
    """
    own = {"d_output": d_output} | {name: options.pop(name) for name in _OWN}
    return sparse_gradients(check_lists(sparse(call, query, key, value, options)), own)


listed_attention_vjp = public(listed_attention_vjp_of)


@step
def sparse_gradients(given: Sparse, own: Arguments) -> tuple[Array, ...]:
    """Compute the gradients of attention with the mask of a sparse call (SPARSE-12)."""
    return attention_vjp_part(check_cotangents(Gradients(**plain_fields(given), **own)))


def latent_attention_vjp_of(call: Call, **arguments: Any) -> tuple[Array, ...]:
    """Gradients of latent attention for given cotangents.

    Notes
    -----
    Rule LATENT-5. These are the gradients of the projected form.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec.reference import latent_attention_vjp
    >>> zero, one = np.zeros((1, 1, 1)), np.ones((1, 1, 1))
    >>> found = latent_attention_vjp(zero, zero, [[2.0], [4.0]], np.zeros((2, 1)), one, one, one)
    >>> found[2].tolist(), found[5].tolist()  # both positions have a weight of one half
    ([[0.5], [0.5]], [[[3.0]]])
    """
    arguments = check_declared(call, "latent_attention_vjp", arguments)
    names = [*ARRAYS, "d_output"]
    if arguments.get("d_lse") is not None:
        check_lse_dtype(call, "d_lse", arguments["d_lse"], arguments["query"])
        names.append("d_lse")
    given = arguments | {name: wide(call, arguments[name]) for name in names}
    results = latent_backward(call, given)
    rounded = (
        narrow(call, d, out_dtype(call, arguments[name])) for name, d in zip(ARRAYS, results, strict=False)
    )
    return (*rounded, *results[len(ARRAYS) :])


latent_attention_vjp = public(latent_attention_vjp_of)


@step
def latent_backward(call: Call, given: Arguments) -> tuple[Array, ...]:
    """Pass the gradients of projected keys and values on to what they are projected from (LATENT-5)."""
    depth = given["query"].shape[-1]
    query = call.xp.concat([given["query"], given["query_rotary"]], axis=-1)
    options = {name: thing for name, thing in given.items() if name not in ARRAYS}
    options["scale"] = latent_scale(call, given)
    d_joined, d_keys, d_values, *rest = attention_vjp_of(
        call, query, latent_keys(call, given), latent_values(call, given), **options
    )
    d_own = d_keys[..., :depth]
    return (
        d_joined[..., :depth],
        d_joined[..., depth:],
        d_latent(call, given, d_own, d_values),
        d_shared_rotary(call, d_keys[..., depth:]),
        d_latent_weight(call, given, d_own),
        d_latent_weight(call, given, d_values),
        *rest,
    )


@step
def d_latent(call: Call, given: Arguments, d_keys: Array, d_values: Array) -> Array:
    """Sum the gradients of the keys and values of all heads, projected back (LATENT-5)."""
    key_weight, value_weight = (
        call.xp.matrix_transpose(given[f"{name}_weight"]) for name in ("key", "value")
    )
    return call.xp.sum(d_keys @ key_weight + d_values @ value_weight, axis=-3)


@step
def d_shared_rotary(call: Call, d: Array) -> Array:
    """Sum over the heads, which share the rotary part of the keys (LATENT-5)."""
    return call.xp.sum(d, axis=-3)


@step
def d_latent_weight(call: Call, given: Arguments, d: Array) -> Array:
    """Sum the products with the latent over positions and batch entries, ``(Hq, Dc, D)`` (LATENT-5)."""
    xp, latent = call.xp, given["latent"][..., None, :, :]
    # A position that no query may attend to may be NaN (GRAD-12).
    used = xp.isfinite(latent) | xp.any(d != 0, axis=-1, keepdims=True)
    result = xp.matrix_transpose(xp.where(used, latent, 0.0)) @ d
    return sum_to(xp, result, tuple(result.shape[-3:]))
