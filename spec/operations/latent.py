"""Latent attention: the arguments of the chapter `latent`."""

from dataclasses import replace

from attnspec.operations.argument import Argument, Output, Shape
from attnspec.operations.attention import (
    IS_CAUSAL,
    KEY_LENGTHS,
    MASK,
    QUERY_OFFSET,
    RETURN_LSE,
    SCALE,
    SINKS,
    SOFTCAP,
    WINDOW,
)
from attnspec.operations.companions import array, rules
from attnspec.operations.letters import BATCH
from attnspec.operations.operation import Operation


def _beside(name: str, meaning: str, shape: Shape) -> Argument:
    return array(name, meaning, "LATENT-1", shape, rules(mixed="ERR-1", shape="ERR-16"))


LATENT_ATTENTION = Operation(
    (
        array(
            "query",
            "queries without their rotary part",
            "LATENT-1",
            (BATCH, "Hq", "L", "D"),
            rules(axes="ERR-16"),
        ),
        _beside("query_rotary", "rotary part of the queries", (BATCH, "Hq", "L", "Dr")),
        _beside("latent", "latent vectors, which keys and values are projected from", (BATCH, "S", "Dc")),
        _beside("key_rotary", "rotary part of the keys, shared by all heads", (BATCH, "S", "Dr")),
        _beside("key_weight", "projects the latent to the keys of each head", ("Hq", "Dc", "D")),
        _beside("value_weight", "projects the latent to the values of each head", ("Hq", "Dc", "Dv")),
    ),
    (
        replace(SCALE, meaning="factor of the dot products; `1 / sqrt(D + Dr)` by default", rule="LATENT-2"),
        SOFTCAP,
        MASK,
        IS_CAUSAL,
        QUERY_OFFSET,
        WINDOW,
        KEY_LENGTHS,
        SINKS,
        RETURN_LSE,
    ),
    (
        Output("output", (BATCH, "Hq", "L", "Dv"), rule="LATENT-1"),
        Output("lse", (BATCH, "Hq", "L"), "lse", option="return_lse", rule="LATENT-3"),
    ),
)
