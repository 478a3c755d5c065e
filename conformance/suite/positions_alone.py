"""The chapter `positions`: arguments of rotary embedding and of its frequencies, one at a time."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnspec.conformance.suite.alone import draw_acting
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import grid

chapter = Chapter("positions")

#: Operations and arguments that other groups have only beside more arguments, and their rules.
_ALONE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("rotary", "attention_factor"): ("POS-14",),
    ("rotary_vjp", "attention_factor"): ("GRAD-22", "POS-14"),
    ("rotary_vjp", "cosines"): ("GRAD-22", "POS-12"),
    ("rotary_vjp", "rotary_depth"): ("GRAD-22", "POS-4"),
}


@chapter.group("POS-14", "GRAD-22", each=tuple(_ALONE))
def argument_of_a_rotation_alone(draw: Draw, which: tuple[str, str]) -> Iterator[Yielded]:
    """One argument acts beside what it needs and nothing else."""
    operation, name = which

    def make(random: np.random.Generator, dtype: str) -> dict[str, Any]:
        names = ("features", "d_rotated")[: 1 + operation.endswith("_vjp")]
        call = {own: grid(random, (2, 3, 5, 8), 1.0).astype(dtype) for own in names}
        options = {"attention_factor": 1.25, "rotary_depth": 4}
        tables = {own: grid(random, (5, 4), 0.7).astype(dtype) for own in ("cosines", "sines")}
        return call | (tables if name == "cosines" else {name: options[name]})

    yield from draw_acting(draw, operation, name, make, *_ALONE[which])


#: Arguments of a scaling beside what it needs, with a number of each that acts.
_FREQUENCIES: Mapping[str, tuple[str, float, str]] = {
    "beta_fast": ("yarn", 4.0, "POS-21"),
    "beta_slow": ("yarn", 8.0, "POS-21"),
    "truncate": ("yarn", False, "POS-21"),
    "mscale": ("yarn", 0.5, "POS-22"),
    "mscale_all_depth": ("yarn", 0.5, "POS-22"),
    "low_frequency_factor": ("llama3", 2.0, "POS-24"),
    "high_frequency_factor": ("llama3", 9.0, "POS-24"),
}


@chapter.group("POS-21", "POS-22", "POS-24", operation="rotary_frequencies", each=tuple(_FREQUENCIES))
def argument_of_a_scaling_alone(draw: Draw, name: str) -> Iterator[Yielded]:
    """One argument acts beside what the scaling needs and nothing else."""
    scaling, number, rule = _FREQUENCIES[name]
    for _, dtype in draw.generators(1):
        call = {"features": np.ones((1, 32), dtype), "scaling": scaling, "factor": 8.0}
        yield Call(
            call | {"original_length": 500, name: number}, (rule, "POS-21") if rule == "POS-22" else (rule,)
        )
