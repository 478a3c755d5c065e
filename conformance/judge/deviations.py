"""Declared deviations: which of them a failure is, and which of them a run has shown."""

from collections.abc import Iterable, Mapping
from typing import Any

from attnspec.backends import Backend, Deviation
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.verdict import Subject, Verdict

#: Those that the test under way has shown, and its name.
_SHOWN: list[Deviation] = []
_TEST: list[str] = [""]


def begin(test: str) -> None:
    """Forget what the test before has shown."""
    _SHOWN.clear()
    _TEST[0] = test


def current_test() -> str:
    """Name the test under way."""
    return _TEST[0]


def shown() -> tuple[Deviation, ...]:
    """Tell which declared deviations the test under way has shown so far."""
    return tuple(dict.fromkeys(_SHOWN))


def excused(
    backend: Backend,
    rule: str,
    arguments: Mapping[str, Any],
    *,
    dtype: str = "",
    output: str = "",
) -> bool:
    """Whether a rule that is broken is one that the backend has declared, for just such a call.

    Parameters
    ----------
    backend : Backend
    rule : str
        The rule that is broken.
    arguments : mapping
        Those of the call, as NumPy arrays.
    dtype : str, optional
        That of the call.
    output : str, optional
        The output that shows it; none where it is refused or raised what must not be.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from attnspec.backends import Deviation, load
    >>> from attnspec.conformance.judge.deviations import excused
    >>> deviation = Deviation(("ERR-6",), "any scale is taken", "scale", dtypes=("float16",))
    >>> backend = replace(load("numpy-portable"), deviations=(deviation,))
    >>> excused(backend, "ERR-6", {}, dtype="float16"), excused(backend, "ERR-6", {}, dtype="float32")
    (True, False)
    """
    for deviation in backend.deviations:
        if deviation.covers(rule, arguments, dtype=dtype, output=output):
            _SHOWN.append(deviation)
            return True
    return False


def fail(backend: Backend, failure: Failure, arguments: Mapping[str, Any], dtype: str = "") -> None:
    """Raise a failure that is not a declared deviation.

    Raises
    ------
    Failure
        The one given.
    """
    if not excused(backend, failure.rule, arguments, dtype=dtype):
        raise failure


def not_shown(judged: Iterable[tuple[Subject, Backend | None]], verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Find what backends have declared and a whole run has not shown: it is an error, too."""
    seen = {
        (verdict.backend, text) for verdict in verdicts for text in (*verdict.declared, *verdict.deviates)
    }
    missing = []
    for _, backend in judged:
        if backend is None:
            continue
        declared = [(rule, rule, f"variant `{variant}`") for rule, variant in backend.dialect.items()]
        declared += [(x.rules[0], x.id, f"deviation ({x.reason})") for x in backend.deviations]
        for rule, key, what in declared:
            if (backend.name, key) not in seen:
                message = f"{rule}: {backend.name} declares the {what}, and no test of a whole run shows it"
                missing.append(Verdict(backend.name, (rule,), "end of the run", "error", message))
    return missing
