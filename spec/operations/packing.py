"""Attention over packed sequences: the arguments of the chapter `packing`."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.argument import Argument, Bounds, Output
from attnspec.operations.attention import (
    IS_CAUSAL,
    KEY,
    QUERY,
    QUERY_OFFSET,
    RETURN_LSE,
    SCALE,
    SINKS,
    SOFTCAP,
    VALUE,
    WINDOW,
)
from attnspec.operations.gradients import vjp
from attnspec.operations.operation import Operation

#: The version that added packed sequences.
SINCE = "2026.11.22"
_REFUSALS: Mapping[str, str] = MappingProxyType({"dtype": "ERR-16", "shape": "ERR-16"})


def _row(argument: Argument) -> Argument:
    """Leave out the batch axes: all sequences lie in one row."""
    refusals = {**argument.refusals, "axes": "ERR-16"}
    return replace(argument, shape=argument.shape[1:], refusals=MappingProxyType(refusals), since=SINCE)


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
        since=SINCE,
    )


PACKED_ATTENTION = Operation(
    tuple(map(_row, (QUERY, KEY, VALUE))),
    (
        replace(
            _starts("query", "L"), meaning="row of the first query of each sequence, and the end of the last"
        ),
        replace(
            _starts("key", "S"), meaning="row of the first key of each sequence, and the end of the last"
        ),
        SCALE,
        SOFTCAP,
        IS_CAUSAL,
        replace(
            QUERY_OFFSET,
            meaning="position of query 0 of a sequence among its keys",
            rule="PACK-5",
            shape=("G",),
            refusals=MappingProxyType({**_REFUSALS, "form": "ERR-16"}),
            since=SINCE,
        ),
        WINDOW,
        SINKS,
        RETURN_LSE,
    ),
    (
        Output("output", ("Hq", "L", "Dv"), rule="PACK-1", since=SINCE),
        Output("lse", ("Hq", "L"), "lse", option="return_lse", rule="PACK-1", since=SINCE),
    ),
    reduces="attention",
)
PACKED_ATTENTION_VJP = replace(vjp(PACKED_ATTENTION, "PACK-7"), reduces="attention_vjp")
