"""The arguments of the operator, `attention`, in the order of the chapters."""

from types import MappingProxyType

from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Argument, Bounds, Operation, Output

_SCORES = (BATCH, "Hq", "L", "S")
_FLAG = MappingProxyType({"form": "ERR-3"})
_PER_ENTRY = MappingProxyType({"form": "ERR-8", "dtype": "ERR-8", "shape": "ERR-8"})
_LENGTHS = MappingProxyType({**_PER_ENTRY, "bounds": "ERR-9"})
_IDS = MappingProxyType({"dtype": "ERR-10", "shape": "ERR-10", "alone": "ERR-10"})
_POSITIONS = MappingProxyType({"dtype": "ERR-18", "shape": "ERR-18", "alone": "ERR-18"})
_BESIDE_QUERY = MappingProxyType(
    {"dtype": "ERR-2", "mixed": "ERR-1", "shape": "SHAPE-6", "Hkv": "HEAD-2", "axes": "SHAPE-6"}
)

#: The arrays of the operator, in the order of the call.
ARRAYS = (
    Argument("query", "array", "queries", ("data",), "SHAPE-1", (BATCH, "Hq", "L", "D"),
        refusals=MappingProxyType({"dtype": "ERR-2", "shape": "SHAPE-6", "axes": "SHAPE-6"})),
    Argument("key", "array", "keys, which queries are compared with", ("data",), "SHAPE-1",
        (BATCH, "Hkv", "S", "D"), refusals=_BESIDE_QUERY),
    Argument("value", "array", "values, which are averaged", ("data",), "SHAPE-1", (BATCH, "Hkv", "S", "Dv"),
        refusals=_BESIDE_QUERY),
)  # fmt: skip
#: Its options, in the order of the chapters.
OPTIONS = (
    Argument("scale", "number", "factor of the dot products; `1 / sqrt(D)` by default", ("scores",),
        "SCORE-2", default=None, refusals=MappingProxyType({"form": "ERR-6"})),
    Argument("softcap", "number", "bound that scores approach", ("scores",), "SCORE-5", default=None,
        bounds=Bounds(0, above=True), refusals=MappingProxyType({"form": "SCORE-6", "bounds": "SCORE-6"})),
    Argument("bias", "array", "added to the scores; minus infinity masks", ("scores", "masks"), "SCORE-4",
        _SCORES, broadcasts=True, minus_infinity=True, default=None,
        refusals=MappingProxyType({"dtype": "ERR-2", "shape": "ERR-15"})),
    Argument("mask", "array", "True where to attend", ("masks",), "MASK-1", _SCORES, "boolean",
        broadcasts=True, default=None, refusals=MappingProxyType({"dtype": "ERR-4", "shape": "ERR-15"})),
    Argument("is_causal", "flag", "no keys after the query", ("masks",), "MASK-3", default=False,
        refusals=_FLAG),
    Argument("query_offset", "integers", "position of query 0 among the keys", ("masks",), "MASK-7", (BATCH,),
        "integer", default=0, matters_with=("is_causal", "window"), refusals=_PER_ENTRY, called="offset"),
    Argument("window", "window", "positions allowed to the left and to the right, inclusive", ("masks",),
        "MASK-8", default=None, bounds=Bounds(0),
        refusals=MappingProxyType({"form": "ERR-7", "bounds": "ERR-7"})),
    Argument("query_lengths", "integers", "number of valid queries", ("masks",), "MASK-10", (BATCH,),
        "integer", default=None, bounds=Bounds(0, "L"), refusals=_LENGTHS, called="query length"),
    Argument("key_lengths", "integers", "number of valid keys", ("masks",), "MASK-9", (BATCH,), "integer",
        default=None, bounds=Bounds(0, "S"), refusals=_LENGTHS, called="key length"),
    Argument("query_segment_ids", "array", "segment ids of queries; a query attends to equal ids only",
        ("masks",), "MASK-11", (BATCH, "L"), "integer", default=None, needs=("key_segment_ids",),
        refusals=_IDS, called="ids of queries"),
    Argument("key_segment_ids", "array", "segment ids of keys", ("masks",), "MASK-11", (BATCH, "S"),
        "integer", default=None, needs=("query_segment_ids",), refusals=_IDS, called="ids of keys"),
    Argument("query_positions", "array", "position of each query, instead of its index and the offset",
        ("masks",), "MASK-14", (BATCH, "L"), "integer", default=None, excludes=("query_offset",),
        matters_with=("is_causal", "window"), refusals=_POSITIONS, called="positions of queries",
        since="2026.11.24"),
    Argument("key_positions", "array", "position of each key, instead of its index; negative for no key",
        ("masks",), "MASK-14", (BATCH, "S"), "integer", default=None,
        refusals=MappingProxyType({"dtype": "ERR-18", "shape": "ERR-18"}), called="positions of keys",
        since="2026.11.24"),
    Argument("sinks", "array", "one more logit for each head, in the denominator only", ("denominator",),
        "SOFT-5", ("Hq",), minus_infinity=True, default=None,
        refusals=MappingProxyType({"dtype": "ERR-2", "shape": "ERR-11"})),
    Argument("dropout_mask", "array", "True where a weight is kept", ("weights",), "DROP-1", _SCORES,
        "boolean", broadcasts=True, default=None,
        refusals=MappingProxyType({"dtype": "ERR-4", "shape": "ERR-15"})),
    Argument("dropout_rate", "number", "rate of dropout; kept weights are divided by 1 minus this rate",
        ("weights",), "DROP-2", default=0.0, bounds=Bounds(0, 1, below=True), needs=("dropout_mask",),
        refusals=MappingProxyType({"form": "DROP-4", "bounds": "DROP-4", "alone": "DROP-4"}), called="rate"),
    Argument("return_lse", "flag", "return the lse too", ("asks",), "SOFT-6", default=False, refusals=_FLAG),
    Argument("return_weights", "flag", "return the weights too", ("asks",), "SHAPE-4", default=False,
        refusals=_FLAG),
    Argument("return_max", "flag", "return the maxima too", ("asks",), "SOFT-8", default=False,
        refusals=_FLAG, since="2026.11.22"),
)  # fmt: skip
QUERY, KEY, VALUE = ARRAYS
(
    SCALE, SOFTCAP, BIAS, MASK, IS_CAUSAL, QUERY_OFFSET, WINDOW, QUERY_LENGTHS, KEY_LENGTHS,
    QUERY_SEGMENT_IDS, KEY_SEGMENT_IDS, QUERY_POSITIONS, KEY_POSITIONS, SINKS, DROPOUT_MASK,
    DROPOUT_RATE, RETURN_LSE, RETURN_WEIGHTS, RETURN_MAX,
) = OPTIONS  # fmt: skip


def options(*names: str) -> tuple[Argument, ...]:
    """Return some options of attention, in its order."""
    return tuple(option for option in OPTIONS if option.name in names)


ATTENTION = Operation(
    ARRAYS,
    OPTIONS,
    (
        Output("output", (BATCH, "Hq", "L", "Dv"), rule="SHAPE-3"),
        Output("lse", (BATCH, "Hq", "L"), "lse", option="return_lse", rule="SHAPE-8"),
        Output("weights", _SCORES, option="return_weights", rule="SHAPE-4"),
        Output(
            "max",
            (BATCH, "Hq", "L"),
            "lse",
            option="return_max",
            rule="SOFT-8",
            apart=True,
            since="2026.11.22",
        ),
    ),
    headless=True,
)
