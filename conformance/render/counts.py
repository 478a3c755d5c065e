"""Lines and cells that count the verdicts of one backend."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from attnspec.backends import DTYPES
from attnspec.conformance.attribution.levels import ACCEPTED, KNOWN, NOT_SHOWN
from attnspec.conformance.outside import one_line
from attnspec.conformance.results import OUTSIDE
from attnspec.conformance.traits import GRADIENT
from attnspec.conformance.verdict import CLASSES, LEFT_OUT, STATUSES, Verdict

#: The statuses that are counted, in this order.
COUNTED = (*STATUSES[:3], KNOWN, ACCEPTED, *STATUSES[3:])
#: The words for results that do not hold, the gravest first. Those of one line may be combined.
_WORDS = (
    (("fail", "FAIL"), ("error", "ERROR"), (KNOWN, "known"), (ACCEPTED, "accepted")),
    (("deviation", "deviation"), ("should not met", "not met")),
    ((NOT_SHOWN, "not shown"),),
)
#: A case that used more than this share of its budget is named.
_NEAR = 0.9
#: A case that took more than this share of the time is named.
_SLOW = 0.2
#: The largest number of names in a line, and of characters of a reason.
_MOST_NAMES, _MOST_CHARACTERS = 6, 160


def count_statuses(verdicts: Iterable[Verdict], marks: Mapping[Verdict, str] | None = None) -> Counter[str]:
    """Count verdicts by status. Known failures and accepted calls are counted by their marks."""
    return Counter((marks or {}).get(verdict, verdict.status) for verdict in verdicts)


def totals(verdicts: Sequence[Verdict], marks: Mapping[Verdict, str] | None = None) -> list[str]:
    """Count the verdicts of one backend on calls with a result and on calls that must be rejected."""
    lines = []
    for name, refusal in (("values", False), ("refusals", True)):
        counts = count_statuses((verdict for verdict in verdicts if verdict.refusal == refusal), marks)
        text = ", ".join(f"{counts[status]} {status}" for status in COUNTED if counts[status])
        lines += [f"{name}: {text}"] if text else []
    return lines or ["no verdict"]


def unsupported_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """Return a line for each reason for which cases are unsupported, the most frequent first.

    The cases of one kind of thing that the backend lacks, such as arguments, are one reason. Cases that
    another line of the summary is about do not count.
    """
    elsewhere = {"left out"}
    elsewhere |= {"no gradient", "no gradient of an argument"} if gradients_line(verdicts) else set()
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        # A verdict with a rule is about a MAY that does not hold.
        if verdict.status == "unsupported" and not verdict.rule and verdict.code not in elsewhere:
            groups.setdefault(_reason(verdict), []).append(verdict)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [_reason_line(key, group) for key, group in ranked]


def unsupported_line(verdicts: Sequence[Verdict]) -> str:
    """Count the cases that were not judged, and those that lack something of each kind. Empty if none."""
    left = [verdict for verdict in verdicts if verdict.status == "unsupported"]
    kinds = Counter(_reason(verdict) for verdict in left)
    parts = [f"{words}s ({number})" for (how, words), number in kinds.most_common() if how == "lacks"]
    lacking = f"; lacking {', '.join(parts)}" if parts else ""
    return f"not judged: {len(left)} of {len(verdicts)} cases{lacking}; --table says why" if left else ""


def left_out_line(verdicts: Iterable[Verdict]) -> str:
    """Return how many cases the limits of a run left out, with the first reason. Empty if none."""
    reasons = [verdict.reason.removeprefix(LEFT_OUT) for verdict in verdicts if verdict.code == "left out"]
    if not reasons:
        return ""
    cases = "1 case" if len(reasons) == 1 else f"{len(reasons)} cases, the first"
    return f"left out: {cases}:{reasons[0]}"


def gradients_line(verdicts: Iterable[Verdict]) -> str:
    """Return why no gradient was judged. Empty if some were judged, or none was planned."""
    of_gradients = [verdict for verdict in verdicts if GRADIENT in verdict.traits]
    reasons = [verdict for verdict in of_gradients if verdict.code == "no gradient"]
    if not reasons or any(verdict.status != "unsupported" for verdict in of_gradients):
        return ""
    return f"gradients: not judged; it {reasons[0].reason.removeprefix(f'{reasons[0].backend} ')}"


_CAST = '; cast: weights may be rounded to the dtype of the arrays, accuracy = "full" judges that too'


def budget_line(verdicts: Iterable[Verdict]) -> str:
    """Return the largest used share of the budget for each dtype, with the class if not the tightest."""
    by_dtype: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.accuracy and verdict.dtype in DTYPES:
            by_dtype.setdefault(verdict.dtype, []).append(verdict)
    if not by_dtype:
        return ""
    parts = []
    for dtype in sorted(by_dtype, key=DTYPES.index):
        most = max(verdict.share for verdict in by_dtype[dtype])
        loosest = max((verdict.accuracy for verdict in by_dtype[dtype]), key=_looseness)
        parts.append(f"{dtype} {most:.2f}" + (f" ({loosest})" if loosest != CLASSES[0] else ""))
    full = max(chain.from_iterable(by_dtype.values()), key=lambda verdict: verdict.share)
    where = f"; most in {full.case}" if full.share >= _NEAR else ""
    why = _CAST if any(part.endswith("(cast)") for part in parts) else ""
    return f"of the budget used: {', '.join(parts)}{where}{why}"


def dtypes_line(verdicts: Iterable[Verdict]) -> str:
    """Name the dtypes that a backend takes, and in which no value was judged. Empty if there are none."""
    values = [verdict for verdict in verdicts if not verdict.refusal and verdict.dtype in DTYPES]
    judged = {verdict.dtype for verdict in values if verdict.status != "unsupported"}
    # What lacks neither the operation nor the dtype lacks something else.
    takes = {v.dtype for v in values if not any(word.startswith(OUTSIDE) for word in v.lacks)}
    others = [dtype for dtype in DTYPES if dtype in takes - judged]
    return f"no value was judged in {' and '.join(others)}" if judged and others else ""


def options_line(options: str, verdicts: Iterable[Verdict]) -> str:
    """Name the options that a backend has, and with which no value was judged. Empty if there are none."""
    judged = [{*x.traits} for x in verdicts if not x.refusal and x.status != "unsupported"]
    others = {*options.split(",")}.difference(*judged) - {""}
    return f"no value was judged with {', '.join(sorted(others))}" if judged and others else ""


def time_line(verdicts: Sequence[Verdict]) -> str:
    """Return the time of judging, and a case that took a large part of it."""
    seconds = sum(verdict.seconds for verdict in verdicts)
    judged = sum(verdict.status != "unsupported" for verdict in verdicts)
    if not seconds:
        return ""
    slowest = max(verdicts, key=lambda verdict: verdict.seconds)
    line = f"time: {seconds:.1f} s to judge {number_of(judged, 'case')}"
    if slowest.seconds < _SLOW * seconds:
        return line
    return f"{line}; the slowest, {slowest.seconds:.2f} s: {slowest.case}"


def cell(counts: Mapping[str, int]) -> tuple[str, str]:
    """Return a short text for one rule, and the status that determines its colour."""
    judged = sum(number for status, number in counts.items() if status != "unsupported")
    for words in _WORDS:
        parts = [(status, f"{word} {counts[status]}") for status, word in words if counts.get(status)]
        if parts:
            return f"{', '.join(text for _, text in parts)} of {judged}", parts[0][0]
    if counts.get("pass"):
        return f"pass {counts['pass']}", "pass"
    return ("unsupported" if counts else ""), "unsupported"


def _reason(verdict: Verdict) -> tuple[str, str]:
    """Return what tells a reason from others: the kind of what is lacking, or the words."""
    kinds = {lacking.partition(" ")[0] for lacking in verdict.lacks}
    if kinds:
        return "lacks", min(kinds)
    return "declined" if verdict.declined else "", verdict.reason.removeprefix(f"{verdict.backend} ")


def _reason_line(key: tuple[str, str], group: Sequence[Verdict]) -> str:
    how, words = key
    cases = number_of(len(group), "case")
    if how != "lacks":
        text = one_line(words.strip()) or "no reason given"
        text = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
        return f"{how or 'not asked'}: {cases}: {text}"
    lacking = (lacking.partition(" ") for verdict in group for lacking in verdict.lacks)
    counts = Counter(name for kind, _, name in lacking if kind == words)
    names = some([name for name, _ in counts.most_common()], _MOST_NAMES)
    return f"not offered: {cases} of the {words}{'s' * (len(counts) > 1)} {names}"


def _looseness(accuracy: str) -> int:
    if accuracy in CLASSES:  # without NumPy, which the profiles import
        return CLASSES.index(accuracy)
    from attnspec.reference.budget.arithmetic import PROFILES

    return [*map(str, CLASSES), *PROFILES].index(accuracy)


def some(names: Sequence[str], most: int) -> str:
    """List some of the names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def number_of(number: int, noun: str) -> str:
    """Write a number with its noun."""
    return f"{number} {noun}{'s' * (number != 1)}"
