"""Relations that require the exact values of each of several calls, whatever was called before (ERR-13)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import signature
from threading import Barrier
from typing import Any

import numpy as np

from attnspec import Case
from attnspec.backends import Backend, Unsupported
from attnspec.backends.captured import capture, replay_backend
from attnspec.conformance.judge.call import call, without
from attnspec.conformance.judge.comparison import same_bits
from attnspec.conformance.judge.dtypes import Outputs
from attnspec.conformance.judge.failure import Failure, Missing, Raised
from attnspec.conformance.judge.layout import SURROUNDED
from attnspec.conformance.relations.bits import keep_results, switch_often
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.verdict import Verdict

#: How often calls are made in turn, so that memory that one of them freed is used by another.
_TURNS = 8
#: How often one call is repeated.
_REPEATED = 200
#: How often each thread makes its call.
_IN_A_THREAD = 10


@dataclass
class _Results:
    """The results of a call that was made several times, each once, in the order in which they came."""

    case: Case
    different: list[Outputs] = field(default_factory=list)

    def add(self, outputs: Outputs) -> None:
        """Add a result, unless there is one with the same bits."""
        if not any(_same(outputs, known) for known in self.different):
            self.different.append(outputs)

    def judge(self, backend: Backend) -> list[Verdict]:
        """Judge each result by its values."""
        return [_judge(backend, self.case, outputs) for outputs in self.different]


def each_in_turn(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Make the calls in their order, and judge each of them by its values."""
    results = [_outputs(backend, case) for case in calls]
    return worst_of([_judge(backend, case, outputs) for case, outputs in zip(calls, results, strict=True)])


def in_the_same_arrays(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Make the calls with the arrays of the first one, in which the numbers of the others are written."""
    rewriting = _rewrite_backend(backend)
    results = [_outputs(rewriting, case) for case in calls]
    return worst_of([_judge(backend, case, outputs) for case, outputs in zip(calls, results, strict=True)])


def capture_and_replay(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Capture the first call of each set of options, and replay it with the numbers of the others."""
    operation = calls[0].operation
    backend = without(backend, "return_weights")
    if capture(backend, operation) is None:
        raise Missing(f"{backend.name} captures no calls of {operation}", f"captured calls of {operation}")
    again = replay_backend(backend, operation)
    results = [_outputs(again, case) for case in calls]
    return worst_of([_judge(backend, case, outputs) for case, outputs in zip(calls, results, strict=True)])


def in_freed_memory(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Make the calls several times in turn. The arrays of each of them are freed before the next one."""
    results = [_Results(case) for case in calls]
    for _ in range(_TURNS):
        for result in results:
            result.add(_outputs(backend, result.case))
    return worst_of([verdict for result in results for verdict in result.judge(backend)])


def keep_results_of_calls(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Make the calls, and judge the arrays that each of them returned after the last one."""
    kept: list[Any] = []
    names = [tuple(_outputs(keep_results(backend, kept, case.operation), case)) for case in calls]
    verdicts = []
    for case, own, returned in zip(calls, names, kept, strict=True):
        parts = (
            returned if len(own) > 1 else [returned[0] if isinstance(returned, list | tuple) else returned]
        )
        outputs = dict(zip(own, backend.to_numpy_all(parts), strict=True))
        verdicts.append(_judge(backend, case, outputs))
    return worst_of(verdicts)


def beside_a_refused_call(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Judge the calls that are valid. Whatever happens in the others is judged elsewhere."""
    results = []
    for case in calls:
        if case.misuse is None:
            results.append((case, _outputs(backend, case)))
            continue
        try:
            _outputs(backend, case)
        except Missing:
            raise
        except (Raised, Failure, Unsupported):
            continue
    return worst_of([_judge(backend, case, outputs) for case, outputs in results])


def in_any_surroundings(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Make each call twice, with other numbers around its arrays. It raises, or gives one result."""
    return next((found for case in calls if (found := _in_any_surroundings(backend, case))), None)


def _in_any_surroundings(backend: Backend, case: Case) -> Found:
    arrays = [name for name, thing in case.arguments.items() if isinstance(thing, np.ndarray) and thing.ndim]
    results: list[Outputs] = []
    for layout in SURROUNDED:
        with suppress(Raised):
            results.append(call(backend, case.operation, case.arguments, dict.fromkeys(arrays, layout)))
    if len(results) == 1:
        return "raises with some numbers around its arrays, and not with others"
    for name, array in results[0].items() if results else ():
        # A sum may be rounded otherwise elsewhere in memory. The numbers around are far larger than that.
        if not np.allclose(array, results[1][name], rtol=1e-2, atol=1e-2, equal_nan=True):
            return same_bits(name, array, results[1][name])
    return None


def repeat_often(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Repeat a call, and judge each result that has other bits than those before."""
    (case,) = calls
    results = _Results(case)
    for _ in range(_REPEATED):
        results.add(_outputs(backend, case))
    return worst_of(results.judge(backend))


def from_threads(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Make each call in a thread of its own, several times, while other threads make the others."""
    if not backend.concurrent:
        raise Missing(f"{backend.name} cannot be called from several threads")
    _outputs(backend, calls[0])  # what it loads or compiles at first is not what is tested
    together = Barrier(len(calls))

    def repeat(case: Case) -> _Results:
        results = _Results(case)
        together.wait()
        for _ in range(_IN_A_THREAD):
            results.add(_outputs(backend, case))
        return results

    with switch_often(), ThreadPoolExecutor(len(calls)) as pool:
        results_of_threads = [future.result() for future in [pool.submit(repeat, case) for case in calls]]
    return worst_of([verdict for result in results_of_threads for verdict in result.judge(backend)])


def _outputs(backend: Backend, case: Case) -> Outputs:
    # Where weights are asked for, many implementations take another path.
    return call(without(backend, "return_weights"), case.operation, case.arguments, case.layout)


def _judge(backend: Backend, case: Case, outputs: Outputs) -> Verdict:
    from attnspec.conformance.judge.judge import judge_outputs

    return judge_outputs(backend, case, outputs)


def worst_of(verdicts: Sequence[Verdict]) -> Verdict | None:
    """Return the first that is bad, or else one with the deviations of all. Return None if there are none."""
    bad = [verdict for verdict in verdicts if verdict.status not in ("pass", "deviation")]
    shown = [verdict for verdict in verdicts if verdict.status == "deviation"]
    if bad or not shown:
        return next(iter(bad), None)
    first, *others = [verdict for verdict in shown if not verdict.variant] or shown
    more = [text for verdict in others for text in (*verdict.declared, verdict.rule) if text != first.rule]
    return replace(first, declared=tuple(dict.fromkeys([*first.declared, *more])))


def _same(one: Outputs, other: Outputs) -> bool:
    return all(
        str(array.dtype) == str(other[name].dtype) and same_bits(name, array, other[name]) is None
        for name, array in one.items()
    )


def _rewrite_backend(backend: Backend) -> Backend:
    """Make a backend that writes the numbers of each call into the arrays of the first one of its shapes."""
    kept: dict[Any, Any] = {}

    @wraps(backend.attention)
    def run(*arrays: Any, **options: Any) -> Any:
        names = list(signature(backend.attention).parameters)
        given = {**dict(zip(names, arrays, strict=False)), **options}
        placed = {name: _place(kept, name, thing) for name, thing in given.items()}
        first = [placed.pop(name) for name in names[: len(arrays)]]
        return backend.attention(*first, **placed)

    def _place(kept: dict[Any, Any], name: str, thing: Any) -> Any:
        if not getattr(thing, "shape", ()):
            return thing
        place = kept.setdefault((name, tuple(thing.shape), str(thing.dtype)), thing)
        if place is not thing:
            try:
                place[...] = thing
            except (TypeError, ValueError, NotImplementedError) as error:
                raise Missing(f"arrays of {backend.library} cannot be written") from error
        return place

    run.__signature__ = signature(backend.attention)  # type: ignore[attr-defined] # read by inspect.signature
    return replace(backend, attention=run)
