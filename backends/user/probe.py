"""Infers the convention of a function by calling it on one small inputs.

Each guess is a `Convention`. It is accepted if the results are close to those of the reference. The
tolerance is large, because the suite tests accuracy.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend
from attnspec.backends.errors import BackendError
from attnspec.backends.user.adapter import adapt
from attnspec.backends.user.convention import OTHER, PACKED, Convention
from attnspec.backends.user.signature import required_parameters
from attnspec.backends.user.slopes import linear_bias
from attnspec.backends.user.trials import (
    PARTNERS,
    UNCONFIRMED,
    Inputs,
    guess_arguments,
    is_clear,
    reason_to_ignore,
    trials,
)
from attnspec.operations.aliases import SIZES, SLOPES
from attnspec.reference import attention

_OPERATION = OPERATIONS["attention"]
#: Batch entries, heads, queries and keys: all different, and none is a depth.
_B, _H, _L, _S = 2, 3, 5, 7
#: The depths to try: the others only if the first fails.
_DEPTHS = (4, 8, 16, 32, 64, 96, 128, 256)
_RETURNS = (
    (),
    ("output", "lse"),
    ("output", "weights"),
    ("output", "lse", "weights"),
    ("output", "lse", OTHER),
    ("output", OTHER),
    ("output", OTHER, OTHER),
)
_LAYOUTS: tuple[Literal["BHSD", "BSHD", "BS(HD)"], ...] = ("BHSD", "BSHD", "BS(HD)")
#: The sizes of attention that functions need as arguments.
_HEADS = ("query_heads", "key_heads")
_POWERS = {"1 / sqrt(D)": -0.5, "1": 0.0, "1 / D": -1.0, "sqrt(D)": 0.5}


@dataclass(frozen=True)
class Inference:
    """The inferred description of a function."""

    convention: Convention
    #: Variants that it shows, by rule.
    dialect: Mapping[str, str] = field(default_factory=dict)
    #: Parameters without a canonical argument, or whose behaviour does not match their name.
    ignore: tuple[str, ...] = ()
    #: The reason for each key of the configuration.
    why: Mapping[str, str] = field(default_factory=dict)
    #: The tried depths that it takes; empty if it takes the first.
    depths: tuple[int, ...] = ()
    #: Other keys about what it takes: ``heads``, ``value_depth``, ``dtypes``.
    limits: Mapping[str, Any] = field(default_factory=dict)


def probe(backend: Backend, function: Callable[..., Any]) -> Inference:
    """Infer how a function is called."""
    plainest = _Probe(backend, function, _DEPTHS[0])
    convention = plainest.call_without_options()
    if convention is not None:
        return plainest.infer(convention)
    probes = {depth: _Probe(backend, function, depth) for depth in _DEPTHS[1:]}
    called = {depth: deeper.call_without_options() for depth, deeper in probes.items()}
    conventions = {depth: convention for depth, convention in called.items() if convention is not None}
    if not conventions:
        raise _no_call_error(plainest, probes)
    first = min(conventions)
    inference = probes[first].infer(conventions[first])
    others = ", ".join(str(depth) for depth in _DEPTHS if depth not in conventions)
    why = {**inference.why, "depths": f"with depths {others} it raised an error or did not compute attention"}
    return replace(inference, depths=tuple(conventions), why=why)


def _no_call_error(plainest: "_Probe", others: Mapping[int, "_Probe"]) -> BackendError:
    """Make an error that lists what was tried, the error of the function, and what to write."""
    if isinstance(plainest.raised, BackendError):  # its signature is wrong, for any depth
        return plainest.raised
    shown = ""
    if plainest.raised is not None:
        message = str(plainest.raised).strip() or "no message"
        shown = f"; the call without options raised {type(plainest.raised).__name__}: {message}"
    returned = [str(depth) for depth, probe in {plainest.depth: plainest, **others}.items() if probe.returned]
    if returned:
        shown += f"; with depth {', '.join(returned)} it returned something other than attention"
    tried = ", ".join(f"{ours} = {own}" for ours, own in plainest.names().items())
    depths = ", ".join(map(str, _DEPTHS))
    return BackendError(
        f"backend {plainest.backend.name}: expected some call to compute attention, got none: "
        f"tried {tried}, heads before and after positions, three and four axes, depths {depths}, "
        f"arrays of {plainest.backend.library}{shown}; if it takes other arrays, name their library, "
        'such as array = "torch"; if it takes one query without an axis of positions, judge a function that '
        "calls it for each query; if it takes only some shapes, add them to [backend] in attnspec.toml, "
        "as in axes = 4, depths = [64]"
    )


class _Probe:
    """Calls of one function with arrays of one depth, and what they have shown so far."""

    def __init__(self, backend: Backend, function: Callable[..., Any], depth: int) -> None:
        self.backend, self.function, self.depth = backend, function, depth
        #: The first exception, and whether any call has returned.
        self.raised: Exception | None = None
        self.returned = False
        random = np.random.default_rng(0)
        dtype = "float32" if "float32" in backend.dtypes else backend.dtypes[0]
        sizes = {"query": _L, "key": _S, "value": _S}
        self.arrays = {
            name: random.normal(size=(_B, _H, size, depth)).astype(dtype) for name, size in sizes.items()
        }
        mask = random.random((_B, _H, _L, _S)) < 0.5
        mask[..., 0], mask[..., 1] = True, False  # no row is empty, with either meaning of True
        self.inputs = Inputs(mask, random.normal(size=mask.shape).astype(dtype))
        self.why: dict[str, str] = {}
        #: The variants that the calls so far show, and the scale of the call without options.
        self.variants: dict[str, str] = {}
        #: Whether positions are aligned at the last key, once a call has shown it.
        self.at_end: bool | None = None
        self.plain = depth**-0.5
        self.guesses = guess_arguments(function)

    def infer(self, called: Convention) -> Inference:
        """Test one parameter after the other, starting from the convention of the call without options."""
        convention = self.infer_axes(called)
        limits = self.infer_limits(convention)
        ignored = []
        for own, ours in self.guesses.items():
            if ours and ours[0] in _OPERATION.arrays:
                continue
            confirmed = next(self.meanings(convention, own, ours), None)
            confirmed = confirmed or self.unconfirmed(convention, own, ours)
            if confirmed is not None:
                convention = confirmed
                if ours[:2] == ("mask", "bias") and "mask" in convention.names:  # one parameter for both
                    convention = next(self.meanings(convention, own, ("bias",), beside=True), convention)
            # The suite tests a canonical name in any case.
            elif own.lower() in SLOPES:
                convention = replace(convention, slopes=own)
            elif own in convention.names or own not in (*_OPERATION.arguments, *convention.sizes.values()):
                ignored.append(own)
        ignored += [
            parameter.name
            for parameter in inspect.signature(self.function).parameters.values()
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        convention = self.confirm_slopes(convention)
        if ignored:
            self.why["ignore"] = reason_to_ignore(ignored)
        shared = [own for own in convention.names.values() if [*convention.names.values()].count(own) > 1]
        names = {ours: own for ours, own in convention.names.items() if ours != own or own in shared}
        convention = replace(convention, names=names)
        return Inference(convention, self.variants, tuple(ignored), self.why, limits=limits)

    def names(self) -> dict[str, str]:
        """Map arrays, needed arguments, and flags that are on by default to the function's names."""
        names = {ours[0]: own for own, ours in self.guesses.items() if ours and ours[0] in _OPERATION.arrays}
        needed, on = required_parameters(self.function), self.on()
        for own, ours in self.guesses.items():
            if ours and (own in needed or ours[0] in on) and ours[0] not in names:
                names[ours[0]] = own
        return names

    def sizes(self) -> dict[str, str]:
        """Map the numbers of heads to the parameters without a default that may be one."""
        needed = [own for own in required_parameters(self.function) if not self.guesses[own]]
        named = {ours: next((own for own in needed if own.lower() in SIZES[ours]), "") for ours in _HEADS}
        return {ours: own for ours, own in named.items() if own}

    def on(self) -> tuple[str, ...]:
        """Name the flags that are on by default."""
        parameters = inspect.signature(self.function).parameters
        return tuple(
            ours[0]
            for own, ours in self.guesses.items()
            if ours and parameters[own].default is True and _OPERATION.arguments[ours[0]].default is False
        )

    def call_without_options(self) -> Convention | None:
        """Infer layout, results and default scale from a call without options; None if none fits."""
        for layout, returns, axes in product(_LAYOUTS, _RETURNS, (None, 3)):
            if layout == PACKED and axes:
                continue
            convention = Convention(
                self.names(), layout, axes=axes, returns=returns, sizes=self.sizes(), given=self.on()
            )
            arrays = self.drop_batch(convention, self.arrays)
            got = self.run(convention, arrays)
            for words, power in _POWERS.items():
                self.plain = self.depth**power
                if got is not None and self.agrees(got, arrays):
                    return self.note_reasons(convention, words)
            self.plain = (_H * self.depth) ** -0.5  # a mistake, which the suite is to find
            if got is not None and self.agrees(got, arrays):
                return self.note_reasons(convention, "1 / sqrt(D)")
        return None

    def note_reasons(self, convention: Convention, scale: str) -> Convention:
        """Record the reasons that the call without options has given."""
        places = {"BHSD": "heads before positions", "BSHD": "heads after positions"}
        place = places.get(convention.layout, "heads and depth in one axis")
        self.why["layout"] = f"the results are correct with {place}"
        if convention.given:
            self.why["given"] = "its default is not the specified one"
        if convention.returns:
            self.why["returns"] = f"it returned {len(convention.returns)} arrays"
        if scale == "1":
            self.why["SCORE-2"] = "its default scale is 1, not 1 / sqrt(D)"
            self.variants["SCORE-2"] = "one"
        elif scale != "1 / sqrt(D)" and any("scale" in ours for ours in self.guesses.values()):
            self.why["given"] = f"its default scale is {scale}, not 1 / sqrt(D)"
            self.plain = self.depth**-0.5
            names = {**convention.names, **self.scale_name()}
            return replace(convention, given=(*convention.given, "scale"), names=names)
        return convention

    def scale_name(self) -> dict[str, str]:
        """Return the name of the scale parameter."""
        return {"scale": next(own for own, ours in self.guesses.items() if "scale" in ours)}

    def infer_axes(self, convention: Convention) -> Convention:
        """Infer the numbers of axes that it takes."""
        if convention.axes == 3:
            self.why["axes"] = "it raised an error with four axes, and not with three"
            return convention
        for fewer in (1, 2):
            arrays = {name: x[(0,) * fewer] for name, x in self.arrays.items()}
            got = self.run(convention, arrays)
            if got is None or not self.agrees(got, arrays):
                self.why["axes"] = f"with {4 - fewer} axes it raised an error or did not compute attention"
                return replace(convention, axes=4)
        return replace(convention, axes=None)

    def infer_limits(self, convention: Convention) -> dict[str, Any]:
        """Infer from calls that raise which heads, depths of values and dtypes it takes."""
        random = np.random.default_rng(1)
        dtype, depth = self.arrays["query"].dtype, self.depth

        def call(heads: int, key_heads: int, value_depth: int, dtype: Any) -> dict[str, Any] | None:
            shapes = ((heads, _L, depth), (key_heads, _S, depth), (key_heads, _S, value_depth))
            arrays = {
                name: random.normal(size=(_B, *shape)).astype(dtype)
                for name, shape in zip(_OPERATION.arrays, shapes, strict=True)
            }
            return self.run(convention, self.drop_batch(convention, arrays))

        limits: dict[str, Any] = {}
        if call(4, 2, depth, dtype) is None:
            limits["heads"] = "equal"
            self.why["heads"] = "it raised an error with two key heads for four query heads"
        if depth == _DEPTHS[0] and call(_H, _H, depth + 2, dtype) is None:
            limits["value_depth"] = "key"
            self.why["value_depth"] = "it raised an error with values of another depth"
        taken = [name for name in self.backend.dtypes if call(_H, _H, depth, np.dtype(name)) is not None]
        if taken and len(taken) < len(self.backend.dtypes):
            limits["dtypes"] = taken
            self.why["dtypes"] = "it raised an error in the other dtypes of its library"
        return limits

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
            for trial in trials(named, ours, self.inputs):
                at_end = "MASK-3" in trial.variants if ours in ("is_causal", "window") else self.at_end
                if self.at_end not in (None, at_end):
                    continue  # one variant is about both
                calls = ((trial.options, trial.meaning), *trial.also)
                if not all(self.confirms(trial.convention, arrays, *call) for call in calls):
                    continue
                self.at_end, self.variants = at_end, self.variants | trial.variants
                if trial.why:
                    self.why = dict.fromkeys((ours, *trial.variants), trial.why) | self.why
                yield trial.convention

    def confirm_slopes(self, convention: Convention) -> Convention:
        """Find out from where a function with slopes counts distances."""
        if not convention.slopes or "bias" in convention.names:
            return replace(convention, slopes="")
        arrays = self.drop_batch(convention, self.arrays)
        for end in (False, True) if self.at_end is None else (self.at_end,):
            trial = replace(convention, from_end=end)
            bias = {"bias": linear_bias(arrays, from_end=end)}
            if self.confirms(trial, arrays, bias, bias):
                self.variants |= {"MASK-3": "bottom-right"} if end else {}
                self.why["slopes"] = "distances are counted from the " + ("end" if end else "beginning")
                return trial
        self.why["slopes"] = UNCONFIRMED
        return convention

    def partner(self, ours: str) -> dict[str, str]:
        """Map the argument that one needs to the function's name of it."""
        other = PARTNERS.get(ours)
        return {str(other): own for own, guesses in self.guesses.items() if other in guesses}

    def unconfirmed(self, convention: Convention, own: str, ours: tuple[str, ...]) -> Convention | None:
        """Take a parameter by its name if it can be passed, although its results are not the specified ones.

        A parameter that is left out would hide what is wrong with it. One that is right with the other
        alignment is no mistake: a dialect has one alignment.
        """
        if not ours or not is_clear(ours[0], own):
            return None
        named = replace(convention, names={**convention.names, ours[0]: own})
        arrays = self.drop_batch(named, self.arrays)
        taken = [
            trial
            for trial in trials(named, ours[0], self.inputs)
            if self.run(trial.convention, arrays, self.drop_batch(named, trial.options)) is not None
        ]
        right = any(self.confirms(x.convention, arrays, x.options, x.meaning) for x in taken)
        if not taken or right:
            return None
        self.why[ours[0]] = UNCONFIRMED
        return taken[0].convention

    def confirms(
        self,
        convention: Convention,
        arrays: Mapping[str, Any],
        options: Mapping[str, Any],
        meaning: Mapping[str, Any],
    ) -> bool:
        """Whether a call gives what the reference gives for the options that it stands for."""
        got = self.run(convention, arrays, self.drop_batch(convention, options))
        return got is not None and self.agrees(got, arrays, self.drop_batch(convention, meaning))

    def drop_batch(self, convention: Convention, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Drop the batch axis if the function takes three axes; sinks have none."""
        gone = convention.axes == 3
        return {
            name: x[0] if gone and isinstance(x, np.ndarray) and name != "sinks" else x
            for name, x in arguments.items()
        }

    def run(
        self, convention: Convention, arrays: Mapping[str, Any], options: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Make one call; None if it raises or returns the wrong number of results."""
        to = self.backend.to_library
        asked = [f"return_{name}" for name in convention.returns[1:] if name != OTHER]
        given = {key: to(x) if isinstance(x, np.ndarray) else x for key, x in (options or {}).items()}
        asked += [key for key in given if key.startswith("return_")]
        names = ["output", *(key.removeprefix("return_") for key in asked)]
        try:
            function = adapt(self.backend.name, self.function, convention, self.backend.xp)
            got = function(*map(to, arrays.values()), **{**given, **dict.fromkeys(asked, True)})
            parts = [got] if len(names) == 1 else list(got)
            outputs = {name: self.backend.to_numpy(x) for name, x in zip(names, parts, strict=True)}
        except Exception as error:  # noqa: BLE001 - any exception means that the guess is wrong
            self.raised = self.raised or error
            return None
        self.returned = True
        return outputs

    def agrees(
        self,
        got: Mapping[str, Any],
        arrays: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> bool:
        """Whether results are close to those of the reference with the given options."""
        options = {"scale": self.plain, **(options or {})}
        wide = [x.astype(np.float64) for x in arrays.values()]
        output, lse, weights = attention(*wide, **options, return_lse=True, return_weights=True)
        expected = {"output": output, "lse": lse, "weights": weights}
        return all(
            x.shape == expected[name].shape and np.allclose(x.astype(np.float64), expected[name], 0.02, 0.02)
            for name, x in got.items()
        )
