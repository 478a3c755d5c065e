"""The gradients of forms of attention: packed (PACK-7) and sparse (SPARSE-12)."""

from dataclasses import dataclass
from typing import Any, cast

from attnspec.reference.call import Array, Call, step
from attnspec.reference.errors import check_declared
from attnspec.reference.functions import public
from attnspec.reference.gradients import Gradients, attention_vjp_part, check_cotangents
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


def block_sparse_attention_vjp_of(
    call: Call, query: Array, key: Array, value: Array, d_output: Array, *, d_lse: Array, **options: Any
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
    return sparse_gradients(check_blocks(sparse(call, query, key, value, options)), d_output, d_lse)


block_sparse_attention_vjp = public(block_sparse_attention_vjp_of)


def listed_attention_vjp_of(
    call: Call, query: Array, key: Array, value: Array, d_output: Array, *, d_lse: Array, **options: Any
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
    return sparse_gradients(check_lists(sparse(call, query, key, value, options)), d_output, d_lse)


listed_attention_vjp = public(listed_attention_vjp_of)


@step
def sparse_gradients(given: Sparse, d_output: Array, d_lse: Array) -> tuple[Array, ...]:
    """Compute the gradients of attention with the mask of a sparse call (SPARSE-12)."""
    plain = Gradients(**plain_fields(given), d_output=d_output, d_lse=d_lse)
    return attention_vjp_part(check_cotangents(plain))
