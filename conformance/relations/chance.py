"""Relations of dropout by a seed: what its masks are, and how probable they are."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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

Bools = NDArray[np.bool_]
Judge = Callable[[Backend, Case, Outputs], Verdict]

#: The largest probability with which a check fails an implementation that conforms.
FALSE_ALARM = 1e-9
#: How far a probability may be from the given one (DROP-7).
_TOLERANCE = 1 / 256
_FORWARD, _BACKWARD = "seeded_dropout_attention", "seeded_dropout_attention_vjp"


@dataclass(frozen=True)
class Count:
    """How often events happened that are independent of each other.

    `of` names what was counted. The probability of each event is between `least` and `most`.
    """

    of: str
    happened: int
    trials: int
    least: float
    most: float

    @property
    def chance(self) -> float:
        """A bound of the probability of a count that is at least as far on its side of the bounds."""
        if not self.trials:
            return 1.0
        share = self.happened / self.trials
        near = min(max(share, self.least), self.most)
        return math.exp(-self.trials * (_term(share, near) + _term(1 - share, 1 - near)))


def _term(share: float, probability: float) -> float:
    if share == 0:
        return 0.0
    return share * math.log(share / probability) if probability > 0 else math.inf


def describe_improbable(counts: Iterable[Count]) -> str | None:
    """Return a sentence about the most improbable of some counts if their check fails, or None."""
    every = list(counts)
    worst = min(every, key=lambda count: count.chance)
    if worst.chance * 2 * len(every) >= FALSE_ALARM:  # each count may be too small or too large
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
        for power in range(max(size - 1, 0).bit_length()):
            apart = 2**power
            firsts = positions[(positions & apart == 0) & (positions + apart < size)]
            differ = kept.take(firsts, axis) != kept.take(firsts + apart, axis)
            yield _count_differences(case, f"one dropped of two {name} {apart} apart", differ)


def _count_differences(case: Case, of: str, differ: Bools) -> Count:
    p = case.arguments["dropout_p"]
    around = [a * (1 - b) + b * (1 - a) for a in _near(p) for b in _near(p)]
    return Count(of, int(differ.sum()), differ.size, min(around), max(around))


def _near(p: float) -> tuple[float, float]:
    return max(p - _TOLERANCE, 0.0), min(p + _TOLERANCE, 1.0)


def differs_by_the_seed(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Count the weights that exactly one of two calls drops, also of neighbouring heads (DROP-9)."""
    masks = [(case, mask_of(backend, case)) for case in calls]
    return describe_improbable(
        count for one, other in combinations(masks, 2) for count in _compare_seeds(*one, *other)
    )


def _compare_seeds(case: Case, kept: Bools, other: Case, again: Bools) -> Iterator[Count]:
    of = f"one dropped by seeds {case.arguments['seed']} and {other.arguments['seed']}"
    yield _count_differences(case, of, kept != again)
    # A generator may add the seed to the index of a head, so that two seeds share all but one.
    for name, first, second in (("next", kept, again), ("previous", again, kept)):
        differ = first[..., :-1, :, :] != second[..., 1:, :, :]
        yield _count_differences(case, f"{of} in the {name} head", differ)


def has_one_mask(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the masks of the first call and of those with the same seed, also after others (DROP-6)."""
    first, *others = calls
    kept = mask_of(backend, first)
    for case in (*others, first):
        again = mask_of(backend, case)
        if case.arguments["seed"] != first.arguments["seed"]:
            continue
        # Which weights a causal mask leaves is known from the shape. The others are 0.
        seen = np.tril(np.ones(kept.shape[-2:], bool)) if case.arguments.get("is_causal") else np.True_
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
