"""The gradients of sparse attention: those of attention with the mask that blocks or lists stand for."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnspec.reference.call import Array, Call, step
from attnspec.reference.evaluate import evaluate
from attnspec.reference.gradients import Gradients, attention_vjp_part, check_cotangents
from attnspec.reference.notation import Window
from attnspec.reference.sparsity import Sparse, check_blocks, check_lists, plain_fields, sparse


def block_sparse_attention_vjp(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    d_output: ArrayLike,
    *,
    d_lse: ArrayLike | None = None,
    query_block: int,
    key_block: int,
    block_mask: ArrayLike | None = None,
    block_counts: ArrayLike | None = None,
    block_indices: ArrayLike | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    query_offset: ArrayLike = 0,
    window: Window | None = None,
    key_lengths: ArrayLike | None = None,
    sinks: ArrayLike | None = None,
    dtype: DTypeLike = np.float64,
) -> Any:
    """Gradients of attention with blocks, for given cotangents.

    Parameters
    ----------
    query, key, value
        As in `block_sparse_attention`, like all options that are not listed here.
    d_output : (*B, Hq, L, Dv) or (L, Dv)
        Cotangent of the output.
    d_lse : (*B, Hq, L) or (L,), optional
        Cotangent of the lse. The default is 0.
    dtype : data type, optional
        Working precision and dtype of the results.

    Returns
    -------
    d_query, d_key, d_value : arrays of the shapes of query, key and value
    d_bias, d_sinks : arrays of the shapes of bias and sinks
        Only if these are given.

    Raises
    ------
    ArgumentError
        If an argument is refused.

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
    return evaluate(block_sparse_attention_vjp_of, locals())


def block_sparse_attention_vjp_of(
    call: Call, query: Array, key: Array, value: Array, d_output: Array, *, d_lse: Array, **options: Any
) -> Any:
    """Check the arguments, and compute."""
    return sparse_gradients(check_blocks(sparse(call, query, key, value, options)), d_output, d_lse)


def listed_attention_vjp(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    d_output: ArrayLike,
    *,
    d_lse: ArrayLike | None = None,
    key_indices: ArrayLike,
    scale: float | None = None,
    softcap: float | None = None,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    is_causal: bool = False,
    query_offset: ArrayLike = 0,
    window: Window | None = None,
    key_lengths: ArrayLike | None = None,
    sinks: ArrayLike | None = None,
    dtype: DTypeLike = np.float64,
) -> Any:
    """Gradients of attention with lists of keys, for given cotangents.

    Parameters
    ----------
    query, key, value
        As in `listed_attention`, like all options that are not listed here.
    d_output : (*B, Hq, L, Dv) or (L, Dv)
        Cotangent of the output.
    d_lse : (*B, Hq, L) or (L,), optional
        Cotangent of the lse. The default is 0.
    dtype : data type, optional
        Working precision and dtype of the results.

    Returns
    -------
    d_query, d_key, d_value : arrays of the shapes of query, key and value
    d_bias, d_sinks : arrays of the shapes of bias and sinks
        Only if these are given.

    Raises
    ------
    ArgumentError
        If an argument is refused.

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
    return evaluate(listed_attention_vjp_of, locals())


def listed_attention_vjp_of(
    call: Call, query: Array, key: Array, value: Array, d_output: Array, *, d_lse: Array, **options: Any
) -> Any:
    """Check the arguments, and compute."""
    return sparse_gradients(check_lists(sparse(call, query, key, value, options)), d_output, d_lse)


@step
def sparse_gradients(given: Sparse, d_output: Array, d_lse: Array) -> tuple[Array, ...]:
    """Compute the gradients of attention with the mask of a sparse call (SPARSE-12)."""
    plain = Gradients(**plain_fields(given), d_output=d_output, d_lse=d_lse)
    return attention_vjp_part(check_cotangents(plain))
