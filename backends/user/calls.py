"""Calls of one function of attention with small arrays, compared with the reference."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from itertools import compress
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.backend import Backend
from attnspec.backends.errors import BackendError
from attnspec.backends.user.adapter import adapt
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.description import Known, dtypes_to_try
from attnspec.backends.user.rotation import rotation_by_base
from attnspec.backends.user.signature import required_parameters
from attnspec.backends.user.trials import Inputs, Trial, guess_arguments
from attnspec.operations.aliases import JOINED, MODULES, PAST, SIZES, SLOPES
from attnspec.reference import attention

_OPERATION = OPERATIONS["attention"]
#: Batch entries, heads, queries and keys: all different, and none is a depth.
B, H, L, S = 2, 3, 5, 7
#: The numbers of heads to try where no call with those returns: a power of two, and both of a pair.
OTHER_HEADS = (4, 2)
#: Queries and keys of calls: those, as many of both, and numbers that fill a tile.
LENGTHS = ((L, S), (S, S), (64, 128), (128, 128))
#: The sizes of attention that functions need as arguments.
_HEADS = ("query_heads", "key_heads")


def closes_a_side(default: Any) -> bool:
    """Whether the default of a window is two sides of which one is a number of keys."""
    return isinstance(default, tuple | list) and any(type(side) is int and side >= 0 for side in default)


class Calls:
    """Calls of one function with arrays of one depth and dtype."""

    def __init__(
        self,
        backend: Backend,
        function: Callable[..., Any],
        known: Known,
        names: Mapping[str, str],
        depth: int,
        dtype: str,
        lengths: tuple[int, int] = (L, S),
        heads: int = H,
    ) -> None:
        self.backend, self.function, self.known, self.depth = backend, function, known, depth
        self.heads = heads
        self.lengths = queries, keys = lengths
        #: The numbers of axes to try; None for any.
        self.axes: tuple[int | None, ...] = (None, 3)
        #: The most telling exception of the calls with the likeliest axes, and whether these are over.
        self.raised: Exception | None = None
        self.frozen = False
        #: Whether the function returned something in the last call, which may be no result.
        self.returned = False
        random = np.random.default_rng(0)
        sizes = {"query": queries, "key": keys, "value": keys}
        self.arrays = {
            name: random.normal(size=(B, heads, size, depth)).astype(dtype) for name, size in sizes.items()
        }
        mask = random.random((B, heads, queries, keys)) < 0.5
        mask[..., 0], mask[..., 1] = True, False  # no row is empty, with either meaning of True
        self.inputs = Inputs(mask, random.normal(size=mask.shape).astype(dtype))
        #: The scale of the call without options, and the options that the function always applies.
        self.plain = depth**-0.5
        self.base: dict[str, Any] = {}
        #: The reason for each conclusion.
        self.why: dict[str, str] = {}
        #: The variants that the calls so far show.
        self.variants: dict[str, Any] = {}
        #: Whether positions are aligned at the last key, once a call has shown it.
        self.at_end: bool | None = None
        #: The nearest convention of a call without options, its base, and its distance; None before any.
        self.nearest: tuple[float, Convention, dict[str, Any]] | None = None
        #: Whether no call computes attention, so that what is inferred is only the nearest.
        self.by_distance = False
        #: What is in memory past the end of each array.
        self.beyond = np.nan
        #: What is added to all positions of a function that needs them.
        self.shift = 0
        self.guesses = guess_arguments(function) | {own: (ours,) for own, ours in names.items()}
        for ours, own in known.convention.names.items():
            both = known.convention.names.get("mask") == known.convention.names.get("bias")
            self.guesses[own] = ("mask", "bias") if both and ours in ("mask", "bias") else (ours,)

    def choices_of_names(self) -> Iterator[dict[str, str]]:
        """Yield names of arrays, needed arguments, and flags that are on by default, most likely first."""
        needed, on = required_parameters(self.function), self.on()
        most = max((len(self.guesses[own]) for own in needed), default=1)
        for choice in range(max(most, 1)):
            arrays = _OPERATION.arrays
            found = {own: ours for own, ours in self.guesses.items() if ours and ours[0] in arrays}
            names = {name: own for own, ours in found.items() for name in JOINED.get(own.lower(), ours[:1])}
            for own, guesses in self.guesses.items():
                ours = guesses[min(choice, len(guesses) - 1)] if guesses else ""
                if ours and (own in needed or ours in on) and ours not in names:
                    names[ours] = own
            yield names

    def names(self) -> dict[str, str]:
        """Return the most likely names."""
        return next(self.choices_of_names())

    def sizes(self) -> dict[str, str]:
        """Map the numbers of heads to the parameters without a default that may be one."""
        needed = [own for own in required_parameters(self.function) if not self.guesses[own]]
        named = {ours: next((own for own in needed if own.lower() in SIZES[ours]), "") for ours in _HEADS}
        return {ours: own for ours, own in named.items() if own} | dict(self.known.convention.sizes)

    def past(self) -> tuple[str, ...]:
        """Name the parameters for the keys and the values before the others, if the function has both."""
        parameters = inspect.signature(self.function).parameters
        named = (next((own for own in parameters if own.lower() in words), "") for words in PAST)
        return self.known.convention.past or (pair if all(pair := tuple(named)) else ())

    def choices_of_slopes(self) -> list[tuple[str, tuple[str, ...]]]:
        """Name the parameter for slopes if the function needs it, then one that may have slopes by default.

        Beside each stand the options that are passed in every call: slopes of 0 in place of a bias.
        """
        named = [own for own in inspect.signature(self.function).parameters if own.lower() in SLOPES]
        needed = (own for own in named if own in required_parameters(self.function))
        known = self.known.convention.slopes
        first = known or next(needed, "")
        return [
            (first, ()),
            *((own, ("bias",)) for own in named[:1] if not first and "given" not in self.known.keys),
        ]

    def module(self) -> str:
        """Name the parameter for a module, if the function needs one."""
        needed = (own for own in required_parameters(self.function) if own.lower() in MODULES)
        return self.known.convention.module or next(needed, "")

    def taking_none(self) -> tuple[str, ...]:
        """Name the parameters for options that the function needs, and that have no value by default."""
        needed = (own for own in required_parameters(self.function) if own in self.guesses)
        of_arrays = (own for own in needed if {*self.guesses[own]} & {*_OPERATION.options})
        absent = (own for own in of_arrays if _OPERATION.arguments[self.guesses[own][0]].default is None)
        # Positions that are given express an offset too.
        return tuple(own for own in absent if not self.guesses[own][0].endswith("_positions"))

    def on(self) -> tuple[str, ...]:
        """Name the flags that are on by default, and a window and a softcap that are numbers."""
        parameters = inspect.signature(self.function).parameters
        defaults = {ours[0]: parameters[own].default for own, ours in self.guesses.items() if ours}
        flags = [x for x, own in defaults.items() if own is True and _OPERATION.arguments[x].default is False]
        window = defaults.get("window")
        capped = isinstance(softcap := defaults.get("softcap"), int | float) and softcap > 0
        closed = closes_a_side(window) or (type(window) is int and window > 0)
        numbers = {"window": closed, "softcap": capped}
        return (*flags, *compress(numbers, numbers.values()))

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

    def try_guesses(
        self, named: Convention, tried: Iterable[Trial], beside: dict[str, Any]
    ) -> list[tuple[bool, float, Trial]]:
        """Return guesses that can be passed, whether all calls are right, and how far the first is off."""
        arrays, taken = self.drop_batch(named, self.arrays), []
        for trial in tried:
            calls = [(given | beside, meaning | beside) for given, meaning in trial.calls]
            got = self.run(trial.convention, arrays, self.drop_batch(named, calls[0][0]))
            if got is not None:
                right = all(self.confirms(trial.convention, arrays, *call) for call in calls)
                off = self.distance(got, arrays, self.drop_batch(named, calls[0][1]))
                # Parts of other shapes are no such output.
                taken += [(right, off, trial)] if off < np.inf or trial.meaning else []
        return taken

    def drop_batch(self, convention: Convention, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Drop the batch axis if the function takes three axes; sinks have none."""
        gone = convention.axes == 3
        return {
            name: x[0] if gone and isinstance(x, np.ndarray) and name != "sinks" else x
            for name, x in arguments.items()
        }

    def later_positions(self, convention: Convention, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return positions that are all later, which changes no distance."""
        names = {"query_positions": "query", "key_positions": "key"}
        if not self.shift or not names.keys() <= convention.names.keys():
            return {}
        return {
            name: np.broadcast_to(np.arange(x.shape[-2]) + self.shift, (*x.shape[:-3], x.shape[-2])).copy()
            for name, x in ((name, arrays[array]) for name, array in names.items())
        }

    def run(
        self,
        convention: Convention,
        arrays: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
        *,
        raw: bool = False,
    ) -> dict[str, Any] | None:
        """Make one call; None if it raises or, unless the results are raw, returns another number of them."""

        def to(array: Any) -> Any:
            return with_more(self.backend.to_library(array), self.beyond)

        asked = [*convention.returned_always]
        options = {**convention.always, **self.later_positions(convention, arrays), **(options or {})}
        fitting = self.backend.array_library.fit_integers({**arrays, **options})
        given = {key: to(fitting[key]) if isinstance(x, np.ndarray) else x for key, x in options.items()}
        asked += [key for key in given if key.startswith("return_")]
        names = ["output", *(key.removeprefix("return_") for key in asked)]
        self.returned = False

        @wraps(self.function)
        def own(*arrays: Any, **options: Any) -> Any:
            got = self.function(*arrays, **options)
            self.returned = True
            return got

        try:
            function = adapt(self.backend.name, own, convention, self.backend.xp)
            placed = [to(fitting[name]) for name in arrays]
            with self.backend.array_library.at_call((*placed, *given.values())):
                got = function(*placed, **{**given, **dict.fromkeys(asked, True)})
            if raw:
                return {"results": got}
            parts = [got] if len(names) == 1 else list(got)
            return {name: self.backend.to_numpy(x) for name, x in zip(names, parts, strict=True)}
        except Exception as error:  # noqa: BLE001 - any exception means that the guess is wrong
            # A function that declines a call says less than one that fails at it.
            if self.raised is None or (isinstance(self.raised, NotImplementedError) and not self.frozen):
                self.raised = error
            return None

    def agrees(
        self,
        got: Mapping[str, Any],
        arrays: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
        *,
        tolerance: float = 0.02,
    ) -> bool:
        """Whether results are close to those of the reference with the given options."""
        if got["output"].shape != (*arrays["query"].shape[:-1], arrays["value"].shape[-1]):
            return False
        expected = self.expected(arrays, options)
        return all(
            x.shape == expected[name].shape
            and np.allclose(x.astype(np.float64), expected[name], tolerance, tolerance)
            for name, x in got.items()
        )

    def distance(
        self, got: Mapping[str, Any], arrays: Mapping[str, Any], options: Mapping[str, Any] | None = None
    ) -> float:
        """Return the mean error of an output, with at most 1 for each element; infinity for wrong shapes."""
        expected = self.expected(arrays, options)
        if any(x.shape != expected[name].shape for name, x in got.items()):
            return np.inf
        errors = np.abs(got["output"].astype(np.float64) - expected["output"])
        return float(np.mean(np.minimum(np.nan_to_num(errors, nan=1), 1)))

    def expected(self, arrays: Mapping[str, Any], options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the results of the reference with the given options."""
        options = {"scale": self.plain, **self.base, **(options or {})}
        if "query_positions" in options:
            options.pop("query_offset", None)
        wide = [x.astype(np.float64) for x in arrays.values()]
        output, lse, weights = attention(*wide, **options, return_lse=True, return_weights=True)
        return {"output": output, "lse": lse, "weights": weights}

    def error_of_no_call(self, depths: tuple[int, ...], *, taken: bool) -> BackendError:
        """Make an error that lists what was tried, the error of the function, and what to write."""
        if isinstance(self.raised, BackendError):  # its signature is wrong, for any depth
            return self.raised
        shown = "; no call returned attention"
        if not taken and self.raised is not None:
            message = str(self.raised).strip() or "no message"
            shown = (
                f"; a call with as many heads as queries and keys, which fits every layout, "
                f"raised {type(self.raised).__name__}: {message}"
            )
        tried = ", ".join(f"{ours} = {own}" for ours, own in self.names().items())
        parameters = inspect.signature(self.function).parameters
        table = next((own for own in parameters if re.search("relative|bucket", own.lower())), "")
        if table:
            shown += f"; if {table} has a bias for each bucket of distances, as in T5, judge a wrapper that "
            shown += "passes a table (spec/recipes.md, Relative biases of T5)"
        tree = next((own for own in parameters if "tree" in own.lower().split("_")), "")
        if tree:
            shown += (
                f"; if {tree} has the ancestors of drafted tokens, judge a wrapper that makes it, and the "
            )
            shown += "length before them, of a mask (spec/recipes.md, Trees of drafted tokens)"
        shown += rotation_by_base(self.function, self.arrays, lambda _: False)
        dtypes = ", ".join(dtypes_to_try(self.backend.dtypes, self.backend.array_library.dtypes))
        return BackendError(
            f"backend {self.backend.name}: expected some call to compute attention, got none: "
            f"tried {tried}, heads before and after positions, three and four axes, "
            f"depths {', '.join(map(str, depths))}, dtypes {dtypes}, with and without causality, "
            f"arrays of {self.backend.library}{shown}; if it takes other arrays, name their library, "
            'such as array = "torch"; if it takes one query without an axis of positions, judge a function '
            "that calls it for each query; if the heads of its query are in two axes, or its arrays have "
            "other axes, judge a wrapper with these arguments (spec/calls.md); if it takes only some calls, "
            "write what you know under [backend] in attnspec.toml, as in axes = 4, depths = [20] or "
            'dtypes = ["float16"], and run this again'
        )


def with_more(array: Any, beyond: float) -> Any:
    """Store an array of NumPy in memory that goes on with a number, which shows whether more is read."""
    if not isinstance(array, np.ndarray) or "float" not in str(array.dtype):
        return array
    memory = np.full(4 * array.size + 64, beyond, array.dtype)
    memory[: array.size] = array.ravel()
    return memory[: array.size].reshape(array.shape)
