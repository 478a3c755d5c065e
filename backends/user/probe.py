"""Infer the conventions of a function by calling it on one small problem.

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
from attnspec.backends.user.adapted import adapted
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.trials import Problem, guessed, trials
from attnspec.reference import attention

_OPERATION = OPERATIONS["attention"]
#: Batch entries, heads, queries and keys: all different, and none is a depth.
_B, _H, _L, _S = 2, 3, 5, 7
#: The depths to try: the others only if the first fails.
_DEPTHS = (4, 8, 16, 32, 64, 96, 128, 256)
_RETURNS = ((), ("output", "lse"), ("output", "weights"), ("output", "lse", "weights"))
_LAYOUTS: tuple[Literal["BHSD", "BSHD"], ...] = ("BHSD", "BSHD")
_POWERS = {"1 / sqrt(D)": -0.5, "1": 0.0, "1 / D": -1.0, "sqrt(D)": 0.5}


@dataclass(frozen=True)
class Findings:
    """The inferred description of a function.

    Attributes
    ----------
    convention : Convention
    dialect : mapping of str to str
        Variants that it shows, by rule.
    ignore : tuple of str
        Parameters without a canonical argument, or whose behaviour does not match their name.
    why : mapping of str to str
        The reason for each key of the configuration.
    depths : tuple of int
        The tried depths that it takes; empty if it takes the first.
    """

    convention: Convention
    dialect: Mapping[str, str] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    why: Mapping[str, str] = field(default_factory=dict)
    depths: tuple[int, ...] = ()


def probe(backend: Backend, function: Callable[..., Any]) -> Findings:
    """Infer how a function is called.

    Examples
    --------
    >>> import numpy as np
    >>> from attnspec import reference
    >>> from attnspec.backends import load
    >>> from attnspec.backends.user.probe import probe
    >>> def kernel(q, k, v, causal=False):
    ...     return reference.attention(q, k, v, is_causal=causal, dtype=q.dtype)
    >>> probe(load("numpy-portable"), kernel).convention.names["is_causal"]
    'causal'
    """
    plainest = _Probe(backend, function, _DEPTHS[0])
    convention = plainest.called()
    if convention is not None:
        return plainest.findings(convention)
    probes = {depth: _Probe(backend, function, depth) for depth in _DEPTHS[1:]}
    called = {depth: one.called() for depth, one in probes.items()}
    found = {depth: convention for depth, convention in called.items() if convention is not None}
    if not found:
        raise _not_found(plainest, probes)
    first = min(found)
    findings = probes[first].findings(found[first])
    others = ", ".join(str(depth) for depth in _DEPTHS if depth not in found)
    why = {**findings.why, "depths": f"with depths {others} it raised an error or did not compute attention"}
    return replace(findings, depths=tuple(found), why=why)


def _not_found(plainest: "_Probe", others: Mapping[int, "_Probe"]) -> BackendError:
    """Make an error that lists what was tried, the error of the function, and what to write."""
    if isinstance(plainest.raised, BackendError):  # its signature is wrong, for any depth
        return plainest.raised
    said = ""
    if plainest.raised is not None:
        message = str(plainest.raised).strip() or "no message"
        said = f"; the call without options raised {type(plainest.raised).__name__}: {message}"
    returned = [str(depth) for depth, one in {plainest.depth: plainest, **others}.items() if one.returned]
    if returned:
        said += f"; with depth {', '.join(returned)} it returned something other than attention"
    tried = ", ".join(f"{ours} = {own}" for ours, own in plainest.names().items())
    depths = ", ".join(map(str, _DEPTHS))
    return BackendError(
        f"backend {plainest.backend.name}: expected some call to compute attention, got none: "
        f"tried {tried}, heads before and after positions, three and four axes, depths {depths}, "
        f"arrays of {plainest.backend.library}{said}; if it takes other arrays, name their library, "
        'such as array = "torch"; if it takes only some shapes, add them to [backend] in attnspec.toml, '
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
        self.problem = Problem(mask, random.normal(size=mask.shape).astype(dtype))
        self.why: dict[str, str] = {}
        #: The variants that the call without options shows, and its scale.
        self.variants: dict[str, str] = {}
        self.plain = depth**-0.5
        self.guesses = guessed(function)

    def findings(self, called: Convention) -> Findings:
        """Test one parameter after the other, starting from the convention of the call without options."""
        convention = self.with_axes(called)
        dialect = dict(self.variants)
        ignored = []
        for own, ours in self.guesses.items():
            if ours and ours[0] in _OPERATION.arrays:
                continue
            found = next(self.meaning(convention, own, ours), None)
            if found is not None:
                convention, variants = found
                dialect |= variants
                if ours[:2] == ("mask", "bias") and "mask" in convention.names:  # one parameter for both
                    convention = next(
                        (both for both, _ in self.meaning(convention, own, ("bias",))), convention
                    )
            elif own not in _OPERATION.arguments:  # a canonical name is tested by the suite in any case
                ignored.append(own)
        if ignored:
            self.why["ignore"] = "no canonical argument, or it does not do what its name says"
        names = {ours: own for ours, own in convention.names.items() if ours != own}
        return Findings(replace(convention, names=names), dialect, tuple(ignored), self.why)

    def names(self) -> dict[str, str]:
        """Map the arrays and the other arguments without a default to the function's names."""
        names = {ours[0]: own for own, ours in self.guesses.items() if ours and ours[0] in _OPERATION.arrays}
        needed = _required(self.function)
        for own, ours in self.guesses.items():
            if own in needed and ours and ours[0] not in names:
                names[ours[0]] = own
        return names

    def called(self) -> Convention | None:
        """Infer layout, results and default scale from a call without options; None if none fits."""
        for layout, returns, axes in product(_LAYOUTS, _RETURNS, (None, 3)):
            convention = Convention(self.names(), layout, axes=axes, returns=returns)
            arrays = self.cut(convention, self.arrays)
            got = self.run(convention, arrays)
            for words, power in _POWERS.items():
                self.plain = self.depth**power
                if got is not None and self.agrees(got, arrays):
                    return self.told(convention, words)
        return None

    def told(self, convention: Convention, scale: str) -> Convention:
        """Record the reasons that the call without options has given."""
        place = "before" if convention.layout == "BHSD" else "after"
        self.why["layout"] = f"the results are correct with heads {place} positions"
        if convention.returns:
            self.why["returns"] = f"it returned {len(convention.returns)} arrays"
        if scale == "1":
            self.why["SCORE-2"] = "its default scale is 1, not 1 / sqrt(D)"
            self.variants["SCORE-2"] = "one"
        elif scale != "1 / sqrt(D)" and any("scale" in ours for ours in self.guesses.values()):
            self.why["given"] = f"its default scale is {scale}, not 1 / sqrt(D)"
            self.plain = self.depth**-0.5
            return replace(convention, given=("scale",), names={**convention.names, **self.name_of_scale()})
        return convention

    def name_of_scale(self) -> dict[str, str]:
        """Return the name of the scale parameter."""
        return {"scale": next(own for own, ours in self.guesses.items() if "scale" in ours)}

    def with_axes(self, convention: Convention) -> Convention:
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

    def meaning(
        self, convention: Convention, own: str, guesses: tuple[str, ...]
    ) -> Iterator[tuple[Convention, dict[str, str]]]:
        """Yield the conventions that confirm a guess for a parameter, with the variants that it shows."""
        for ours in guesses:
            if ours in convention.names and convention.names[ours] != own:
                continue
            named = replace(convention, names={**convention.names, ours: own})
            arrays = self.cut(named, self.arrays)
            for trial in trials(named, ours, self.problem):
                got = self.run(trial.convention, arrays, self.cut(named, trial.given))
                if got is None or not self.agrees(got, arrays, self.cut(named, trial.meant)):
                    continue
                if trial.why:
                    self.why |= dict.fromkeys((ours, *trial.variants), trial.why)
                yield trial.convention, trial.variants

    def cut(self, convention: Convention, things: Mapping[str, Any]) -> dict[str, Any]:
        """Drop the batch axis if the function takes three axes; sinks have none."""
        gone = convention.axes == 3
        return {
            name: x[0] if gone and isinstance(x, np.ndarray) and name != "sinks" else x
            for name, x in things.items()
        }

    def run(
        self, convention: Convention, arrays: Mapping[str, Any], options: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Make one call; None if it raises or returns the wrong number of results."""
        to = self.backend.to_library
        asked = [f"return_{name}" for name in convention.returns[1:]]
        given = {key: to(x) if isinstance(x, np.ndarray) else x for key, x in (options or {}).items()}
        asked += [key for key in given if key.startswith("return_")]
        names = ["output", *(key.removeprefix("return_") for key in asked)]
        try:
            function = adapted(self.backend.name, self.function, convention, self.backend.xp)
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


def _required(function: Callable[..., Any]) -> set[str]:
    return {one.name for one in inspect.signature(function).parameters.values() if one.default is one.empty}
