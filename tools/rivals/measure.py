"""Judges subjects by the rules of other projects, and by the suite."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.backends import DTYPES, Backend, load_library
from attnspec.conformance.gallery.kills import read_kills
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import items
from tools.rivals.closeness import wide
from tools.rivals.frameworks import JAX_NN, KERNELBENCH, ONNX_NODES, OPINFO, TRANSFORMERS, TRITONBENCH
from tools.rivals.kernels import FLASH_ATTENTION, FLASHINFER, GGML, TOKAMAX
from tools.rivals.rival import Array, Given, Rival, Trial, outputs
from tools.rivals.subjects import Subject, cheats, steps_of, subject

#: All rules, in the order of the page.
RIVALS: tuple[Rival, ...] = (
    *(*KERNELBENCH, *OPINFO, *TRITONBENCH, *FLASHINFER, *JAX_NN),
    *(*TRANSFORMERS, *FLASH_ATTENTION, *GGML, *ONNX_NODES, *TOKAMAX),
)


def lets_through(names: Iterable[str]) -> set[str]:
    """Return the wrong entries that no case of the ordinary run kills, from the stored kill matrix."""
    kills = read_kills()
    return {name for name in names if not kills[name].ordinary}


def own_cheats() -> set[str]:
    """Return the cheats that fail no case of the quick part of the suite."""
    suite = items(quick=True)
    library = load_library("numpy")
    backends = {cheat.name: Backend(cheat.name, library, cheat.make(), DTYPES) for cheat in cheats()}
    return {
        name
        for name, backend in backends.items()
        if not any(judge(backend, item).status in ("fail", "error") for item in suite)
    }


@dataclass(frozen=True)
class Judged:
    """What a rule says of a subject."""

    accepted: bool
    #: Whether the largest error of a result was over ten times that of the correct implementation, or
    #: of rounding to the dtype.
    off: bool


def judge_by(rivals: Sequence[Rival], subjects: Iterable[Subject]) -> dict[str, dict[str, Judged]]:
    """Judge subjects by rules that have the same inputs.

    Calls that have an argument which a subject does not take are left out for this subject. If all results so
    far have the bits of the correct implementation, a repeated trial is taken to have them too.
    """
    found: dict[str, dict[str, Judged]] = {rival.name: {} for rival in rivals}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trials = rivals[0].draw()
        steps = [steps_of(trial.given) for trial in trials]
        plain = [_results(subject("plain"), subject("plain").make(), trial) for trial in trials]
        verdicts = [
            {rival.name: right is not None and rival.accepts(right, trial) for rival in rivals}
            for trial, right in zip(trials, plain, strict=True)
        ]
        for implementation in subjects:
            for name, result in _judge_all(
                implementation, rivals, list(zip(trials, steps, plain, verdicts, strict=True))
            ).items():
                found[name][implementation.name] = result
    return found


def _judge_all(
    implementation: Subject, rivals: Sequence[Rival], trials: Sequence[tuple[Any, ...]]
) -> dict[str, Judged]:
    function = implementation.make()
    alive, differs, off = list(rivals), False, False
    results: dict[str, Judged] = {}
    for trial, steps, right, verdicts in trials:
        if not _takes(implementation, trial.given):
            continue
        same = bool(implementation.steps) and not implementation.steps & steps
        if not same and not (trial.again and not differs):
            got = _results(implementation, function, trial)
            same = _same_bits(got, right)
        else:
            same, got = True, right
        differs = differs or not same
        off = off or (not same and _is_off(got, right, trial))
        for rival in list(alive):
            accepted = verdicts[rival.name] if same else got is not None and rival.accepts(got, trial)
            if not accepted:
                alive.remove(rival)
                results[rival.name] = Judged(accepted=False, off=off)
        if not alive:
            break
    return results | {rival.name: Judged(accepted=True, off=off) for rival in alive}


def _is_off(got: tuple[Array, ...] | None, right: tuple[Array, ...] | None, trial: Trial) -> bool:
    if got is None or right is None or len(got) != len(right):
        return True
    for result, other, exact in zip(got, right, trial.exact, strict=True):
        if (result.shape, result.dtype) != (other.shape, other.dtype):
            return True
        finite = np.isfinite(exact)
        error, usual = (np.abs(wide(array) - exact)[finite].max(initial=0) for array in (result, other))
        rounding = float(np.spacing(result.dtype.type(1))) * np.abs(exact[finite]).max(initial=0)
        if not error <= 10 * max(usual, rounding):
            return True
    return False


def _takes(implementation: Subject, given: Given) -> bool:
    return not any(given.get(name) is not None and given[name] is not False for name in implementation.lacks)


def _results(implementation: Subject, function: Any, trial: Trial) -> tuple[Array, ...] | None:
    """Return the results of a call, None if it raises. The inputs are restored if it changes them."""
    given = {name: thing for name, thing in trial.given.items() if name not in implementation.lacks}
    before = {name: thing.copy() for name, thing in given.items() if isinstance(thing, np.ndarray)}
    try:
        # An output may be a view of an input, which is about to be restored.
        return tuple(array.copy() for array in outputs(function(**given)))
    except Exception:  # noqa: BLE001 - whatever an implementation raises, it is not accepted
        return None
    finally:
        for name, copy in before.items():
            given[name][...] = copy


def _same_bits(got: tuple[Array, ...] | None, right: tuple[Array, ...] | None) -> bool:
    if got is None or right is None or len(got) != len(right):
        return False
    return all(
        (a.shape, a.dtype) == (b.shape, b.dtype) and a.tobytes() == b.tobytes()
        for a, b in zip(got, right, strict=True)
    )
