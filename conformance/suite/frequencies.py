"""The chapter `positions`: the frequencies of rotary embedding, by scaling."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded

chapter = Chapter("positions")

#: Options of each scaling: the numbers of a model, and others at which wrong formulas differ. No end of a
#: range lies so near to an integer that rounding it in float32 could move it.
_OPTIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "none": ({}, {"base": 500000.0}, {"base": 2.0, "rotary_depth": 6}),
    "linear": (
        {"factor": 4.0},
        {"factor": 2.5, "base": 1000.0, "rotary_depth": 6},
        {"factor": 0.5, "rotary_depth": 2},
        {"factor": 3.0, "base": 1.0},
        {"factor": 3.0, "base": 0.5},
    ),
    "dynamic": (
        {"factor": 2.0, "original_length": 2048, "length": 6000},
        {"factor": 6.0, "original_length": 100, "length": 101, "rotary_depth": 6},
        {"factor": 3.0, "original_length": 100, "length": 100},
        {"factor": 4.0, "original_length": 100, "length": 7},
        {"factor": 4.0, "original_length": 100, "length": 900, "rotary_depth": 2},
        {"factor": 0.5, "original_length": 2**20, "length": 2**20 + 2**19},
        {"factor": 2.0, "original_length": 100, "length": 250, "base": 1.0},
    ),
    "yarn": (
        {"factor": 40.0, "original_length": 4096, "mscale": 0.75, "mscale_all_depth": 0.75},
        {"factor": 4.0, "original_length": 32768, "base": 1000000.0},
        {"factor": 8.0, "original_length": 512, "beta_fast": 24.0, "beta_slow": 3.0, "mscale": 2.0},
        {"factor": 32.0, "original_length": 4096, "base": 150000.0, "truncate": False},
        {"factor": 0.5, "original_length": 300, "mscale_all_depth": 1.0, "rotary_depth": 10},
        # The end of the range comes before its beginning.
        {"factor": 4.0, "original_length": 4096, "beta_fast": 1.0, "beta_slow": 32.0, "truncate": False},
        {"factor": 4.0, "original_length": 4096, "base": 100.0},  # the ramp ends past the last pair
        {"factor": 4.0, "original_length": 4096, "base": 5.0, "truncate": False},
        {
            "factor": 4.0,
            "original_length": 2**20,
            "beta_fast": 24.0,
            "beta_slow": 3.0,
            "mscale": 2.0,
            "truncate": False,
        },
        {"factor": 4.0, "original_length": 4096, "rotary_depth": 2},
    ),
    "longrope": (
        {"factor": 32.0, "original_length": 4096, "length": 4097},
        {"factor": 32.0, "original_length": 4096, "length": 4096},
        {"factor": 1.0, "original_length": 4096, "length": 10},
        {"factor": 0.5, "original_length": 2**20, "length": 2**20 + 1},
        {"factor": 4.0, "original_length": 4096, "length": 4097, "rotary_depth": 2},
        {"factor": 4.0, "original_length": 4096, "length": 4097, "base": 1.0},
    ),
    "llama3": (
        {"factor": 8.0, "original_length": 8192, "base": 500000.0},
        {"factor": 32.0, "original_length": 8192, "base": 500000.0},
        {
            "factor": 4.0,
            "original_length": 500,
            "low_frequency_factor": 2.0,
            "high_frequency_factor": 9.0,
        },
        {"factor": 0.5, "original_length": 500, "rotary_depth": 2},
        {"factor": 8.0, "original_length": 2**20, "base": 500000.0},
        {"factor": 8.0, "original_length": 4, "base": 1.0},
    ),
}
_SCALING_RULES = {
    "none": ("POS-18",),
    "linear": ("POS-19", "POS-18"),
    "dynamic": ("POS-20", "POS-18"),
    "yarn": ("POS-21", "POS-22"),
    "longrope": ("POS-23",),
    "llama3": ("POS-24", "POS-18"),
}


@chapter.group("POS-18", operation="rotary_frequencies", each=tuple(_OPTIONS))
def frequencies_of(draw: Draw, scaling: str) -> Iterator[Yielded]:
    """The frequencies of each scaling and its attention factor, in float32 or better."""
    for index, options in enumerate(_OPTIONS[scaling]):
        for dtype in ("float32", ("float16", "float64", "bfloat16")[index % 3]):
            random = np.random.default_rng(draw.number(index))
            features = np.ones((2, 1, 1, 16 if scaling == "none" else 32), dtype)
            arguments = {"features": features, **options}
            if scaling != "none":
                arguments["scaling"] = scaling
            if scaling == "longrope":
                for name, most in (("short_factors", 64), ("long_factors", 1024)):
                    factors = 1 + np.sort(random.integers(0, most, 16)) / 16
                    factors = factors[: options.get("rotary_depth", 32) // 2]
                    arguments[name] = factors.astype(lse_dtype(dtype))
            depth = ("POS-4",) if "rotary_depth" in options else ()
            yield Call(arguments, (*_SCALING_RULES[scaling], *depth))


@chapter.group("POS-22", "POS-21", operation="rotary_frequencies", each=("both", "one", "none", "zero"))
def attention_factor_of_yarn(draw: Draw, given: str) -> Iterator[Yielded]:
    """Two numbers that cancel or not, one number alone, neither, and one that is 0."""
    own: dict[str, Any] = {
        "both": {"mscale": 1.25, "mscale_all_depth": 0.5},
        "one": {"mscale_all_depth": 1.0},
        "none": {},
        "zero": {"mscale": 0.0, "mscale_all_depth": 1.0},
    }[given]
    for _, dtype in draw.generators(1):
        arguments = {"features": np.ones((1, 16), dtype), "scaling": "yarn", "factor": 16.0}
        yield arguments | {"original_length": 2048} | own


@chapter.group("POS-23", "POS-18", operation="rotary_frequencies")
def options_of_another_scaling(draw: Draw) -> Iterator[Yielded]:
    """Options that the scaling does not use have no effect."""
    for _, dtype in draw.generators(1):
        arguments = {"features": np.ones((1, 16), dtype), "scaling": "linear", "factor": 2.0, "length": 9000}
        other = {"mscale": 3.0, "original_length": 64, "beta_fast": 2.0, "high_frequency_factor": 7.0}
        yield Call(arguments | other, ("POS-19", "POS-18"))
