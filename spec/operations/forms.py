"""The arguments of the forms of attention: the chapters packing, paging, sparsity, latent and dropout."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.attention import ARRAYS, KEY, KEY_LENGTHS, MASK, QUERY_OFFSET, SCALE, VALUE, options
from attnspec.operations.companions import array
from attnspec.operations.gradients import vjp
from attnspec.operations.letters import BATCH, ONE_MORE
from attnspec.operations.operation import REQUIRED, Argument, Bounds, Operation, Output, Shape

#: The version that added the forms.
_SINCE = "2026.11.22"
_REFUSALS: Mapping[str, str] = MappingProxyType({"dtype": "ERR-16", "shape": "ERR-16"})


def _starts(of: str, letter: str) -> Argument:
    return Argument(
        f"{of}_starts",
        "array",
        f"where the {letter} of each sequence begin, and the end of the last",
        ("form",),
        "PACK-1",
        ("G+1",),
        "integer",
        bounds=Bounds(0, letter),
        ascending=True,
        refusals=MappingProxyType({**_REFUSALS, "bounds": "PACK-6"}),
        called=f"starts of {'queries' if of == 'query' else 'keys'}",
        since=_SINCE,
    )


QUERY_STARTS = replace(
    _starts("query", "L"), meaning="row of the first query of each sequence, and the end of the last"
)
KEY_STARTS = replace(
    _starts("key", "S"), meaning="row of the first key of each sequence, and the end of the last"
)
OFFSET_IN_SEQUENCE = replace(
    QUERY_OFFSET,
    meaning="position of query 0 of a sequence among its keys",
    rule="PACK-5",
    shape=("G",),
    refusals=MappingProxyType({**_REFUSALS, "form": "ERR-16"}),
    since=_SINCE,
)

_PER_ENTRY: Mapping[str, str] = MappingProxyType({"form": "ERR-16", "dtype": "ERR-16", "shape": "ERR-16"})
_OF_RANGE: Mapping[str, str] = MappingProxyType({**_PER_ENTRY, "bounds": "PAGE-8"})


def _new(argument: Argument, meaning: str, other: str, shape: Shape) -> Argument:
    refusals = {**argument.refusals, "shape": "ERR-16", "axes": "ERR-16", "alone": "PAGE-9"}
    return replace(
        argument,
        name=f"new_{argument.name}",
        meaning=meaning,
        rule="PAGE-2",
        shape=shape,
        default=None,
        needs=(other,),
        refusals=MappingProxyType(refusals),
        called=f"new {argument.name}s",
        since=_SINCE,
    )


BLOCK_TABLE = Argument("block_table", "array", "page numbers of each sequence, in order", ("form",), "PAGE-1",
    (BATCH, "T"), "integer",
    refusals=MappingProxyType({"dtype": "ERR-16", "shape": "ERR-16", "axes": "ERR-16"}), called="page",
    since=_SINCE)  # fmt: skip
HELD_LENGTHS = replace(
    KEY_LENGTHS,
    meaning="number of positions that the pages hold",
    role=("form",),
    rule="PAGE-1",
    default=REQUIRED,
    bounds=Bounds(0, "T*K"),
    refusals=_OF_RANGE,
    called="held length",
    since=_SINCE,
)
NEW_KEY = _new(
    KEY, "keys of new positions, after those that the pages hold", "new_value", (BATCH, "Hkv", "N", "D")
)
NEW_VALUE = _new(VALUE, "values of new positions", "new_key", (BATCH, "Hkv", "N", "Dv"))
LEFT_PADDING = replace(
    HELD_LENGTHS,
    name="left_padding",
    meaning="number of positions at the beginning that are not keys",
    rule="PAGE-6",
    default=0,
    called="left padding",
)
OFFSET_AT_THE_END = replace(
    QUERY_OFFSET,
    meaning="position of query 0; by default the last query is at the last place",
    rule="PAGE-7",
    default=None,
    refusals=_PER_ENTRY,
    since=_SINCE,
)


_BLOCKS = (BATCH, "Hq", "L/Lb", "S/Sb")
_INTEGERS: Mapping[str, str] = MappingProxyType({"dtype": "ERR-16", "shape": "ERR-16"})


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


QUERY_BLOCK = _size("query_block", "Lb", "queries")
KEY_BLOCK = _size("key_block", "Sb", "keys")
BLOCK_MASK, BLOCK_COUNTS, BLOCK_INDICES, KEY_INDICES = (
    Argument("block_mask", "array", "True where the queries of a block may attend to the keys of a block",
        ("masks",), "SPARSE-1", _BLOCKS, "boolean", broadcasts=True, default=None, refusals=MASK.refusals,
        since=_SINCE),
    Argument("block_counts", "array", "number of blocks that are listed for each block of queries",
        ("masks",), "SPARSE-3", _BLOCKS[:-1], "integer", broadcasts=True, default=None, bounds=Bounds(0, "W"),
        needs=("block_indices",),
        refusals=MappingProxyType({**_INTEGERS, "alone": "SPARSE-10", "bounds": "SPARSE-11"}), called="count",
        since=_SINCE),
    Argument("block_indices", "array", "blocks of keys that are listed for each block of queries", ("masks",),
        "SPARSE-3", (*_BLOCKS[:-1], "W"), "integer", broadcasts=True, default=None, needs=("block_counts",),
        refusals=MappingProxyType({**_INTEGERS, "alone": "SPARSE-10", "bounds": "SPARSE-11"}),
        called="listed block", since=_SINCE),
    Argument("key_indices", "array", "keys that are listed for each query; -1 is none", ("masks",),
        "SPARSE-6", (BATCH, "Hkv", "L", "W"), "integer", broadcasts=True, bounds=Bounds(-1, "S", below=True),
        refusals=MappingProxyType({**_INTEGERS, "bounds": "SPARSE-11"}), called="listed key", since=_SINCE),
)  # fmt: skip


def _beside(name: str, meaning: str, shape: Shape) -> Argument:
    return array(name, meaning, "LATENT-1", shape, mixed="ERR-1", shape="ERR-16")


LATENT_ARRAYS = (
    array("query", "queries without their rotary part", "LATENT-1", (BATCH, "Hq", "L", "D"),
        axes="ERR-16"),
    _beside("query_rotary", "rotary part of the queries", (BATCH, "Hq", "L", "Dr")),
    _beside("latent", "latent vectors, which keys and values are projected from", (BATCH, "S", "Dc")),
    _beside("key_rotary", "rotary part of the keys, shared by all heads", (BATCH, "S", "Dr")),
    _beside("key_weight", "projects the latent to the keys of each head", ("Hq", "Dc", "D")),
    _beside("value_weight", "projects the latent to the values of each head", ("Hq", "Dc", "Dv")),
)  # fmt: skip
LATENT_SCALE = replace(
    SCALE, meaning="factor of the dot products; `1 / sqrt(D + Dr)` by default", rule="LATENT-2"
)


def _shards(name: str, meaning: str, letter: str, size: str) -> Argument:
    return Argument(
        name,
        "array",
        meaning,
        ("form",),
        "SHARD-1",
        (letter + ONE_MORE,),
        "integer",
        bounds=Bounds(0, size),
        ascending=True,
        covers=True,
        refusals=MappingProxyType({**_REFUSALS, "bounds": "SHARD-11"}),
        called=f"boundaries of {name.replace('_', ' ')}",
        since="2026.11.25",
    )


QUERY_SHARDS = _shards(
    "query_shards", "row of the first query of each shard, and the number of all", "Z", "L"
)
KEY_SHARDS = _shards("key_shards", "row of the first key of each shard, and the number of all", "Z", "S")
HEAD_SHARDS = replace(
    _shards("head_shards", "first query head of each part of the heads, and the number of all", "X", "Hq"),
    rule="SHARD-8",
    default=None,
)


DROPOUT_P, SEED = (
    Argument("dropout_p", "number", "probability with which a weight is dropped", ("weights",), "DROP-7",
        bounds=Bounds(0, 1), refusals=MappingProxyType({"form": "DROP-12", "bounds": "DROP-12"}),
        called="probability of dropout", since=_SINCE),
    Argument("seed", "integer", "determines the choice of the dropped weights", ("weights",), "DROP-6",
        refusals=MappingProxyType({"form": "DROP-12"}), since=_SINCE),
)  # fmt: skip

SEEDED_DROPOUT_ATTENTION = Operation(
    ARRAYS,
    (
        *(DROPOUT_P, SEED),
        *options("scale", "softcap", "bias", "mask", "is_causal", "query_offset", "window"),
        *options("key_lengths", "sinks", "return_lse"),
    ),
    (
        Output("output", (BATCH, "Hq", "L", "Dv"), rule="DROP-5", since=_SINCE),
        Output("lse", (BATCH, "Hq", "L"), "lse", option="return_lse", rule="DROP-5", since=_SINCE),
    ),
    headless=True,
    reduces="attention",
)
SEEDED_DROPOUT_ATTENTION_VJP = replace(vjp(SEEDED_DROPOUT_ATTENTION, "DROP-11"), reduces="attention_vjp")
