"""Sparse attention: operations in which blocks or lists say which keys a query may attend to."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.argument import Argument, Bounds
from attnspec.operations.attention import ATTENTION, KEY, MASK, QUERY, VALUE
from attnspec.operations.gradients import vjp
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Operation

_SINCE = "2026.11.22"
_BLOCKS = (BATCH, "Hq", "L/Lb", "S/Sb")
_INTEGERS: Mapping[str, str] = MappingProxyType({"dtype": "ERR-16", "shape": "ERR-16"})

#: The arguments of attention that both operations take.
_SHARED = tuple(
    ATTENTION.arguments[name]
    for name in (
        "scale",
        "softcap",
        "bias",
        "mask",
        "is_causal",
        "query_offset",
        "window",
        "key_lengths",
        "sinks",
        "return_lse",
    )
)
#: Their outputs.
_RESULTS = tuple(one for one in ATTENTION.results if one.name in ("output", "lse"))


def _size(name: str, letter: str, noun: str) -> Argument:
    return Argument(
        name,
        "integer",
        f"number of {noun} of a block",
        ("form",),
        "SPARSE-1",
        binds=letter,
        bounds=Bounds(1),
        refusals=MappingProxyType({"form": "SPARSE-10", "bounds": "SPARSE-10"}),
        since=_SINCE,
    )


BLOCK_MASK = Argument(
    "block_mask",
    "array",
    "True where the queries of a block may attend to the keys of a block",
    ("masks",),
    "SPARSE-1",
    _BLOCKS,
    "boolean",
    broadcasts=True,
    default=None,
    refusals=MASK.refusals,
    since=_SINCE,
)
BLOCK_COUNTS = Argument(
    "block_counts",
    "array",
    "number of blocks that are listed for each block of queries",
    ("masks",),
    "SPARSE-3",
    _BLOCKS[:-1],
    "integer",
    broadcasts=True,
    default=None,
    bounds=Bounds(0, "W"),
    needs=("block_indices",),
    refusals=MappingProxyType({**_INTEGERS, "alone": "SPARSE-10", "bounds": "SPARSE-11"}),
    called="count",
    since=_SINCE,
)
BLOCK_INDICES = Argument(
    "block_indices",
    "array",
    "blocks of keys that are listed for each block of queries",
    ("masks",),
    "SPARSE-3",
    (*_BLOCKS[:-1], "W"),
    "integer",
    broadcasts=True,
    default=None,
    needs=("block_counts",),
    refusals=MappingProxyType({**_INTEGERS, "alone": "SPARSE-10", "bounds": "SPARSE-11"}),
    called="listed block",
    since=_SINCE,
)
KEY_INDICES = Argument(
    "key_indices",
    "array",
    "keys that are listed for each query; -1 is none",
    ("masks",),
    "SPARSE-6",
    (BATCH, "Hkv", "L", "W"),
    "integer",
    broadcasts=True,
    bounds=Bounds(-1, "S", below=True),
    refusals=MappingProxyType({**_INTEGERS, "bounds": "SPARSE-11"}),
    called="listed key",
    since=_SINCE,
)


def _sparse(*own: Argument) -> Operation:
    """Declare an operation with arguments of its own, and otherwise those of attention."""
    return Operation((QUERY, KEY, VALUE), (*own, *_SHARED), _RESULTS, headless=True, reduces="attention")


BLOCK_SPARSE_ATTENTION = _sparse(
    _size("query_block", "Lb", "queries"),
    _size("key_block", "Sb", "keys"),
    BLOCK_MASK,
    BLOCK_COUNTS,
    BLOCK_INDICES,
)
LISTED_ATTENTION = _sparse(KEY_INDICES)

_GRADIENTS = {"bias": "GRAD-4", "sinks": "GRAD-7"}
BLOCK_SPARSE_ATTENTION_VJP, LISTED_ATTENTION_VJP = (
    replace(vjp(form, rules=_GRADIENTS), reduces="attention_vjp")
    for form in (BLOCK_SPARSE_ATTENTION, LISTED_ATTENTION)
)
