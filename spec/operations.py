"""The canonical calls: the names that rules, vectors and backends share.

An implementation is a function with these names. Its signature is its list of
capabilities: an argument that it does not have is unsupported.
"""

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Operation:
    """One function of the standard, as names.

    Attributes
    ----------
    arrays : tuple of str
        The positional arguments, in order.
    options : tuple of str
        The keyword-only arguments.
    outputs : tuple of str
        What can be asked for; the first is always returned. Each later one is
        returned when its ``return_*`` option is true, after those before it.
    """

    arrays: tuple[str, ...]
    options: tuple[str, ...]
    outputs: tuple[str, ...]


#: What `attention` takes by name, in the order of the chapters.
_ATTENTION_OPTIONS = (
    "scale",
    "softcap",
    "bias",
    "mask",
    "is_causal",
    "query_offset",
    "window",
    "query_lengths",
    "key_lengths",
    "query_segment_ids",
    "key_segment_ids",
    "sinks",
    "dropout_mask",
    "dropout_rate",
    "return_lse",
    "return_weights",
)
_PROJECTIONS = ("tokens", "query_weight", "key_weight", "value_weight")
_PROJECTION_BIASES = ("query_bias", "key_bias", "value_bias")

#: The operator, and the companions that have chapters of their own.
OPERATIONS = MappingProxyType(
    {
        "projection": Operation(("tokens", "weight"), ("bias", "convention"), ("projected",)),
        "scores": Operation(("query", "key"), ("scale", "softcap", "bias"), ("scores",)),
        "attention": Operation(("query", "key", "value"), _ATTENTION_OPTIONS, ("output", "lse", "weights")),
        "self_attention": Operation(
            _PROJECTIONS, (*_PROJECTION_BIASES, "convention", "scale", "mask", "is_causal"), ("output",)
        ),
        "split_heads": Operation(("features",), ("heads",), ("split",)),
        "merge_heads": Operation(("split",), (), ("merged",)),
        "multi_head_attention": Operation(
            (*_PROJECTIONS, "output_weight"),
            (
                "heads",
                "key_heads",
                "memory",
                *_PROJECTION_BIASES,
                "output_bias",
                "scale",
                "mask",
                "is_causal",
            ),
            ("output",),
        ),
        "append_cache": Operation(("cache", "new"), ("lengths",), ("appended",)),
        "gather_pages": Operation(("pages", "block_table"), (), ("gathered",)),
        "merge_partials": Operation(("outputs", "lses"), ("return_lse",), ("output", "lse")),
        "rotary": Operation(("features",), ("offset", "base", "interleaved", "rotary_depth"), ("rotated",)),
        "alibi_bias": Operation(("query", "key"), ("query_offset",), ("bias",)),
    }
)
