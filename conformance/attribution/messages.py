"""Groups exceptions: by the line that raised, and by the words of the message without its numbers."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from attnspec.conformance import traits
from attnspec.conformance.outside import one_line
from attnspec.conformance.verdict import Raise, Verdict

#: Names of dtypes, and template arguments of C++. The same error has others in another dtype.
_DTYPES = re.compile(
    r"\[with [^\]]*\]|<[^<>]*>|\b\w*(?:float|double|half|bool|int|complex)\w*\b", re.IGNORECASE
)
#: With fewer calls than this, it is not said that every call raises.
_FEW = 5
#: The number of characters of another message that are shown.
_MOST = 160
#: The number of other messages that are shown.
_MOST_MESSAGES = 8


def words_of(message: str) -> str:
    """Return the words of a message without numbers, shapes and dtypes, to compare messages.

    Examples
    --------
    >>> from attnspec.conformance.attribution.messages import words_of
    >>> words_of("expected shape (2, 3) and float16, got (4,)")
    'expected shape and got'
    """
    return " ".join(re.findall(r"[^\W\d_]{2,}", _DTYPES.sub(" ", message.partition("\n")[0])))


def of_line(one: Verdict) -> tuple[str, ...]:
    """Return what tells an exception from others: its type, its place, and the words of its message."""
    raised = one.raised
    if raised is None:
        return ()
    return raised.type, raised.file, str(raised.line), words_of(raised.message)


def of_conversion(raised: Raise) -> str:
    """Return the words for the conversion that raised, with a space; empty for the function.

    Examples
    --------
    >>> from attnspec.conformance.attribution.messages import of_conversion
    >>> from attnspec.conformance.verdict import Raise
    >>> of_conversion(Raise("TypeError", "no", conversion="to_library of key"))
    "the adapter's conversion to_library of key "
    """
    return f"the adapter's conversion {raised.conversion} " if raised.conversion else ""


def other_messages(failures: Sequence[Verdict]) -> list[str]:
    """Describe the exceptions among failures that differ from that of the first one.

    Examples
    --------
    >>> from attnspec.conformance.attribution.messages import other_messages
    >>> from attnspec.conformance.verdict import Raise, Verdict
    >>> raised = [Raise("ValueError", message) for message in ("no mask", "no bias", "no bias")]
    >>> other_messages([Verdict("b", "c", "g", ("MASK-1",), "error", raised=one) for one in raised])
    ['2 cases: raised ValueError: no bias']
    """
    counted: Counter[tuple[str, ...]] = Counter()
    texts: dict[tuple[str, ...], str] = {}
    for one in failures:
        if one.raised is not None and one.raised.type:
            counted[of_line(one)] += 1
            whose = of_conversion(one.raised)
            texts.setdefault(of_line(one), f"{whose}raised {one.raised.type}: {_end(one.raised.message)}")
    if failures:
        counted.pop(of_line(failures[0]), None)
    lines = [f"{n} case{'s' * (n > 1)}: {texts[key]}" for key, n in counted.most_common(_MOST_MESSAGES)]
    more = sum(n for _, n in counted.most_common()[_MOST_MESSAGES:])
    return [*lines, f"{more} more cases with other messages"] if more else lines


def ended(verdict: Verdict) -> bool:
    """Whether the process ended in the call, or had to be ended.

    Examples
    --------
    >>> from attnspec.conformance.attribution.messages import ended
    >>> from attnspec.conformance.verdict import Verdict
    >>> ended(Verdict("b", "c", "", ("MASK-1",), "error", reason="did not end in 300 s"))
    True
    """
    has_raised = verdict.raised is not None and bool(verdict.raised.type)
    return verdict.status == "error" and verdict.difference is None and not has_raised


def never_returned(verdicts: Iterable[Verdict]) -> str:
    """Say that no call that should return a result did; empty if one did.

    Calls that are not offered do not count. Of fewer calls than five, this is never said.

    Examples
    --------
    >>> from attnspec.conformance.attribution.messages import never_returned
    >>> from attnspec.conformance.verdict import Raise, Verdict
    >>> raised = Raise("TypeError", "no enable_gqa")
    >>> failing = [Verdict("b", f"c-{n}", "g", ("MASK-1",), "error", raised=raised) for n in range(5)]
    >>> never_returned(failing)
    'every call raises'
    >>> never_returned([*failing, Verdict("b", "d", "g", ("SOFT-1",), "pass")])
    ''
    """
    judged = [
        one
        for one in verdicts
        if one.case and one.status != "unsupported" and traits.REFUSED not in one.traits
    ]
    raised = [one for one in judged if one.raised is not None and one.raised.type]
    if len(judged) < _FEW or any(not ended(one) for one in judged if one not in raised):
        return ""
    return "every call raises" if len(raised) == len(judged) else "no call returns"


def _end(message: str) -> str:
    """Return the end of a message, since those of libraries begin with a place in their sources."""
    line = one_line(message.strip().partition("\n")[0])
    return line if len(line) <= _MOST else f"...{line[-_MOST:]}"
