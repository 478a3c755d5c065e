"""Says what a backend does not offer, and what it declined: the reasons of `unsupported`, by frequency."""

from collections import Counter
from collections.abc import Iterable, Sequence

from attnspec.conformance.outside import one_line
from attnspec.conformance.render.summary import gradients
from attnspec.conformance.verdict import Verdict

#: The largest number of lines, and of names in a line.
_MOST_LINES, _MOST_NAMES = 5, 6
#: The number of characters of a reason that are shown.
_MOST = 160


def not_offered(verdicts: Iterable[Verdict]) -> list[str]:
    """Return a line for each reason for which cases are unsupported, the most frequent first.

    The cases of one kind of thing that the backend lacks, such as arguments, are one reason. Cases that
    another line of the summary is about do not count.

    Examples
    --------
    >>> from attnspec.conformance.render.not_offered import not_offered
    >>> from attnspec.conformance.verdict import Verdict
    >>> found = [("argument window",), ("argument softcap", "argument window"), ("dtype float16",)]
    >>> lacking = [Verdict("b", "c", "", ("MASK-7",), "unsupported", lacks=lacks) for lacks in found]
    >>> declined = Verdict("b", "d", "", ("MASK-3",), "unsupported", reason="one mask only", declined=True)
    >>> for line in not_offered([*lacking, declined]):
    ...     print(line)
    not offered: 2 cases of the arguments window, softcap
    not offered: 1 case of the dtype float16
    declined: 1 case: one mask only
    """
    found = list(verdicts)
    told = {"left out", *(["no gradient", "no gradient of an argument"] if gradients(found) else [])}
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for one in found:
        # A verdict with a rule is about a MAY that does not hold.
        if one.status == "unsupported" and not one.rule and one.code not in told:
            groups.setdefault(_reason(one), []).append(one)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    lines = [_line(key, group) for key, group in ranked[:_MOST_LINES]]
    more = sum(len(group) for _, group in ranked[_MOST_LINES:])
    return [*lines, f"unsupported for other reasons: {_cases(more)}, in --results FILE"] if more else lines


def _reason(one: Verdict) -> tuple[str, str]:
    """Return what tells a reason from others: the kind of what is lacking, or the words."""
    kinds = {lacking.partition(" ")[0] for lacking in one.lacks}
    if kinds:
        return "lacks", min(kinds)
    return "declined" if one.declined else "", one.reason.removeprefix(f"{one.backend} ")


def _line(key: tuple[str, str], group: Sequence[Verdict]) -> str:
    how, said = key
    if how != "lacks":
        text = one_line(said.strip()) or "no reason given"
        text = text if len(text) <= _MOST else f"{text[:_MOST]}..."
        return f"{how or 'not asked'}: {_cases(len(group))}: {text}"
    named = (lacking.partition(" ") for one in group for lacking in one.lacks)
    counted = Counter(name for kind, _, name in named if kind == said)
    names = [name for name, _ in counted.most_common(_MOST_NAMES)]
    more = f" and {len(counted) - len(names)} more" if len(counted) > len(names) else ""
    things = f"{said}{'s' * (len(counted) > 1)}"
    return f"not offered: {_cases(len(group))} of the {things} {', '.join(names)}{more}"


def _cases(number: int) -> str:
    return f"{number} case{'s' * (number != 1)}"
