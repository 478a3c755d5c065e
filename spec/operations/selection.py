"""The scores of an indexer, and the selection of keys by scores: the arguments of the chapter `selection`."""

from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.attention import IS_CAUSAL, KEY_LENGTHS, QUERY_OFFSET
from attnspec.operations.companions import array
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Argument, Bounds, Operation, Output

_SINCE = "2026.11.25"
_ARGUMENTS = (
    array("scores", "score of each key for each query", "SELECT-1", (BATCH, "L", "S"), axes="ERR-16"),
    Argument("top_k", "integer", "number of places of a list", ("form",), "SELECT-3", binds="W",
        bounds=Bounds(1), refusals=MappingProxyType({"form": "SELECT-9", "bounds": "SELECT-9"})),
    replace(IS_CAUSAL, rule="SELECT-2"),
    replace(QUERY_OFFSET, rule="SELECT-2", matters_with=("is_causal",)),
    replace(KEY_LENGTHS, rule="SELECT-2"),
)  # fmt: skip
_SCORES, *_OPTIONS = (replace(argument, since=_SINCE) for argument in _ARGUMENTS)

_INDEXER = (
    array("index_query", "queries of the indexer", "SELECT-10", (BATCH, "H", "L", "D"), axes="ERR-16"),
    array("index_key", "keys of the indexer, shared by its heads", "SELECT-10", (BATCH, "S", "D"),
        mixed="ERR-1", shape="ERR-16"),
    array("index_weights", "weight of each head of the indexer, for each query", "SELECT-10",
        (BATCH, "H", "L"), mixed="ERR-1", shape="ERR-16"),
)  # fmt: skip

INDEXER_SCORES = Operation(
    tuple(replace(argument, since=_SINCE) for argument in _INDEXER),
    (),
    (Output("index_scores", (BATCH, "L", "S"), "lse", rule="SELECT-10", since=_SINCE),),
)

SELECT_KEYS = Operation(
    (_SCORES,),
    tuple(_OPTIONS),
    (Output("key_indices", (BATCH, "L", "W"), lists="S", rule="SELECT-1", since=_SINCE),),
)
