"""The second oracle: rational numbers and one exponential function, in the standard library only.

It shares no code with the reference, the first oracle or NumPy's arithmetic. It proves
nothing: it computes 60 digits of the largest value, and 100 or more of a gradient, where
float64 has 16. It provides the expected values of generated problems that are not stored.
"""

from collections.abc import Callable, Mapping
from decimal import Context, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec.operations import OPERATIONS
from attnspec.reference.rational.attention import attention, scores
from attnspec.reference.rational.companions import (
    append_cache,
    gather_pages,
    indexer_scores,
    merge_heads,
    merge_partials,
    multi_head_attention,
    projection,
    select_keys,
    self_attention,
    split_heads,
)
from attnspec.reference.rational.forms import (
    block_sparse_attention_vjp,
    dequantize,
    dequantize_blocks,
    listed_attention_vjp,
    low_precision_attention,
    packed_attention_vjp,
    seeded_dropout_attention,
    seeded_dropout_attention_vjp,
    sharded_attention,
    sharded_attention_vjp,
)
from attnspec.reference.rational.gradients import attention_vjp, latent_attention_vjp
from attnspec.reference.rational.gradients_of_companions import (
    merge_partials_vjp,
    multi_head_attention_vjp,
    rotary_vjp,
)
from attnspec.reference.rational.positions import alibi_bias, alibi_bias_vjp, rotary, rotary_frequencies
from attnspec.reference.rational.scores import check_dialect
from attnspec.reference.rational.stacks import stacked_attention

#: The number of digits. Exponents are unbounded for practical purposes.
_CONTEXT = Context(prec=60, Emin=-(10**15), Emax=10**15)

Arrays = dict[str, NDArray[np.float64]]

#: The operations that a variant may change, and those that none changes.
_WITH_DIALECT: Mapping[str, Callable[[Mapping[str, Any], Mapping[str, str]], Arrays]] = {
    "scores": scores,
    "attention": attention,
    "attention_vjp": attention_vjp,
    "self_attention": self_attention,
    "multi_head_attention": multi_head_attention,
    "multi_head_attention_vjp": multi_head_attention_vjp,
    "packed_attention_vjp": packed_attention_vjp,
    "seeded_dropout_attention": seeded_dropout_attention,
    "seeded_dropout_attention_vjp": seeded_dropout_attention_vjp,
    "sharded_attention": sharded_attention,
    "sharded_attention_vjp": sharded_attention_vjp,
    "select_keys": select_keys,
    "rotary": rotary,
    "rotary_vjp": rotary_vjp,
    "rotary_frequencies": rotary_frequencies,
    "alibi_bias": alibi_bias,
    "alibi_bias_vjp": alibi_bias_vjp,
    "block_sparse_attention_vjp": block_sparse_attention_vjp,
    "latent_attention_vjp": latent_attention_vjp,
    "listed_attention_vjp": listed_attention_vjp,
    "low_precision_attention": low_precision_attention,
}
_WITHOUT_DIALECT: Mapping[str, Callable[[Mapping[str, Any]], Arrays]] = {
    "projection": projection,
    "dequantize": dequantize,
    "dequantize_blocks": dequantize_blocks,
    "split_heads": split_heads,
    "merge_heads": merge_heads,
    "append_cache": append_cache,
    "gather_pages": gather_pages,
    "indexer_scores": indexer_scores,
    "merge_partials": merge_partials,
    "merge_partials_vjp": merge_partials_vjp,
}


def evaluate(
    operation: str, arguments: Mapping[str, Any], dialect: Mapping[str, str] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Compute the values of a call, rounded to float64."""
    variants = check_dialect(dialect)
    with localcontext(_CONTEXT):
        if operation in _WITH_DIALECT:
            return _WITH_DIALECT[operation](arguments, variants)
        if operation in _WITHOUT_DIALECT:
            return _WITHOUT_DIALECT[operation](arguments)
        if operation in OPERATIONS:
            return stacked_attention(operation, arguments, variants)
    raise ValueError(f"operation: expected one of attnspec.OPERATIONS, got {operation!r}")
