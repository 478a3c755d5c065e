"""The operator in Array API calls.

Each file implements the chapter of the same name as a sequence of named steps. On NumPy
arrays it is the reference, which computes in float64 unless another dtype is given. On
arrays of another library it is portable (`functions`). It is written for readers, and it is
tested against the exact oracle.
"""

from attnspec.reference.attention import attention
from attnspec.reference.caching import append_cache, gather_pages, merge_partials
from attnspec.reference.dropout import seeded_dropout_attention, seeded_dropout_attention_vjp
from attnspec.reference.errors import ArgumentError
from attnspec.reference.frequencies import rotary_frequencies
from attnspec.reference.functions import function, functions
from attnspec.reference.gradients import attention_vjp
from attnspec.reference.gradients_of_companions import (
    alibi_bias_vjp,
    merge_partials_vjp,
    multi_head_attention_vjp,
    rotary_vjp,
)
from attnspec.reference.gradients_of_forms import (
    block_sparse_attention_vjp,
    latent_attention_vjp,
    listed_attention_vjp,
    packed_attention_vjp,
)
from attnspec.reference.heads import merge_heads, split_heads
from attnspec.reference.latent import latent_attention
from attnspec.reference.masking import allowed_keys
from attnspec.reference.multi_head import multi_head_attention, self_attention
from attnspec.reference.packing import packed_attention
from attnspec.reference.paging import paged_attention
from attnspec.reference.positions import alibi_bias, rotary
from attnspec.reference.projection import projection
from attnspec.reference.quantization import dequantize, dequantize_blocks
from attnspec.reference.quantized_attention import low_precision_attention, quantized_attention
from attnspec.reference.scores import scores
from attnspec.reference.selection import indexer_scores, select_keys
from attnspec.reference.sharding import sharded_attention, sharded_attention_vjp
from attnspec.reference.softmax import softmax
from attnspec.reference.sparsity import block_sparse_attention, listed_attention
from attnspec.reference.stacks import reduce_forms  # noqa: F401 - declares the operations that combine forms

__all__ = [
    "ArgumentError",
    "alibi_bias",
    "alibi_bias_vjp",
    "allowed_keys",
    "append_cache",
    "attention",
    "attention_vjp",
    "block_sparse_attention",
    "block_sparse_attention_vjp",
    "dequantize",
    "dequantize_blocks",
    "function",
    "functions",
    "gather_pages",
    "indexer_scores",
    "latent_attention",
    "latent_attention_vjp",
    "listed_attention",
    "listed_attention_vjp",
    "low_precision_attention",
    "merge_heads",
    "merge_partials",
    "merge_partials_vjp",
    "multi_head_attention",
    "multi_head_attention_vjp",
    "packed_attention",
    "packed_attention_vjp",
    "paged_attention",
    "projection",
    "quantized_attention",
    "rotary",
    "rotary_frequencies",
    "rotary_vjp",
    "scores",
    "seeded_dropout_attention",
    "seeded_dropout_attention_vjp",
    "select_keys",
    "self_attention",
    "sharded_attention",
    "sharded_attention_vjp",
    "softmax",
    "split_heads",
]
