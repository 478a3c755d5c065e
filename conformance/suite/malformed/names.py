"""Names of malformed calls that are clearer than the generated ones."""

from collections.abc import Mapping
from types import MappingProxyType

#: The generated name of a call, and the name to use instead.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "mask of swapped axes": "mask that does not broadcast",
        "bias of more queries": "bias that does not broadcast",
        "value of fewer key heads": "other heads of value than of key",
        "value of twice the key heads": "more heads of value than of key",
        "rate alone": "rate without a mask",
        "depth of the values of 0": "depth of 0 of the values",
        "one query length in an axis": "query lengths for too few entries",
        "ids of keys of real numbers": "ids that are real numbers",
        "ids of keys of fewer keys": "ids for too few keys",
        "ids of queries with an axis less": "ids without the batch",
        "sinks of more query heads": "sinks for too many heads",
        "sinks with an axis more": "sinks for each entry",
        "heads that do not divide in split_heads": "heads that do not divide",
        "weight of swapped axes in projection": "weight that would fit transposed",
        "length past the capacity in append_cache": "cache that is full",
        "length below 0 in append_cache": "length below 0",
        "page past the last in gather_pages": "page that does not exist",
        "page below 0 in gather_pages": "page below 0",
        "rotary depth that is odd in rotary": "rotary depth that is odd",
        "rotary depth of 0 in rotary": "rotary depth of 0",
        "rotary depth past the depth in rotary": "rotary depth past the depth",
        "depth that is odd in rotary": "depth that is odd",
    }
)
