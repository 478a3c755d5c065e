"""Which keys of a configuration describe the calls that a function declines by `NotImplementedError`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from attnspec import SpecError
from attnspec.backends.constraints import Constraints, fits
from attnspec.conformance.outside import one_line
from attnspec.conformance.traits import REFUSED, RELATED
from attnspec.conformance.verdict import DECLINES, Verdict
from attnspec.operations.quantization import ENCODINGS

if TYPE_CHECKING:
    from attnspec import Case

#: The most calls with one message, and the most judged ones, that are looked at.
_MOST_CALLS = 200
_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)


def declined_lines(verdicts: Iterable[Verdict], seed: int | None = None) -> Iterator[str]:
    """Count the calls that a function declines, by its message, and name the keys that describe them."""
    own = [x for x in verdicts if not {RELATED, REFUSED} & {*x.traits}]
    counts = Counter(x.reason for x in own if x.reason.startswith(DECLINES))
    judged = _calls([x for x in own if x.status != "unsupported"][:_MOST_CALLS], seed) if counts else []
    for reason, number in counts.most_common():
        declined = _calls([x for x in own if x.reason == reason][:_MOST_CALLS], seed)
        keys = _keys(declined, judged)
        said = f"{' and '.join(keys)} describes them" if keys else "no key of attnspec.toml describes them"
        calls = "call" if number == 1 else "calls"
        yield one_line(f"declined by {reason}: {number} {calls}; {said}")


def _calls(verdicts: Sequence[Verdict], seed: int | None) -> "list[Case]":
    """Find the calls of verdicts, but those that another run has."""
    from attnspec import Case  # it needs NumPy
    from attnspec.conformance.suite import items

    try:
        found = [*items(names=[verdict.case for verdict in verdicts], seed=seed)] if verdicts else []
    except SpecError:
        return []
    return [item for item in found if isinstance(item, Case)]


def _keys(declined: "Sequence[Case]", judged: "Sequence[Case]") -> list[str]:
    """Return keys that exclude all declined calls and no judged one; none if there are none."""
    possible = {key: x for key, x in _candidates(judged).items() if not any(_misfit(x, y) for y in judged)}
    left = [*declined]
    keys: list[str] = []
    while left and possible:
        key = max(possible, key=lambda key: sum(_misfit(possible[key], case) for case in left))
        excluded = possible.pop(key)
        left, keys = [case for case in left if not _misfit(excluded, case)], [*keys, key]
    return [] if left else keys


def _misfit(constraints: Constraints, case: "Case") -> bool:
    return bool(fits(constraints, case.arguments, case.operation))


def _candidates(judged: "Sequence[Case]") -> Mapping[str, Constraints]:
    """Return the constraints that may describe a function, the plainest first."""
    deep = sorted({case.arguments["query"].shape[-1] for case in judged if "query" in case.arguments})
    candidates = {
        'lengths = "equal"': Constraints(lengths="equal"),
        'heads = "equal"': Constraints(heads="equal"),
        'value_depth = "key"': Constraints(value_depth="key"),
        "one_query = true": Constraints(one_query=True),
        "axes = 4": Constraints(axes=4),
        "axes = 3": Constraints(axes=3),
        'bias_dtype = "query"': Constraints(bias_dtype="query"),
        "always = { is_causal = true }": Constraints(always={"is_causal": True}),
    }
    candidates |= {f'encoding = "{name}"': Constraints(encoding=name) for name in ENCODINGS}
    candidates |= {f"multiple = [1, {size}]": Constraints(multiple=(1, size)) for size in _MULTIPLES}
    candidates |= {f"multiple = {size}": Constraints(multiple=(size, size)) for size in _MULTIPLES}
    return candidates | ({f"depths = {deep}": Constraints(depths=(*deep,))} if deep else {})
