"""The selection of keys by their scores: the arguments of the chapter `selection`."""

from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.attention import IS_CAUSAL, KEY_LENGTHS, QUERY_OFFSET
from attnspec.operations.companions import array, rules
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Argument, Bounds, Operation, Output

_SINCE = "2026.11.25"
_ARGUMENTS = (
    array("scores", "score of each key for each query", "SELECT-1", (BATCH, "L", "S"), rules(axes="ERR-16")),
    Argument(
        "top_k",
        "integer",
        "number of places of a list",
        ("form",),
        "SELECT-3",
        binds="W",
        bounds=Bounds(1),
        refusals=MappingProxyType({"form": "SELECT-9", "bounds": "SELECT-9"}),
    ),
    replace(IS_CAUSAL, rule="SELECT-2"),
    replace(QUERY_OFFSET, rule="SELECT-2", matters_with=("is_causal",)),
    replace(KEY_LENGTHS, rule="SELECT-2"),
)
_SCORES, *_OPTIONS = (replace(argument, since=_SINCE) for argument in _ARGUMENTS)

SELECT_KEYS = Operation(
    (_SCORES,),
    tuple(_OPTIONS),
    (Output("key_indices", (BATCH, "L", "W"), lists="S", rule="SELECT-1", since=_SINCE),),
)
