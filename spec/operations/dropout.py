"""Attention with dropout by a seed: the arguments of the chapter `dropout`."""

from dataclasses import replace
from types import MappingProxyType

from attnspec.operations.argument import Argument, Bounds, Output
from attnspec.operations.attention import (
    BIAS,
    IS_CAUSAL,
    KEY,
    KEY_LENGTHS,
    MASK,
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
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Operation

#: The version that added dropout by a seed.
SINCE = "2026.11.22"

DROPOUT_P = Argument(
    "dropout_p",
    "number",
    "probability with which a weight is dropped",
    ("weights",),
    "DROP-7",
    bounds=Bounds(0, 1),
    refusals=MappingProxyType({"form": "DROP-12", "bounds": "DROP-12"}),
    called="probability of dropout",
    since=SINCE,
)
SEED = Argument(
    "seed",
    "integer",
    "determines the choice of the dropped weights",
    ("weights",),
    "DROP-6",
    refusals=MappingProxyType({"form": "DROP-12"}),
    since=SINCE,
)

SEEDED_DROPOUT_ATTENTION = Operation(
    (QUERY, KEY, VALUE),
    (
        DROPOUT_P,
        SEED,
        SCALE,
        SOFTCAP,
        BIAS,
        MASK,
        IS_CAUSAL,
        QUERY_OFFSET,
        WINDOW,
        KEY_LENGTHS,
        SINKS,
        RETURN_LSE,
    ),
    (
        Output("output", (BATCH, "Hq", "L", "Dv"), rule="DROP-5", since=SINCE),
        Output("lse", (BATCH, "Hq", "L"), "lse", option="return_lse", rule="DROP-5", since=SINCE),
    ),
    headless=True,
    reduces="attention",
)
SEEDED_DROPOUT_ATTENTION_VJP = replace(vjp(SEEDED_DROPOUT_ATTENTION, "DROP-11"), reduces="attention_vjp")
