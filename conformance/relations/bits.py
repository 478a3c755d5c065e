"""Relations that require the same bits of several calls: the chapter `invariance`."""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from inspect import signature
from threading import Barrier
from typing import Any, NamedTuple

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.call import call, without
from attnspec.conformance.judge.comparison import same_bits
from attnspec.conformance.judge.dtypes import Outputs
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.relations.relation import Found

#: Batch entries, heads and queries.
Place = tuple[slice, slice, slice]
Run = Callable[[Backend, tuple[Case, ...]], Found]

ALL = slice(None)
EVERYWHERE: Place = (ALL, ALL, ALL)
#: How often each thread makes its call.
_TIMES = 6
#: Seconds after which another thread may run. The default would let most calls end undisturbed.
_INTERVAL = 1e-5


class Part(NamedTuple):
    """The rows of one call that are those of another: their place in the part and in the whole."""

    own: Place = EVERYWHERE
    whole: Place = EVERYWHERE


def same_as_the_whole(*parts: Sequence[Part]) -> Run:
    """Return a relation. Its first call is the whole, and each other call has rows of it."""

    def _same_as_the_whole(backend: Backend, calls: tuple[Case, ...]) -> Found:
        backend = without(backend, "return_weights")
        whole, *others = [_outputs(backend, case) for case in calls]
        for outputs, places in zip(others, parts, strict=True):
            for part in places:
                if (found := _differ(outputs, whole, part)) is not None:
                    return found
        return None

    return _same_as_the_whole


def same_after_others(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Repeat the first call after the others, and check that its first result has not changed."""
    first, *others = calls
    backend = without(backend, "return_weights")
    kept: list[Any] = []
    before = _outputs(keep_results(backend, kept), first)
    for case in others:
        _outputs(backend, case)
    parts = kept[0] if isinstance(kept[0], tuple | list) else [kept[0]]
    after = dict(zip(before, backend.to_numpy_all(parts), strict=True))
    if (found := _differ(after, before)) is not None:
        return found
    return _differ(_outputs(backend, first), before)


def same_from_threads(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the result of each call with its result while other threads make the other calls."""
    if not backend.concurrent:
        raise Missing(f"{backend.name} cannot be called from several threads")
    backend = without(backend, "return_weights")
    alone = [_outputs(backend, case) for case in calls]
    together = Barrier(len(calls))

    def repeat(case: Case) -> list[Outputs]:
        together.wait()
        return [_outputs(backend, case) for _ in range(_TIMES)]

    with switch_often(), ThreadPoolExecutor(len(calls)) as pool:
        results = [future.result() for future in [pool.submit(repeat, case) for case in calls]]
    differences = (
        _differ(outputs, expected)
        for expected, times in zip(alone, results, strict=True)
        for outputs in times
    )
    return next((difference for difference in differences if difference is not None), None)


def _outputs(backend: Backend, case: Case) -> Outputs:
    return call(backend, case.operation, case.arguments, case.layout)


def _differ(outputs: Outputs, whole: Outputs, part: Part | None = None) -> Found:
    """Return the first difference, with the element counted in the whole."""
    for name, array in outputs.items():
        if part is None:
            found = same_bits(name, array, whole[name])
        else:
            found = same_bits(name, array[part.own], whole[name][part.whole])
            if found is not None and found.element:
                starts = [
                    place.indices(size)[0] for place, size in zip(part.whole, whole[name].shape, strict=False)
                ]
                element = tuple(map(sum, zip(found.element, (*starts, 0), strict=False)))
                found = replace(found, element=element)
        if found is not None:
            return found
    return None


def keep_results(backend: Backend, kept: list[Any], operation: str = "attention") -> Backend:
    """Make a backend that keeps what its function returns, as it returns it."""
    function = backend.function(operation)
    if function is None:  # as the call says
        return backend

    @wraps(function)
    def run(*arrays: Any, **options: Any) -> Any:
        kept.append(function(*arrays, **options))
        return kept[-1]

    run.__signature__ = signature(function)  # type: ignore[attr-defined] # read by inspect.signature
    return backend.with_function(operation, run)


@contextmanager
def switch_often() -> Iterator[None]:
    """Let threads take turns often, and ignore warnings in all of them.

    The filters of warnings belong to the process. A thread that restores them does so for all.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_INTERVAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.setswitchinterval(before)
