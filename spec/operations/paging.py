"""Attention over a cache in pages: the arguments of the chapter `paging`."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.argument import REQUIRED, Argument, Bounds, Output, Shape
from attnspec.operations.attention import (
    IS_CAUSAL,
    KEY,
    KEY_LENGTHS,
    QUERY,
    QUERY_OFFSET,
    RETURN_LSE,
    SCALE,
    SINKS,
    SOFTCAP,
    VALUE,
    WINDOW,
)
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Operation

#: The version that added attention over pages.
SINCE = "2026.11.22"
_PER_ENTRY: Mapping[str, str] = MappingProxyType({"form": "ERR-16", "dtype": "ERR-16", "shape": "ERR-16"})
_OF_RANGE: Mapping[str, str] = MappingProxyType({**_PER_ENTRY, "bounds": "PAGE-8"})


def _pages(argument: Argument, meaning: str, shape: Shape) -> Argument:
    refusals = {**argument.refusals, "shape": "ERR-16", "axes": "ERR-16"}
    return replace(
        argument,
        name=f"{argument.name}_pages",
        meaning=meaning,
        rule="PAGE-1",
        shape=shape,
        refusals=MappingProxyType(refusals),
        called=f"pages of {argument.name}s",
        since=SINCE,
    )


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
        since=SINCE,
    )


PAGED_ATTENTION = Operation(
    (
        QUERY,
        _pages(KEY, "pages of keys", ("P", "Hkv", "K", "D")),
        _pages(VALUE, "pages of values", ("P", "Hkv", "K", "Dv")),
    ),
    (
        Argument(
            "block_table",
            "array",
            "page numbers of each sequence, in order",
            ("form",),
            "PAGE-1",
            (BATCH, "T"),
            "integer",
            refusals=MappingProxyType({"dtype": "ERR-16", "shape": "ERR-16", "axes": "ERR-16"}),
            called="page",
            since=SINCE,
        ),
        replace(
            KEY_LENGTHS,
            meaning="number of positions that the pages hold",
            role=("form",),
            rule="PAGE-1",
            default=REQUIRED,
            bounds=Bounds(0, "T*K"),
            refusals=_OF_RANGE,
            called="held length",
            since=SINCE,
        ),
        _new(
            KEY,
            "keys of new positions, after those that the pages hold",
            "new_value",
            (BATCH, "Hkv", "N", "D"),
        ),
        _new(VALUE, "values of new positions", "new_key", (BATCH, "Hkv", "N", "Dv")),
        replace(
            KEY_LENGTHS,
            name="left_padding",
            meaning="number of positions at the beginning that are not keys",
            role=("form",),
            rule="PAGE-6",
            default=0,
            bounds=Bounds(0, "T*K"),
            refusals=_OF_RANGE,
            called="left padding",
            since=SINCE,
        ),
        SCALE,
        SOFTCAP,
        IS_CAUSAL,
        replace(
            QUERY_OFFSET,
            meaning="position of query 0; by default the last query is at the last key",
            rule="PAGE-7",
            default=None,
            refusals=_PER_ENTRY,
            since=SINCE,
        ),
        WINDOW,
        SINKS,
        RETURN_LSE,
    ),
    (
        Output("output", (BATCH, "Hq", "L", "Dv"), rule="PAGE-1", since=SINCE),
        Output("lse", (BATCH, "Hq", "L"), "lse", option="return_lse", rule="PAGE-1", since=SINCE),
    ),
    reduces="attention",
)
