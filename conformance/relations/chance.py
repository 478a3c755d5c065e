"""Relations of dropout by a seed: what its masks are, and how probable they are."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import Outputs
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.verdict import Difference, Verdict
from attnspec.operations import OPERATIONS
from attnspec.reference import allowed_keys

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Judge = Callable[[Backend, Case, Outputs], Verdict]

#: The largest probability with which a check fails an implementation that conforms.
FALSE_ALARM = 5e-10
#: How far a probability may be from the given one (DROP-7).
_TOLERANCE = 1 / 256
_FORWARD, _BACKWARD = "seeded_dropout_attention", "seeded_dropout_attention_vjp"


@dataclass(frozen=True)
class Count:
    """How often events happened that are independent of each other.

    `of` names what was counted. The probability of each event is between `least` and `most`. The count
    is the most improbable of `among` counts.
    """

    of: str
    happened: int
    trials: int
    least: float
    most: float
    among: int = 1

    @property
    def chance(self) -> float:
        """A bound of the probability of a count that is at least as far on its side of the bounds."""
        if not self.trials:
            return 1.0
        return float(np.exp(-self.trials * _distance(np.asarray(self.happened / self.trials), self)))


def _distance(share: Floats, count: Count) -> Floats:
    """Return how far shares are from the probabilities of the events of a count, by their entropy."""
    near = np.clip(share, count.least, count.most)
    return _term(share, near) + _term(1 - share, 1 - near)


def _term(share: Floats, probability: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(share == 0, 0.0, share * np.log(share / probability))


def describe_improbable(counts: Iterable[Count]) -> str | None:
    """Return a sentence about the most improbable of some counts if their check fails, or None."""
    every = list(counts)
    worst = min(every, key=lambda count: count.chance)
    among = sum(count.among for count in every)
    if worst.chance * 2 * among >= FALSE_ALARM:  # each count may be too small or too large
        return None
    least, most = f"{worst.least:.6g}", f"{worst.most:.6g}"
    share = least if least == most else f"{least} to {most}"
    power = math.floor(math.log10(worst.chance)) + 1 if worst.chance else -300
    got = f"{worst.happened} of {worst.trials}, which has a probability below 1e{power}"
    return f"{worst.of}: expected a share of {share}, got {got}"


def drops_at_the_probability(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Count the dropped weights of each call, and those of each head of each batch entry (DROP-7)."""
    return describe_improbable(count for case in calls for count in _count_rate(case, mask_of(backend, case)))


def _count_rate(case: Case, kept: Bools) -> Iterator[Count]:
    p = case.arguments["dropout_p"]
    least, most = max(p - _TOLERANCE, 0.0), min(p + _TOLERANCE, 1.0)
    yield Count("dropped weights", int((~kept).sum()), kept.size, least, most)
    for index in np.ndindex(*kept.shape[:-2]):
        head = ~kept[index]
        yield Count(f"dropped weights of head {index}", int(head.sum()), head.size, least, most)


def drops_independently(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Count the pairs of weights of a call of which exactly one is dropped (DROP-8)."""
    return describe_improbable(
        count for case in calls for count in _count_pairs(case, mask_of(backend, case))
    )


def _count_pairs(case: Case, kept: Bools) -> Iterator[Count]:
    for axis, size in enumerate(kept.shape):
        name = ("keys", "queries", "heads")[kept.ndim - 1 - axis] if kept.ndim - axis < 4 else "batch entries"
        positions = np.arange(size)
        for apart in range(1, size):
            firsts = positions[(positions // apart % 2 == 0) & (positions + apart < size)]
            differ = kept.take(firsts, axis) != kept.take(firsts + apart, axis)
            yield _count_differences(case, f"one dropped of two {name} {apart} apart", differ)
    yield _compare_lines((case,), "rows", kept)
    yield _compare_lines((case,), "columns", kept.swapaxes(-1, -2))
    yield _compare_lines((case,), "heads", kept.reshape(*kept.shape[:-2], -1))


def _compare_lines(calls: tuple[Case, ...], of: str, kept: Bools) -> Count:
    """Count differences of any two lines along the last axis, of two calls if the first axis is calls."""
    *outer, size = kept.shape
    signs = np.where(kept, 1, -1).astype(np.float32).reshape(-1, size)
    step = len(signs) // len(calls) if len(calls) > 1 else 1
    worst, pair = 0, (0, 0)
    for start in range(step, len(signs), step):
        excess = signs[:start] @ signs[start : start + step].T  # by how many more weights are equal
        line, other = np.unravel_index(np.abs(excess).argmax(), excess.shape)
        if abs(excess[line, other]) > abs(worst):
            worst, pair = int(excess[line, other]), (int(line), start + int(other))
    places = [list(map(int, np.unravel_index(line, outer))) for line in pair]
    if len(calls) > 1:
        places = [[calls[call].arguments["seed"], *rest] for call, *rest in places]
    of = f"one dropped at the same place of {of} {places[0]} and {places[1]}"
    counted = _count_differences(calls[0], of, np.zeros(size, bool))
    return replace(counted, happened=(size - worst) // 2, among=len(signs) * (len(signs) - step) // 2)


def _count_differences(case: Case, of: str, differ: Bools) -> Count:
    p = case.arguments["dropout_p"]
    around = [a * (1 - b) + b * (1 - a) for a in _near(p) for b in _near(p)]
    return Count(of, int(differ.sum()), differ.size, min(around), max(around))


def _near(p: float) -> tuple[float, float]:
    return max(p - _TOLERANCE, 0.0), min(p + _TOLERANCE, 1.0)


def differs_by_the_seed(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Count the weights that exactly one of two calls drops, also some places later in the other (DROP-9)."""
    masks = [(case, mask_of(backend, case)) for case in calls]
    return describe_improbable(_compare_places(*one, *other) for one, other in combinations(masks, 2))


def _compare_places(case: Case, kept: Bools, other: Case, again: Bools) -> Count:
    # A generator may add the seed to the index of a weight, of a row or of a head.
    first, second = (np.fft.rfft(np.where(mask, 1.0, -1.0).ravel(), 2 * kept.size) for mask in (kept, again))
    later = np.delete(np.fft.fftfreq(2 * kept.size, 1 / (2 * kept.size)), kept.size)
    excess = np.delete(np.rint(np.fft.irfft(first.conj() * second)), kept.size)
    trials = kept.size - np.abs(later)
    of = f"one dropped by seeds {case.arguments['seed']} and {other.arguments['seed']}"
    counted = _count_differences(case, of, kept != again)
    worst = int((trials * _distance((trials - excess) / 2 / trials, counted)).argmax())
    if later[worst]:
        of += f", {int(later[worst])} places later under the other"
    happened = int(trials[worst] - excess[worst]) // 2
    return replace(counted, of=of, happened=happened, trials=int(trials[worst]), among=later.size)


def shares_no_row(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Count the weights that exactly one of two calls drops, and those of any two of their rows (DROP-9)."""
    masks = np.stack([mask_of(backend, case) for case in calls])  # (calls, *B, Hq, L, S)
    return describe_improbable(
        [
            _compare_lines(calls, "calls [seed]", masks.reshape(len(calls), -1)),
            _compare_lines(calls, "rows [seed, entry, head, query]", masks),
        ]
    )


def has_one_mask(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the masks of the first call and of those with the same seed, also after others (DROP-6)."""
    first, *others = calls
    kept = mask_of(backend, first)
    for case in (*others, first):
        again = mask_of(backend, case)
        if case.arguments["seed"] != first.arguments["seed"]:
            continue
        masks = case.arguments.keys() & OPERATIONS["attention"].names("masks")
        # The weights of other keys are 0.
        seen = allowed_keys(kept.shape, **{name: case.arguments[name] for name in masks})
        wrong = (again != kept) & seen
        if wrong.any():
            place = np.unravel_index(int(wrong.argmax()), wrong.shape)
            words = ("dropped", "kept")
            got, expected = words[int(again[place])], words[int(kept[place])]
            return f"weight {tuple(map(int, place))}: expected to be {expected} again, got {got}"
    return None


def as_with_the_mask(judge: Judge) -> Callable[[Backend, tuple[Case, ...]], Found]:
    """Return the relation that results are those of attention with the mask of the call (DROP-5, DROP-11)."""
    return partial(_as_with_the_mask, judge)


def _as_with_the_mask(judge: Judge, backend: Backend, calls: tuple[Case, ...]) -> Found:
    for case in calls:
        forward = {name: x for name, x in case.arguments.items() if not name.startswith("d_")}
        outputs = call(backend, case.operation, case.arguments)
        kept = mask_of(backend, case)
        plain = {name: x for name, x in case.arguments.items() if name not in ("dropout_p", "seed")}
        plain |= {"dropout_mask": kept, "dropout_rate": forward["dropout_p"]}
        verdict = judge(backend, _plain_case(case, plain), outputs)
        if verdict.status == "fail":
            return verdict.difference or verdict.reason
    return None


def _plain_case(case: Case, arguments: dict[str, Any]) -> Case:
    gradients = case.operation == _BACKWARD
    operation, outputs = ("attention_vjp", ()) if gradients else ("attention", ("output", "lse"))
    return Case(
        case.id,
        case.title,
        case.chapter,
        operation,
        case.rules,
        arguments,
        group=case.group,
        outputs=outputs,
    )


def mask_of(backend: Backend, case: Case) -> Bools:
    """Find which weights of a call of the forward operation are not 0, with the identity as value."""
    arguments = {name: x for name, x in case.arguments.items() if not name.startswith("d_")}
    value = arguments["value"]
    keys, depth = value.shape[-2:]
    expected = (*arguments["query"].shape[:-1], depth)
    slices = [np.zeros((*expected[:-1], 0), np.bool_)]
    for start in range(0, keys, depth):
        identity = np.eye(keys, depth, -start, dtype=value.dtype)  # (S, Dv): key `start + c` in column c
        probe = arguments | {"value": np.broadcast_to(identity, value.shape)}
        output = call(backend, _FORWARD, probe, outputs=("output",))["output"]
        if output.shape != expected:
            found = Difference("shape", "output", (), str(output.shape), str(expected))
            raise Failure("SHAPE-3", difference=found)
        slices.append(output != 0)
    return np.concatenate(slices, axis=-1)[..., :keys]
