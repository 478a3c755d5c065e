"""Probes: calls like a failing one, with other numbers of queries and keys, which tell when it fails.

No verdict depends on them, and only what they show is said.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from time import monotonic, process_time
from typing import Any

import numpy as np

from attnspec import OPERATIONS, Case, SpecError
from attnspec.backends import Backend, Broken, Unsupported
from attnspec.backends.attention_of_form import attention_of_form
from attnspec.backends.constraints import fits
from attnspec.backends.stored_rows import PAGE
from attnspec.conformance.judge.budget import align
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import is_real
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.traits import sizes_of
from attnspec.conformance.recorded import axes_of, compare_with_exact, with_heads
from attnspec.conformance.verdict import Difference
from attnspec.reference import allowed_keys, functions
from attnspec.reference.budget.attention import MASKING
from attnspec.sizes import bound

_ARRAYS = OPERATIONS["attention"].arrays
_FORMS = ("attention", "packed_attention", "paged_attention", "packed_paged_attention")
#: Sizes of tiles, those of most kernels first, and sizes that fill some of them.
_TILES = (128, 64, 32, 16, 256, 8, 4, 2)
_OTHERS = (1, PAGE + 2, 96, 160, 192, 320, 384, 48, 80, 24)
_SIZES = (*(size for tile in _TILES for size in (tile, tile + 1)), *_OTHERS, *(tile - 1 for tile in _TILES))
#: The left bounds of windows, the time of calls in that of all else, and the largest number of scores.
_BOUNDS, _OF_CALLS, _MOST_SCORES = (0, 1, 2, 4, 8, 16, 32, 64), 4, 2**22
#: The least numbers of failing and of passing probes that tell, and the most runs of sizes that are listed.
_FEWEST, _MOST = 3, 8


@dataclass(frozen=True)
class Probe:
    """The sizes of a call by what they count, and whether its result is wrong."""

    sizes: Mapping[str, int]
    wrong: bool


def probe_case(backend: Backend, case: Case, seconds: float = 1.0) -> str:
    """Say on which sizes it depends, as far as seen in some time, whether a call like a failing one fails."""
    form, backend = case.operation, attention_of_form(backend)
    sizes = _sizes(case) if form in _FORMS and case.misuse is None else ()
    if not sizes or getattr(backend.attention, "form", "attention") != form:
        return ""
    made: dict[tuple[Any, ...], Probe | None] = {}
    clock = _Clock(process_time() + seconds, _OF_CALLS * seconds)

    def probe(queries: int, keys: int, left: int | None = None) -> Probe | None:
        place = queries, keys, left
        if place not in made and process_time() < clock.until and clock.of_calls > 0:
            made[place] = _probe(backend, _resize(backend, case, queries, keys, left), clock, form)
        return made.get(place)

    own = sizes[3], sizes[4]
    if form == "attention" and not ((first := probe(*own)) and first.wrong):
        return ""  # its own numbers alone make it fail
    for axis in _axes(backend, case, own):
        _probe_axis(axis, own, probe)
    if case.arguments.get("window", (None,))[0] is not None:
        for left in _BOUNDS:
            probe(*own, left)
    probes = [(place, x) for place, x in made.items() if x is not None]
    return describe([x for _, x in probes], [x for (*_, left), x in probes if left is None])


@dataclass
class _Clock:
    """Bounds the seconds of this process, and apart from them those of calls."""

    until: float
    of_calls: float

    def call(self, backend: Backend, arguments: dict[str, Any]) -> Any:
        """Make a call."""
        own, start = process_time(), monotonic()
        try:
            return call(backend, "attention", arguments, outputs=("output",))
        finally:
            self.until += process_time() - own
            self.of_calls -= monotonic() - start


def _axes(backend: Backend, case: Case, own: tuple[int, int]) -> Iterator[Callable[[int], tuple[int, int]]]:
    """Yield what is varied: keys, queries, or both together where their numbers are, or must be, equal."""
    alone = not fits(backend.constraints, _resize(backend, case, 2, 3, None))
    if own[0] == own[1] or not alone:
        yield lambda size: (size, size)
    if alone:
        yield lambda size: (own[0], size)
        yield lambda size: (size, own[1])


def _probe_axis(
    at: Callable[[int], tuple[int, int]], own: tuple[int, int], probe: Callable[..., Probe | None]
) -> None:
    """Probe sizes, and then those between the last that passes and the first that fails."""
    first = (size for size in own if at(size) == own)
    found = {size: result for size in (*first, *_SIZES) if (result := probe(*at(size))) is not None}
    wrong = [size for size, result in found.items() if result.wrong]
    high = min(wrong, default=0)
    low = max((size for size in found if size < high), default=high)
    while high - low > 1 and (result := probe(*at(middle := (low + high) // 2))):
        low, high = (low, middle) if result.wrong else (middle, high)


def _sizes(case: Case) -> tuple[int, ...]:
    """Return the sizes of a call as `sizes_of`, for a form with those of its longest sequence."""
    if case.operation == "attention":
        return sizes_of(case)
    given, (found, *_) = case.arguments, bound(case.operation, case.arguments)
    letters, batch = found.letters, found.batch or (1,)
    rows = np.diff(given["query_starts"]) if "query_starts" in given else np.full(batch, letters["L"])
    keys = np.diff(given["key_starts"]) if "key_starts" in given else np.asarray(given["key_lengths"])
    heads = letters["Hq"], letters.get("Hkv", letters["Hq"])
    return rows.size, *heads, int(rows.max(initial=1)), int(keys.max(initial=1)), letters["D"], letters["Dv"]


def _resize(backend: Backend, case: Case, queries: int, keys: int, left: int | None) -> dict[str, Any]:
    """Return the arguments of attention like those of a case, with other sizes and random numbers."""
    batch, heads, shared, *_, depth, value_depth = _sizes(case)
    random = np.random.default_rng(0)
    dtype = "float32" if "float32" in backend.dtypes else case.dtype
    if case.operation == "attention":
        outer = [case.arguments[name].shape[:-2] for name in _ARRAYS]
        found = {name: x for name, x in case.arguments.items() if name not in _ARRAYS}
    else:  # masks and other arrays of a form are left out
        outer = [(batch, heads), (batch, shared), (batch, shared)]
        known = OPERATIONS["attention"].options
        found = {x: y for x, y in case.arguments.items() if x in known and not isinstance(y, np.ndarray)}
    if {"is_causal", "window"} & {*found} and case.operation != "attention":
        found.setdefault("query_offset", keys - queries if "paged" in case.operation else 0)
    for name, x in found.items():
        for letter, size in (("L", queries), ("S", keys)):
            for axis in axes_of(name, x, (letter,)):
                if x.shape[axis] > 1:
                    found[name] = np.take(found[name], np.arange(size) % x.shape[axis], axis=axis)
        if name in ("query_lengths", "key_lengths"):
            most = queries if name == "query_lengths" else keys
            found[name] = np.minimum(x, most) if isinstance(x, np.ndarray) else min(x, most)
        elif is_real(x):
            found[name] = found[name].astype(dtype)
    found |= {"window": (left, case.arguments["window"][1])} if left is not None else {}
    shapes = zip(outer, ((queries, depth), (keys, depth), (keys, value_depth)), strict=True)
    arrays = (random.normal(size=(*own, *inner)).astype(dtype) for own, inner in shapes)
    return {**dict(zip(_ARRAYS, arrays, strict=True)), **found}


def _probe(backend: Backend, arguments: dict[str, Any], clock: _Clock, form: str) -> Probe | None:
    """Judge the row of a result that is farthest from the reference; None if it cannot be judged."""
    query, key = arguments["query"], arguments["key"]
    if query[..., 0].size * key.shape[-2] > _MOST_SCORES or fits(backend.constraints, arguments):
        return None
    try:
        got = clock.call(backend, arguments)["output"]
        aligned = with_heads(align("attention", arguments, backend.dialect))
        wide = {name: x.astype(np.float64) if is_real(x) else x for name, x in aligned.items()}
        right = functions()["attention"](**wide)
        off = np.abs(got.reshape(right.shape).astype(np.float64) - right).max(axis=-1, initial=0)
        place = np.unravel_index(int(np.where(np.isnan(off), np.inf, off).argmax()), off.shape)
        outputs, places = {"output": got.reshape(right.shape)}, [tuple(map(int, place))]
        result, _ = compare_with_exact(backend, aligned, outputs, str(query.dtype), places)
        masks = {name: x for name, x in aligned.items() if name in MASKING}
        seen = allowed_keys((*off.shape, key.shape[-2]), **masks)
    except (Unsupported, Broken, Raised, Failure, SpecError, ValueError, TypeError):
        return None
    if isinstance(result, Difference) and result.kind not in ("value", "pattern"):
        return None
    queries, keys = seen.shape[-2:]
    hidden = int(np.where(seen.any(axis=-1), seen.argmax(axis=-1), 0).max(initial=0))
    sizes = {"queries": queries, "keys": keys, "hidden": hidden}
    if "paged" in form:
        sizes["before"] = max(queries - (keys - 1) % PAGE - 1, 0) if keys > PAGE else 0
    return Probe(sizes, isinstance(result, Difference))


def describe(probes: Sequence[Probe], sized: Sequence[Probe]) -> str:
    """Describe the condition that exactly the failing probes meet, or those of one window, or list these."""
    telling = [x for x in (probes, sized) if _FEWEST <= sum(y.wrong for y in x) <= len(x) - _FEWEST]
    for some in telling:
        for text, holds in _conditions(some):
            if all(holds(probe.sizes) == probe.wrong for probe in some):
                number, like = sum(probe.wrong for probe in some), "calls like it with other sizes"
                return f"probed: of {len(some)} {like}, exactly the {number} {text} fail"
    return f"probed: {_list_runs(sized)}" if sized in telling else ""


def _conditions(probes: Sequence[Probe]) -> Iterator[tuple[str, Callable[[Mapping[str, int]], bool]]]:
    """Yield conditions, the plainest first: relations, bounds, multiples of a tile, and a last tile."""
    yield "with L != S", lambda x: x["queries"] != x["keys"]
    yield "with L < S", lambda x: x["queries"] < x["keys"]
    yield "with L > S", lambda x: x["queries"] > x["keys"]
    words = _words(probes)
    for name in (name for name in (*words, "hidden", "before") if name in probes[0].sizes):
        first = _first_wrong(probes, name)
        keys = "its first key" if first == 1 else f"any of its first {first} keys"
        text = {
            "hidden": f"with a row that does not attend to {keys}",
            "before": f"with at least {first} of its queries before the last page, of {PAGE} keys,",
        }.get(name, f"with more than {first - 1} {words.get(name)}")
        yield text, partial(_is_past, name, first, 0)
    if len(words) > 1:
        least = {name: _first_wrong(probes, name) for name in reversed(words)}
        text = " and ".join(f"more than {first - 1} {name}" for name, first in least.items())
        yield f"with {text}", lambda x: all(x[name] >= first for name, first in least.items())
    for name, tile in product(words, sorted(_TILES)):
        text, first = f"a number of {words[name]} that is no multiple of {tile}", _first_wrong(probes, name)
        yield f"with {text}", partial(_is_past, name, 0, tile)
        yield f"with more than {first - 1} {words[name]} and {text}", partial(_is_past, name, first, tile)


def _is_past(name: str, first: int, tile: int, sizes: Mapping[str, int]) -> bool:
    """Whether a size is at least a number, and does not fill the last of some tiles."""
    return sizes[name] >= first and (not tile or sizes[name] % tile > 0)


def _first_wrong(probes: Sequence[Probe], name: str) -> int:
    """Return the smallest size that fails if the one before it passes, or else a number that no size has."""
    wrong = {probe.sizes[name] for probe in probes if probe.wrong}
    right = {probe.sizes[name] for probe in probes if not probe.wrong}
    return min(wrong) if min(wrong) - 1 in right else max(wrong | right) + 1


def _words(probes: Sequence[Probe]) -> dict[str, str]:
    """Return the words for the sizes that were varied."""
    apart = any(probe.sizes["queries"] != probe.sizes["keys"] for probe in probes)
    return {name: name for name in ("keys", "queries")} if apart else {"keys": "queries and keys"}


def _list_runs(probes: Sequence[Probe]) -> str:
    """List the numbers with which some call fails, and those with which none does."""
    name = max(words := _words(probes), key=lambda name: len({probe.sizes[name] for probe in probes}))
    wrong = {probe.sizes[name] for probe in probes if probe.wrong}
    right = {probe.sizes[name] for probe in probes if not probe.wrong}
    runs = [[*run] for _, run in groupby(sorted(wrong | right), wrong.__contains__)]
    if len(runs) > _MOST:
        return f"some call fails with {len(wrong)} of {len(wrong | right)} numbers of {words[name]}"
    said = (
        f"{', '.join(map(str, run)) if run[:3] == run[:2] else f'{len(run)} from {run[0]} to {run[-1]}'} "
        f"{'fail' if run[0] in wrong else 'pass'}"
        for run in runs
    )
    return f"with other numbers of {words[name]}, {', '.join(said)}"
