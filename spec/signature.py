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


_ATTENTION_OPTIONS = ("scale", "bias", "mask", "is_causal")

#: The operator, and the companions that have chapters of their own.
OPERATIONS = MappingProxyType(
    {
        "projection": Operation(("tokens", "weight"), ("bias", "convention"), ("projected",)),
        "scores": Operation(("query", "key"), ("scale", "bias"), ("scores",)),
        "attention": Operation(
            ("query", "key", "value"), (*_ATTENTION_OPTIONS, "return_weights"), ("output", "weights")
        ),
        "self_attention": Operation(
            ("tokens", "query_weight", "key_weight", "value_weight"),
            ("query_bias", "key_bias", "value_bias", "convention", "scale", "mask", "is_causal"),
            ("output",),
        ),
    }
)
