"""A constant in place of the default scale: the number that gives the results of a failing call."""

from collections.abc import Sequence
from dataclasses import replace
from math import log2

import numpy as np

from attnspec import Case
from attnspec.conformance import traits
from attnspec.conformance.gallery import Entry
from attnspec.conformance.gallery.entry import base
from attnspec.conformance.judge.dtypes import Outputs, is_real
from attnspec.dtypes import SHORT
from attnspec.reference import attention

#: The entry whose constant is that of a backend.
_NAME = "constant_scale"
#: Constants are sought between these powers of 2, then in more rounds around the best one.
_FIRST, _LAST, _POINTS, _ROUNDS = -8.0, 2.0, 81, 5
#: A call with one of these traits tells no constant.
_OTHER = {traits.SPECIAL, traits.LARGE, traits.NOTHING, traits.EMPTY}
#: The number that a program has is within this share of the one that is found, in half precision the second.
_NEAR, _NEAR_IN_HALF = 1e-4, 0.03


def with_constant(
    entry: Entry, failing: Sequence[tuple[frozenset[str], Case, Outputs | tuple[str, ...]]]
) -> Entry:
    """Give the entry of a constant scale the constant of failing calls, which need not explain them all."""
    calls = [
        (case, outputs)
        for kinds, case, outputs in failing
        if not isinstance(outputs, tuple)
        and traits.NO_SCALE in kinds
        and not _OTHER & kinds
        and case.operation == "attention"
    ]
    if entry.name != _NAME or not calls:
        return entry
    # The more keys, the more the result says of the scale.
    case, outputs = min(calls, key=lambda call: (call[0].dtype in SHORT, -call[0].arguments["key"].shape[-2]))
    constant = _plain_number(_nearest_scale(case, outputs), _NEAR_IN_HALF if case.dtype in SHORT else _NEAR)
    return replace(
        entry,
        sentence=f"Take a constant scale of {constant:.6g}, whatever the depth.",
        steps={"factor": lambda call: constant if call.scale is None else base.factor(call)},
    )


def _nearest_scale(case: Case, outputs: Outputs) -> float:
    """Return the scale whose result is nearest to that of a call."""
    got = outputs["output"].astype(np.float64)
    wide = {name: x.astype(np.float64) if is_real(x) else x for name, x in case.arguments.items()}
    wide = {name: x for name, x in wide.items() if not name.startswith("return_")}
    first, last = _FIRST, _LAST
    for _ in range(_ROUNDS):
        powers = np.linspace(first, last, _POINTS)
        distances = [np.abs(attention(**wide, scale=float(2.0**power)) - got).sum() for power in powers]
        best = powers[int(np.argmin(distances))]
        first, last = best - (powers[1] - powers[0]), best + (powers[1] - powers[0])
    return float(2.0**best)


def _plain_number(found: float, near: float) -> float:
    """Return the plainest number near another: a power of the root of 2, few digits, the root of a depth."""
    plain = [2.0 ** (round(2 * log2(found)) / 2), *(float(f"{found:.{digits}g}") for digits in range(1, 5))]
    plain += [round(found**-2) ** -0.5] if found < 1 else []
    return next((number for number in plain if abs(number - found) <= near * found), found)
