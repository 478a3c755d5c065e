"""The gradients of sparse attention: those of attention with the mask that blocks or lists stand for."""

from typing import Any

from attnspec.reference.call import Array, Call, step
from attnspec.reference.functions import public
from attnspec.reference.gradients import Gradients, attention_vjp_part, check_cotangents
from attnspec.reference.sparsity import Sparse, check_blocks, check_lists, plain_fields, sparse


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
