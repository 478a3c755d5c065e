"""Which keys of a configuration describe the calls that a function declines by `NotImplementedError`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from attnspec import OPERATIONS, SpecError
from attnspec.backends.constraints import Constraints, fits
from attnspec.backends.preconditions import PRECONDITIONS, breach_of
from attnspec.conformance.outside import one_line
from attnspec.conformance.traits import FAR, NOTHING, REFUSED, RELATED, SPECIAL, by_entry, negative
from attnspec.conformance.verdict import DECLINES, Verdict
from attnspec.operations.quantization import ENCODINGS

if TYPE_CHECKING:
    from attnspec import Case
    from attnspec.conformance.suite.group import Item

#: The most calls with one message, and the most judged ones, that are looked at.
_MOST_CALLS = 200
#: The most calls of a cause whose preconditions are looked at, and the most right ones beside them.
_MOST_ALIKE = 60
#: All failing calls lack what many right calls lack, with this probability, by chance.
_CHANCE = 0.1
#: The preconditions that a report suggests. That of sinks is one of functions alone that need these.
_SUGGESTED = tuple(word for word in PRECONDITIONS if word != "sinks")
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)


def declined_lines(verdicts: Iterable[Verdict], seed: int | None = None) -> Iterator[str]:
    """Count the calls that a function declines, by its message, and name the keys that describe them."""
    own = [x for x in verdicts if not {RELATED, REFUSED} & {*x.traits}]
    counts = Counter(x.reason for x in own if x.reason.startswith(DECLINES))
    judged = _calls([x for x in own if x.status != "unsupported"][:_MOST_CALLS], seed) if counts else []
    for reason, number in counts.most_common():
        declined = _calls([x for x in own if x.reason == reason][:_MOST_CALLS], seed)
        shared = set.intersection(*({*case.arguments} for case in declined)) if declined else set()
        # If no judged call has an argument that all declined ones have, the others say nothing of it.
        alone = shared.difference(*(case.arguments for case in judged))
        keys = _keys(declined, [] if alone else judged)
        said = f"{' and '.join(keys)} describes them" if keys else "no key of attnspec.toml describes them"
        said = said if judged else "no call was judged, which would show what key describes them"
        calls = "call" if number == 1 else "calls"
        yield one_line(f"declined by {reason}: {number} {calls}; {said}")


def preconditions_of(
    failures: Sequence[Verdict], right: Iterable[Verdict], seed: int | None = None
) -> tuple[str, ...]:
    """Name the preconditions of which every failing call lacks one, unless it may be by chance."""
    # One call is drawn before all of them, and none of attention without a telling trait: NumPy loads slowly.
    first = {*failures[0].traits}
    special = {SPECIAL, NOTHING, FAR, by_entry("query_offset"), "window"}
    tells = first & {*special, *map(negative, OPERATIONS["attention"].options)}
    ordinary = failures[0].operation == "attention" and not tells
    if REFUSED in first or ordinary or not all(_breaches((failures[0].case,), seed).values()):
        return ()
    operations = {verdict.operation for verdict in failures}
    alike = [verdict.case for verdict in right if verdict.operation in operations]
    alike = alike[:: 1 + len(alike) // _MOST_ALIKE]
    failing = [verdict.case for verdict in failures[:_MOST_ALIKE]]
    breaches = _breaches((*failing, *alike), seed)
    left, words = [breaches[case] for case in failing], list[str]()
    lacking = Counter(word for case in alike for word in breaches[case])
    while left and all(left):
        counts = Counter(word for own in left for word in own)
        # Of words that explain as many failures, the one that fewest right calls lack.
        words.append(max(counts, key=lambda word: (counts[word], -lacking[word])))
        left = [own for own in left if words[-1] not in own]
    share = sum(bool({*breaches[case]} & {*words}) for case in alike) / max(len(alike), 1)
    return tuple(words) if not left and share ** len(failing) < _CHANCE else ()


@lru_cache(maxsize=64)
def _breaches(cases: tuple[str, ...], seed: int | None) -> Mapping[str, list[str]]:
    """Return the preconditions that each case lacks; none of a case that another run has."""
    drawn = {item.name: [call.arguments for call in item.calls] for item in _items(cases, seed)}
    return {
        case: [word for word in _SUGGESTED if any(breach_of([word], call) for call in drawn.get(case, ()))]
        for case in cases
    }


def _calls(verdicts: Sequence[Verdict], seed: int | None) -> "list[Case]":
    """Find the calls of verdicts, but those that another run has."""
    from attnspec import Case  # it needs NumPy

    return [x for x in _items([verdict.case for verdict in verdicts], seed) if isinstance(x, Case)]


def _items(cases: Sequence[str], seed: int | None) -> "list[Item]":
    from attnspec.conformance.suite import items

    try:
        return [*items(names=cases, seed=seed)] if cases else []
    except SpecError:
        return []


def _keys(declined: "Sequence[Case]", judged: "Sequence[Case]") -> list[str]:
    """Return keys that describe all declined calls and exclude no judged one; none if there are none."""
    possible = {key: x for key, x in _candidates(judged).items() if not any(_misfit(x, y) for y in judged)}
    left = [*declined]
    keys: list[str] = []
    fewest = min(map(_axes, judged), default=0)
    while left and possible:
        excluded = {
            key: [case for case in left if _describes(x, case, fewest)] for key, x in possible.items()
        }
        key = max(possible, key=lambda key: len(excluded[key]))
        left, keys = [case for case in left if not any(case is x for x in excluded[key])], [*keys, key]
        del possible[key]
    return [] if left else keys


def _misfit(constraints: Constraints, case: "Case") -> bool:
    if constraints.axes is not None:  # of forms too
        return _axes(case) > constraints.axes
    if constraints.window == "left":
        window = case.arguments.get("window") or (None, None)
        return window[1] not in (None, 0)
    return bool(fits(constraints, case.arguments, case.operation))


def _describes(constraints: Constraints, case: "Case", fewest: int) -> bool:
    """Whether a declined call would not be made, or with more axes if it has fewer than every judged one."""
    more = constraints.axes is not None and _axes(case) < constraints.axes <= fewest
    return more or _misfit(constraints, case)


def _axes(case: "Case") -> int:
    return int(case.arguments[OPERATIONS[case.operation].arrays[0]].ndim)


def _candidates(judged: "Sequence[Case]") -> Mapping[str, Constraints]:
    """Return the constraints that may describe a function, the plainest first."""
    deep = sorted({case.arguments["query"].shape[-1] for case in judged if "query" in case.arguments})
    candidates = {
        'lengths = "equal"': Constraints(lengths="equal"),
        'lengths = "enough"': Constraints(lengths="enough"),
        'heads = "equal"': Constraints(heads="equal"),
        'value_depth = "key"': Constraints(value_depth="key"),
        'one_query = "axis"': Constraints(one_query=True),
        "axes = 4": Constraints(axes=4),
        "axes = 3": Constraints(axes=3),
        'bias_dtype = "query"': Constraints(bias_dtype="query"),
        'window = "left", with one number for the left side,': Constraints(window="left"),
        "always = { is_causal = true }": Constraints(always={"is_causal": True}),
    }
    candidates |= {f'encoding = "{name}"': Constraints(encoding=name) for name in ENCODINGS}
    candidates |= {f"multiple = [1, {size}]": Constraints(multiple=(1, size)) for size in _MULTIPLES}
    candidates |= {f"multiple = {size}": Constraints(multiple=(size, size)) for size in _MULTIPLES}
    return candidates | ({f"depths = {deep}": Constraints(depths=(*deep,))} if deep else {})
