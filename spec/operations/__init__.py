"""The canonical calls: the single declaration of every argument and every output.

An implementation is a function with these names. Its signature lists its
capabilities: an argument that is not in the signature is unsupported.
"""

from collections.abc import Mapping
from types import MappingProxyType

from attnspec.operations import (
    attention,
    companions,
    forms,
    gradients,
    positions,
    quantization,
    selection,
    stacks,
)
from attnspec.operations.letters import LETTERS, Letter
from attnspec.operations.operation import (
    REQUIRED,
    Argument,
    Bounds,
    Kind,
    Numbers,
    Operation,
    Output,
    Role,
    Shape,
)

__all__ = [
    "LETTERS",
    "OPERATIONS",
    "REQUIRED",
    "Argument",
    "Bounds",
    "Kind",
    "Letter",
    "Numbers",
    "Operation",
    "Output",
    "Role",
    "Shape",
]

#: The operator and its companions.
OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        "projection": companions.PROJECTION,
        "scores": companions.SCORES,
        "attention": attention.ATTENTION,
        "attention_vjp": gradients.ATTENTION_VJP,
        "self_attention": companions.SELF_ATTENTION,
        "split_heads": companions.SPLIT_HEADS,
        "merge_heads": companions.MERGE_HEADS,
        "multi_head_attention": companions.MULTI_HEAD_ATTENTION,
        "multi_head_attention_vjp": gradients.MULTI_HEAD_ATTENTION_VJP,
        "latent_attention": stacks.FORMS["latent_attention"],
        "latent_attention_vjp": stacks.LATENT_ATTENTION_VJP,
        "append_cache": companions.APPEND_CACHE,
        "gather_pages": companions.GATHER_PAGES,
        "merge_partials": companions.MERGE_PARTIALS,
        "merge_partials_vjp": gradients.MERGE_PARTIALS_VJP,
        "packed_attention": stacks.FORMS["packed_attention"],
        "packed_attention_vjp": stacks.PACKED_ATTENTION_VJP,
        "paged_attention": stacks.FORMS["paged_attention"],
        "sharded_attention": stacks.SHARDED_ATTENTION,
        "sharded_attention_vjp": stacks.SHARDED_ATTENTION_VJP,
        "block_sparse_attention": stacks.FORMS["block_sparse_attention"],
        "block_sparse_attention_vjp": stacks.BLOCK_SPARSE_ATTENTION_VJP,
        "listed_attention": stacks.FORMS["listed_attention"],
        "listed_attention_vjp": stacks.LISTED_ATTENTION_VJP,
        "indexer_scores": selection.INDEXER_SCORES,
        "select_keys": selection.SELECT_KEYS,
        "seeded_dropout_attention": forms.SEEDED_DROPOUT_ATTENTION,
        "seeded_dropout_attention_vjp": forms.SEEDED_DROPOUT_ATTENTION_VJP,
        "dequantize": quantization.DEQUANTIZE,
        "dequantize_blocks": quantization.DEQUANTIZE_BLOCKS,
        "quantized_attention": stacks.FORMS["quantized_attention"],
        "low_precision_attention": quantization.LOW_PRECISION_ATTENTION,
        "rotary": positions.ROTARY,
        "rotary_vjp": gradients.ROTARY_VJP,
        "rotary_frequencies": positions.ROTARY_FREQUENCIES,
        "alibi_bias": positions.ALIBI_BIAS,
        "alibi_bias_vjp": gradients.ALIBI_BIAS_VJP,
        **stacks.STACKS,
    }
)
