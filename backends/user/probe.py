"""Infers the convention of a function of attention by calling it on small inputs.

Each guess is a `Convention`. It is accepted if the results are close to those of the reference. The
tolerance is large, because the suite tests accuracy.
"""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.user.calls import B, Calls, closes_a_side
from attnspec.backends.user.confirm import CONFIRMATIONS, confirm_past, note_one_offset, note_precision
from attnspec.backends.user.convention import LAYOUTS, OF_FOUR_AXES, OTHER, Convention
from attnspec.backends.user.defaults import ATTRIBUTES
from attnspec.backends.user.description import PLACES, Inference
from attnspec.backends.user.empty_rows import note_empty_rows
from attnspec.backends.user.flags import infer_flags
from attnspec.backends.user.gradients import note_gradients
from attnspec.backends.user.limits import infer_axes, infer_limits, infer_shared_heads, note_empty_axes
from attnspec.backends.user.overflow import deviations_of_overflow
from attnspec.backends.user.rotation import rotation_by_base
from attnspec.backends.user.signature import required_parameters
from attnspec.backends.user.trials import (
    PARTNERS,
    UNCONFIRMED,
    WIDE,
    Guess,
    is_clear,
    nearest_layout,
    note_ignored,
    number_of_open_sides,
    trials,
    turn_of,
)
from attnspec.operations.aliases import SLOPES

_OPERATION = OPERATIONS["attention"]
#: The depths to try: the others only if the first fails.
DEPTHS = (4, 8, 16, 32, 64, 96, 128, 256)
FEW_DEPTHS = (16, 64)
RETURNS = (
    (),
    ("output", "lse"),
    ("output", "weights"),
    ("output", "lse", "weights"),
    ("output", "lse", OTHER),
    ("output", OTHER),
    ("output", OTHER, OTHER),
)
_POWERS = {"1 / sqrt(D)": -0.5, "1": 0.0, "1 / D": -1.0, "sqrt(D)": 0.5}
#: Arguments that may have a number for each batch entry.
_COUNTS = (("query_lengths",), ("key_lengths",), ("query_offset",))


class Probe(Calls):
    """Calls of one function, and what they have shown so far."""

    def is_taken(self) -> bool:
        """Whether it takes arrays of as many heads as queries and keys, which fit every layout."""
        random = np.random.default_rng(2)
        arrays = {
            x: random.normal(size=(B, 4, 4, self.depth)).astype(y.dtype) for x, y in self.arrays.items()
        }
        layouts = tuple(layout for layout in LAYOUTS if layout != "BSHD")  # its arrays are those of BHSD
        for axes in self.known.choices("axes", (None, 3)):
            for convention in self.plainest_conventions(layouts, ((),), (axes,)):
                taken = self.run(convention, self.drop_batch(convention, arrays), raw=True) is not None
                if taken or self.returned:  # it may return more results than one
                    return True
            self.frozen = True
        return False

    def takes(self, convention: Convention) -> bool:
        """Whether a call without options returns something."""
        return self.run(convention, self.drop_batch(convention, self.arrays)) is not None

    def plainest_conventions(
        self, layouts: tuple[Any, ...], returns: tuple[Any, ...], axes: tuple[Any, ...]
    ) -> Iterator[Convention]:
        """Yield conventions of calls without options, most likely first."""
        always = ({},) if "is_causal" not in self.on_or_needed() else ({}, {"is_causal": True})
        always = self.known.choices("always", always)
        windows = self.windows_to_try()
        absent = self.known.choices("takes_none", tuple(dict.fromkeys((self.taking_none(), ()))))
        counts = [own for own in required_parameters(self.function) if self.guesses[own][:1] in _COUNTS]
        entries = self.known.choices("per_entry", (False, True) if counts else (False,))
        longest = self.known.choices("integers", ("", "int32") if counts else ("",))
        every = self.choices_of_slopes(), self.choices_of_names(), always, windows, absent, entries, longest
        for sloped, names, each, window, none, entry, integers, *shape in product(
            *every, layouts, returns, axes
        ):
            (slopes, given), (layout, returned, number) = sloped, shape
            if layout in OF_FOUR_AXES and number not in (None, 4):
                continue
            yield replace(
                self.known.convention,
                names={**names, **self.known.convention.names},
                layout=layout,
                window=window[0],
                open_side=window[1],
                axes=number,
                returns=returned,
                sizes=self.sizes(),
                past=self.past(),
                slopes=slopes,
                module=self.module(),
                takes_none=none,
                given=tuple(
                    dict.fromkeys(
                        (*self.known.convention.given, *(x for x in self.on() if x not in each), *given)
                    )
                ),
                always=each,
                per_entry=entry,
                integers=integers,
            )

    def windows_to_try(self) -> tuple[tuple[Any, int | None], ...]:
        """Return what a window may be in calls without options, and the number that opens a side.

        One that the function needs may be one number. One with a side by default is passed in each call.
        """
        parameters, own = inspect.signature(self.function).parameters, self.known.convention
        defaults = (parameters[name].default for name, ours in self.guesses.items() if ours == ("window",))
        if not {"window", "open_side"} & self.known.keys:
            if any(map(closes_a_side, defaults)):
                return ("sides", -1), ("sides", None)
            if "window" in self.names():
                return ("sides", None), ("keys", None)
        return ((own.window, own.open_side),)

    def infer(self, called: Convention) -> Inference:
        """Test one parameter after the other, starting from the convention of the call without options."""
        convention = infer_axes(self, confirm_past(self, called), self.why)
        convention = infer_shared_heads(self, convention, self.why)
        limits = infer_limits(self, convention, self.why)
        convention = self.with_attributes(convention)
        ignored = []
        biased = ("bias",) in self.guesses.values()
        for own, ours in sorted(self.guesses.items(), key=lambda pair: turn_of(pair[1], biased=biased)):
            if ours and ours[0] in _OPERATION.arrays:
                continue
            confirmed = next(self.meanings(convention, own, ours), None)
            confirmed = confirmed or self.unconfirmed(convention, own, ours)
            if confirmed is not None:
                convention = confirmed
                if ours[:2] == ("mask", "bias") and "mask" in convention.names:  # one parameter for both
                    convention = next(self.meanings(convention, own, ("bias",), beside=True), convention)
            elif own in convention.names.values():
                self.why[next(x for x, name in convention.names.items() if name == own)] = UNCONFIRMED
            elif own.lower() in SLOPES:
                convention = replace(convention, slopes=own)
            # The suite tests a canonical name in any case.
            elif own in convention.names or own not in (*_OPERATION.arguments, *convention.others):
                ignored.append(own)
        convention, flags = infer_flags(self, convention, ignored, self.meanings)
        ignored = [own for own in ignored if own not in convention.names.values()]
        ignored += [
            parameter.name
            for parameter in inspect.signature(self.function).parameters.values()
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        for confirm in CONFIRMATIONS:
            convention = confirm(self, convention)
        ignored = [own for own in ignored if own not in convention.names.values()]
        # Slopes beside a bias cannot be passed.
        ignored += {own for own in self.guesses if own.lower() in SLOPES} - {*convention.slopes.split()}
        limits = note_one_offset(self, convention, note_precision(self, convention, limits))
        limits = note_empty_axes(self, convention, limits)
        limits = note_empty_rows(self, convention, limits, limits.get("dtypes", self.backend.dtypes))
        note_gradients(self, convention)
        self.why = note_ignored(self.why, self.function, ignored, flags)
        shared = [own for own in convention.names.values() if [*convention.names.values()].count(own) > 1]
        kept = {*convention.flags, *(ours for ours, own in convention.names.items() if own in shared)}
        names = {ours: own for ours, own in convention.names.items() if ours != own or ours in kept}
        convention = replace(convention, names=names)
        deviations = deviations_of_overflow(self, convention)
        return Inference(
            convention, self.variants, tuple(ignored), self.why, limits=limits, deviations=deviations
        )

    def with_attributes(self, convention: Convention) -> Convention:
        """Find out which arguments the function reads from a module."""
        guessed = {ours for every in self.guesses.values() for ours in every}
        for ours in (x for x in ATTRIBUTES if convention.module and x not in guessed):
            own = f"{convention.module}.{ATTRIBUTES[ours]}"
            convention = next(self.meanings(convention, own, (ours,)), convention)
        return convention

    def call_without_options(self) -> Convention | None:
        """Infer layout, results, causality and scale from a call without options; None if none fits."""
        layouts, returns = self.known.choices("layout", LAYOUTS), self.known.choices("returns", RETURNS)
        axes = self.known.choices("axes", self.axes)
        shifts = (0, 1) if "query_positions" in self.names() else (0,)  # 0 may be treated wrongly
        raising: list[tuple[int, Convention]] = []
        for shift, tried in product(shifts, [*self.plainest_conventions(layouts, returns, axes)]):
            self.shift = shift
            arrays, call = self.drop_batch(tried, self.arrays), (shift, replace(tried, returns=()))
            if call in raising:  # whatever it would return
                continue
            if (results := self.run(tried, arrays)) is None:
                raising += [] if self.returned else [call]
                continue
            convention, got = self.with_its_output(tried, arrays, results)
            for base in self.bases(convention):
                self.base, self.plain = base, self.depth**-0.5
                distance = self.distance(got, arrays)
                if distance < (0.9 * self.nearest[0] if self.nearest else np.inf):
                    self.nearest = (distance, convention, base)
                for words, power in _POWERS.items():
                    self.plain = self.depth**power
                    if self.agrees(got, arrays):
                        return self.note_reasons(self.note_causality(convention), words)
                self.plain = (self.heads * self.depth) ** -0.5  # a mistake, which the suite is to find
                if self.agrees(got, arrays):
                    return self.note_reasons(self.note_causality(convention), "1 / sqrt(D)")
        return None

    def with_its_output(
        self, convention: Convention, arrays: Mapping[str, Any], got: dict[str, Any]
    ) -> tuple[Convention, dict[str, Any]]:
        """Return the layout in which an output has the right shape, and its results."""
        right = (*arrays["query"].shape[:-1], arrays["value"].shape[-1])
        others = () if "output_layout" in self.known.keys or got["output"].shape == right else LAYOUTS
        for other in (replace(convention, output_layout=layout) for layout in others):
            again = self.run(other, arrays)
            if again is not None and again["output"].shape == right:
                return other, again
        return convention, got

    def take_nearest(self, distance: float, convention: Convention, base: dict[str, Any]) -> Convention:
        """Take the convention whose results are nearest to attention, if no call computes it."""
        self.by_distance, self.base, self.plain, self.shift = True, base, self.depth**-0.5, 0
        noted = self.note_reasons(self.note_causality(convention), "1 / sqrt(D)")
        arrays = self.drop_batch(convention, self.arrays)
        got = self.run(convention, arrays)
        rotates = rotation_by_base(self.function, arrays, lambda x: got is not None and self.agrees(got, x))
        self.why["layout"] = Guess(nearest_layout("attention", distance) + rotates)
        return noted

    def bases(self, convention: Convention) -> list[dict[str, Any]]:
        """Return what a call without options may compute: attention, or causal attention of either alignment.

        A function that can be told not to be causal has to be told.
        """
        queries, keys = self.lengths
        causal: list[dict[str, Any]] = [{"is_causal": True}]
        causal += [{"is_causal": True, "query_offset": keys - queries}] if keys != queries else []
        if convention.always:
            return causal
        named = any("is_causal" in ours for ours in self.guesses.values())
        return [{}] if named or "always" in self.known.keys else [{}, *causal]

    def note_causality(self, convention: Convention) -> Convention:
        """Record that causality is always applied, and its alignment."""
        if not self.base:
            return convention
        self.at_end = "query_offset" in self.base
        side = "bottom right" if self.at_end else "top left"
        self.why["always"] = f"a call without options is causal, aligned at the {side}"
        if self.at_end:
            self.variants["MASK-3"] = "bottom-right"
            self.why["MASK-3"] = "its causal mask is aligned at the bottom right"
        return replace(convention, always={"is_causal": True})

    def shows(self, convention: Convention, names: Mapping[str, str]) -> bool:
        """Whether calls show that parameters are what they are taken for."""
        return all(
            next(self.meanings(convention, own, (ours,)), None) is not None for own, ours in names.items()
        )

    def on_or_needed(self) -> tuple[str, ...]:
        """Name the flags that are on by default, and the options that it needs."""
        return (*self.on(), *self.names())

    def note_reasons(self, convention: Convention, scale: str) -> Convention:
        """Record the reasons that the call without options has given."""
        self.why["layout"] = f"the results are correct with {PLACES[convention.layout]}"
        if convention.output_layout:
            self.why["output_layout"] = f"the output has {PLACES[convention.output_layout]}"
        elif convention.module and convention.layout == "BHSD":
            self.why["layout"] += ", of the output too; Transformers expects it with heads after positions"
        if convention.module:
            self.why["module"] = "each call passes a stand-in with sizes and flags"
        if convention.takes_none:
            self.why["takes_none"] = "it takes None in a call without them"
        if convention.given:
            self.why["given"] = "its default is not the specified one"
        if convention.returns:
            self.why["returns"] = f"it returned {len(convention.returns)} arrays"
        if scale == "1":
            self.why["SCORE-2"] = "its default scale is 1, not 1 / sqrt(D)"
            self.variants["SCORE-2"] = "one"
        elif scale != "1 / sqrt(D)" and any("scale" in ours for ours in self.guesses.values()):
            number = f"{self.depth ** _POWERS[scale]:.4g}, or {scale}, where D is {self.depth}"
            self.why["given"] = f"its default scale is {number}, not 1 / sqrt(D)"
            self.plain = self.depth**-0.5
            names = {**convention.names, **self.scale_name()}
            return replace(convention, given=(*convention.given, "scale"), names=names)
        return convention

    def scale_name(self) -> dict[str, str]:
        """Return the name of the scale parameter."""
        return {"scale": next(own for own, ours in self.guesses.items() if "scale" in ours)}

    def meanings(
        self, convention: Convention, own: str, guesses: tuple[str, ...], *, beside: bool = False
    ) -> Iterator[Convention]:
        """Yield the conventions that confirm a guess for a parameter, and record what they show."""
        for ours in guesses:
            if ours in convention.names and convention.names[ours] != own:
                continue
            others = {name: used for name, used in convention.names.items() if beside or used != own}
            named = replace(convention, names={**others, ours: own, **self.partner(ours)})
            arrays = self.drop_batch(named, self.arrays)
            for trial in trials(named, ours, self.inputs, number_of_open_sides(self.function, own)):
                at_end = "MASK-3" in trial.variants if ours in ("is_causal", "window") else self.at_end
                if self.at_end not in (None, at_end):
                    continue  # one variant is about both
                none, sides = replace(trial.convention, open_side=None), {"window": (None, 1)}
                if trial.convention.open_side == WIDE and self.run(none, arrays, sides) is not None:
                    continue  # it takes None, which is for the suite to judge
                if not all(self.confirms(trial.convention, arrays, *call) for call in trial.calls):
                    continue
                self.at_end, self.variants = at_end, self.variants | trial.variants
                if trial.why:
                    self.why = dict.fromkeys((ours, *trial.variants), trial.why) | self.why
                yield trial.convention

    def partner(self, ours: str) -> dict[str, str]:
        """Map the argument that one needs to the function's name of it."""
        other = PARTNERS.get(ours)
        return {str(other): own for own, guesses in self.guesses.items() if other in guesses}

    def unconfirmed(self, convention: Convention, own: str, ours: tuple[str, ...]) -> Convention | None:
        """Take a parameter by its name if it can be passed, although its results are not the specified ones.

        A parameter that is left out would hide what is wrong with it. One that is right with the other
        alignment is no mistake: a dialect has one alignment.
        """
        if not ours or not (self.by_distance or is_clear(ours[0], own)):
            return None
        others = (other for other, theirs in self.guesses.items() if other != own and ours[0] in theirs)
        if any(next(self.meanings(convention, other, ours[:1]), None) for other in others):
            return None
        named = replace(convention, names={**convention.names, ours[0]: own, **self.partner(ours[0])})
        # A default of -1 on both sides says that -1 opens a side.
        number = number_of_open_sides(self.function, own)
        tried = [*trials(named, ours[0], self.inputs, number)]
        taken = self.try_guesses(named, tried, {})
        if not taken and ours[0] == "window" and "is_causal" in named.names:  # it may need causality
            taken = self.try_guesses(named, tried, {"is_causal": True})
        if not taken or any(right for right, *_ in taken):
            return None
        *_, trial = min(taken, key=lambda taken: (taken[2].convention.open_side != number, taken[1]))
        shown = trial.variants if self.at_end is None else {}
        self.why |= dict.fromkeys((ours[0], *shown), UNCONFIRMED)
        self.variants |= shown
        self.at_end = "MASK-3" in self.variants if ours[0] in ("is_causal", "window") else self.at_end
        return trial.convention
