"""The suite: cases and relations by chapter, the judge, the reports, the command line.

Importing it loads nothing, because pytest reads its plugin at every start, also in projects
that do not use it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnspec.conformance.in_process import check
    from attnspec.conformance.judge.call import observe
    from attnspec.conformance.judge.expected import expected
    from attnspec.conformance.recorded import record
    from attnspec.conformance.suite import find, items
    from attnspec.conformance.verdict import Verdict

__all__ = ["Verdict", "check", "expected", "find", "items", "observe", "record"]

_PLACES = {
    "check": "in_process",
    "observe": "judge.call",
    "record": "recorded",
    "expected": "judge.expected",
    "find": "suite",
    "items": "suite",
    "Verdict": "verdict",
}


def __getattr__(name: str) -> object:
    """Load the public names late."""
    if name in _PLACES:
        return getattr(import_module(f"attnspec.conformance.{_PLACES[name]}"), name)
    raise AttributeError(f"module 'attnspec.conformance' has no attribute {name!r}")
