"""Tells exceptions of one cause from others, and implementations of which no call returns."""

import re
from collections.abc import Iterable
from typing import Literal

from attnspec.conformance import traits
from attnspec.conformance.verdict import Verdict

#: With fewer calls than this, it is not said that no call returns.
_FEW = 5
#: Names of dtypes, and template arguments of C++. The same error has others in another dtype.
_DTYPES = re.compile(
    r"\[with [^\]]*\]|<[^<>]*>|\b\w*(?:float|double|half|bool|int|complex)\w*\b", re.IGNORECASE
)


def never_returns(verdicts: Iterable[Verdict]) -> Literal["", "every call raises", "no call returns"]:
    """Tell whether no call that should return a result did.

    Calls that are not offered do not count. Of fewer calls than five, this is never said.
    """
    judged = [
        verdict
        for verdict in verdicts
        if verdict.case and verdict.status != "unsupported" and traits.REFUSED not in verdict.traits
    ]
    raised = [verdict for verdict in judged if verdict.raised is not None and verdict.raised.type]
    if len(judged) < _FEW or any(not verdict.ended for verdict in judged if verdict not in raised):
        return ""
    return "every call raises" if len(raised) == len(judged) else "no call returns"


def exception_key(verdict: Verdict) -> tuple[str, ...]:
    """Return what tells an exception from others: its type, its place, and the words of its message."""
    raised = verdict.raised
    if raised is None:
        return ()
    return raised.type, raised.file, str(raised.line), message_words(raised.message)


def message_words(message: str) -> str:
    """Return the words of a message without numbers, shapes and dtypes, to compare messages."""
    return " ".join(re.findall(r"[^\W\d_]{2,}", _DTYPES.sub(" ", message.partition("\n")[0])))
