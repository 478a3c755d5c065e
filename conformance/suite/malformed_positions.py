"""Calls that must be rejected because of positions, tables of rotations or scalings of their frequencies."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from attnspec import OPERATIONS
from attnspec.conformance.suite.faults import BATCHES, value_for, with_needs
from attnspec.conformance.suite.malformed_call import Malformed, make_call
from attnspec.operations.operation import primal
from attnspec.operations.positions import NEEDED

#: The numbers that a scaling uses and does not need.
_USED: Mapping[str, tuple[str, ...]] = {
    "yarn": ("beta_fast", "beta_slow", "mscale", "mscale_all_depth"),
    "llama3": ("low_frequency_factor", "high_frequency_factor"),
}


def calls_of_positions(operation: str, sizes: Mapping[str, int]) -> Iterator[Malformed]:
    """Make calls whose positions, tables or scalings do not fit."""
    known = OPERATIONS[operation].arguments
    if operation in ("rotary", "rotary_frequencies"):
        odd = {"features": value_for(operation, known["features"], {**sizes, "D": 5})}
        yield make_call(operation, known["rotary_depth"], "depth that is odd", "bounds", odd, sizes)
    if operation == "rotary":
        yield from _of_tables(operation, sizes)
    if operation == "rotary_frequencies":
        yield from _of_scalings(operation, sizes)
    if "query_positions" in known and operation == primal(operation):
        positions = {"query_positions": value_for(operation, known["query_positions"], sizes)}
        for words, offset in (("zeros", np.zeros(BATCHES, np.int64)), ("0", 0)):
            if words == "zeros" or known["query_offset"].default is None:
                both = positions | {"query_offset": offset}
                name = f"positions beside an offset of {words}"
                yield make_call(operation, known["query_positions"], name, words, both, sizes)


def _of_tables(operation: str, sizes: Mapping[str, int]) -> Iterator[Malformed]:
    """Make calls with positions that a table of cosines and sines does not have."""
    known = OPERATIONS[operation].arguments
    table = with_needs(operation, known["cosines"], sizes)
    last = table["cosines"].shape[0]
    below = table | {"base": -1.0}
    unused = make_call(operation, known["base"], "base below 0 beside a table", "unused", below, sizes)
    yield replace(unused, rule="POS-9", asked=False, required=True)
    for words, name, value in (
        ("position past the table", "positions", np.full((*BATCHES, sizes["N"]), last)),
        ("position before the table", "positions", np.full((*BATCHES, sizes["N"]), -1)),
        ("offset past the table", "offset", last),
    ):
        past = make_call(operation, known[name], words, "", table | {name: value}, sizes)
        yield replace(past, rule="POS-13", asked=True)


def _of_scalings(operation: str, sizes: Mapping[str, int]) -> Iterator[Malformed]:
    """Make calls without an argument that the scaling needs, or with numbers that it does not take."""
    known = OPERATIONS[operation].arguments
    factors = {name: np.ones(sizes["D"] // 2) for name in ("short_factors", "long_factors")}
    whole = {"factor": 2.0, "original_length": 64, "length": 65, **factors}
    for scaling, names in NEEDED.items():
        for missing in names:
            changes = {"scaling": scaling, **{name: whole[name] for name in names if name != missing}}
            words = f"{scaling} without {known[missing].noun}"
            yield replace(
                make_call(operation, known[missing], words, "", changes, sizes), rule="POS-25", asked=True
            )
    uses = {name: own for own, names in NEEDED.items() for name in (*names, *_USED.get(own, ()))}
    below = [
        (own, name, bounds.least - (not bounds.above), f"{own} with {known[name].noun} out of range")
        for name, own in uses.items()
        if (bounds := known[name].bounds)
    ]
    for scaling, name, value, words in (
        ("yarn", "base", 1.0, "yarn with a base of 1"),
        ("longrope", "original_length", 1, "longrope with an original length of 1"),
        ("llama3", "high_frequency_factor", 1.0, "llama3 with no frequencies between low and high"),
        ("llama3", "high_frequency_factor", 0.5, "llama3 with high frequencies below low ones"),
        *below,
    ):
        changes = {"scaling": scaling, **{own: whole[own] for own in NEEDED[scaling]}, name: value}
        yield replace(make_call(operation, known[name], words, "", changes, sizes), rule="POS-25", asked=True)
