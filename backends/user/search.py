"""Searches heads, axes, lengths and depths for a call that shows the convention of a function."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from attnspec.backends.backend import Backend
from attnspec.backends.user.built_in_slopes import check_built_in_slopes
from attnspec.backends.user.calls import LENGTHS, OTHER_HEADS, H
from attnspec.backends.user.convention import LAYOUTS
from attnspec.backends.user.description import Inference, Known, dtypes_of
from attnspec.backends.user.probe import DEPTHS, FEW_DEPTHS, RETURNS, Probe
from attnspec.backends.user.trials import unknown_required

#: What a required parameter with an unknown name may be. A call has to show it.
_CANDIDATES = ("sinks", "bias", "mask", "scale", "is_causal", "key_lengths", "query_lengths")


def probe(backend: Backend, function: Callable[..., Any], known: Known) -> Inference:
    """Infer how a function is called, with other numbers of heads if no call with the first one returns."""
    inference, plainest = _probe(backend, function, known, H)
    depths, dtype = known.depths or DEPTHS, str(plainest.arrays["query"].dtype)
    few = (Probe(backend, function, known, {}, depth, dtype) for depth in depths)
    if inference is None and plainest.nearest is None and any(x.is_taken() for x in few):
        others = (_probe(backend, function, known, heads) for heads in OTHER_HEADS)
        inference, plainest = next((x for x in others if x[0] or x[1].nearest), (None, plainest))
    if inference is None and plainest.nearest:
        check_built_in_slopes(plainest, plainest.plainest_conventions(LAYOUTS, RETURNS, plainest.axes))
        inference = plainest.infer(plainest.take_nearest(*plainest.nearest))
    if inference is None:
        raise plainest.error_of_no_call(depths, taken=plainest.is_taken())
    said = f"; with {H} heads each call raised an error" if plainest.heads != H else ""
    layout = type(inference.why["layout"])(inference.why["layout"] + said)  # a guess stays one
    return replace(inference, why={**inference.why, "layout": layout})


def _probe(
    backend: Backend, function: Callable[..., Any], known: Known, heads: int
) -> tuple[Inference | None, "Probe"]:
    """Return what calls with a number of heads show, if one is right, and the plainest of these calls."""
    named = {*known.convention.names.values(), *known.convention.others}
    unknown = unknown_required(function, named)
    # One query at the last key shows no causality.
    alone = len(unknown) == 1 and not known.convention.one_query
    candidates = [{unknown[0]: ours} for ours in _CANDIDATES] if alone else []
    dtypes: dict[str, str] = {}  # a dtype does not depend on the number of positions

    def maker(names: Mapping[str, str], lengths: tuple[int, int]) -> Callable[[int], Probe]:
        dtype = dtypes[str(names)] = dtypes.get(str(names)) or _first_dtype(backend, function, known, names)
        return lambda depth: Probe(backend, function, known, names, depth, dtype, lengths, heads)

    several = ((1, LENGTHS[0][1]),) if known.convention.one_query else LENGTHS
    plainest = maker({}, several[0])((known.depths or DEPTHS)[0])
    # Three axes come last: a function of four may take them and read a depth as a number of positions.
    tried = product(candidates or [{}], (None, 3), several[:1] if candidates else several)
    for names, axes, lengths in tried:
        depths = known.depths or (DEPTHS if lengths == several[0] else FEW_DEPTHS)
        make = maker(names, lengths)
        probes = {depth: make(depth) for depth in depths}
        for deeper in probes.values():
            deeper.axes = (axes,)
        called = {depths[0]: probes[depths[0]].call_without_options()}
        if called[depths[0]] is None and not names:
            called = {depth: deeper.call_without_options() for depth, deeper in probes.items()}
        conventions = {depth: convention for depth, convention in called.items() if convention is not None}
        shown = {depth: x for depth, x in conventions.items() if not names or probes[depth].shows(x, names)}
        if not shown:
            continue
        inference = probes[first := min(shown)].infer(shown[first])
        # A depth whose results are wrong is taken, and the suite judges it.
        refused = [depth for depth in depths if depth not in shown and not probes[depth].takes(shown[first])]
        if first == depths[0] or not refused:
            return inference, plainest
        why = f"with depths {', '.join(map(str, refused))} it raised an error"
        taken = tuple(depth for depth in depths if depth not in refused)
        return replace(inference, depths=taken, why={**inference.why, "depths": why}), plainest
    if not candidates:
        plainest.call_without_options()
    return None, plainest


def _first_dtype(
    backend: Backend, function: Callable[..., Any], known: Known, names: Mapping[str, str]
) -> str:
    """Return the first dtype in which a call returns, or the first of all."""
    dtypes = dtypes_of(backend, known)
    pairs = product(dtypes, known.depths or DEPTHS)
    taken = (
        dtype for dtype, depth in pairs if Probe(backend, function, known, names, depth, dtype).is_taken()
    )
    return next(taken, dtypes[0])
