"""The result of a run in one line. It says "conforms" only for a good run."""

from collections import Counter

from attnspec import levels
from attnspec.conformance.attribution.by_rule import about
from attnspec.conformance.attribution.messages import never_returned
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.outside import one_line
from attnspec.conformance.render.summary import lacks
from attnspec.conformance.results import Subject


def headline(report: Report) -> str:
    """Return the result of a run of one backend, or of several together.

    Examples
    --------
    >>> from attnspec.conformance.render.headline import headline
    >>> from attnspec.conformance.attribution.report import Report
    >>> from attnspec.conformance.results import Results
    >>> headline(Report(Results((), ())))
    'nothing was judged'
    """
    subjects = report.results.subjects
    if report.failures.stale and report.outcome is Outcome.FAILS and not report.failures.new:
        return "does not conform: entries of known failures no longer apply"
    if len(subjects) == 1:
        return headline_of(report, subjects[0])
    if not subjects:
        return "nothing was judged"
    if report.good:
        reached = [set(reached_by(report, subject)) for subject in subjects]
        names = [name for name in reached_by(report, subjects[0]) if all(name in its for its in reached)]
        return _good(report, names, len(report.failures.known))
    bad = [subject.name for subject in subjects if report.outcome_of(subject) is not Outcome.GOOD]
    return f"{len(bad)} of {len(subjects)} backends do not conform, or were not judged whole"


def headline_of(report: Report, subject: Subject) -> str:
    """Return the result of one backend."""
    outcome = report.outcome_of(subject)
    if outcome is Outcome.NOT_LOADED:
        return "was not judged: it could not be loaded"
    reached = reached_by(report, subject)
    failing = [verdict for verdict in report.failures.new if verdict.backend == subject.name]
    if outcome is Outcome.FAILS:
        rules = {about(verdict) for verdict in failing}
        more = f"; reaches {_levels(reached)}" if reached else ""
        more += lacks(report, subject)
        more += "; was not judged whole" if why_not_whole(report, subject) else ""
        if report.required:
            return f"does not conform to level {report.required}{more}"
        if never := never_returned(report.verdicts(subject)):
            return f"does not conform: {never}"
        return f"does not conform: {_fail(len(failing))} under {_number(len(rules), 'rule')}{more}"
    if outcome is Outcome.NOT_WHOLE:
        return "was not judged whole" if _judged(report, subject) else "was not judged"
    known = sum(verdict.backend == subject.name for verdict, _ in report.failures.known)
    if failing:
        return f"reaches level {report.required}, as required; {_fail(len(failing))} outside of it"
    if report.failures.stale:  # the run fails because of this, and not because of the backend
        return "does not fail, but entries of known failures no longer apply: remove them"
    return _good(report, list(reached), known) + lacks(report, subject)


def why_not_whole(report: Report, subject: Subject) -> str:
    """Return the reason that not all planned cases were judged. Empty if all were, or nothing was loaded.

    It may quote the implementation, so it is not a part of the headline.

    Examples
    --------
    >>> from attnspec.conformance.render.headline import why_not_whole
    >>> from attnspec.conformance.attribution.report import Report
    >>> from attnspec.conformance.results import Results, Subject
    >>> from attnspec.conformance.verdict import Verdict
    >>> lacking = Verdict("m:f", "c", "", ("MASK-1",), "unsupported", reason="m:f has no argument mask")
    >>> subject = Subject("m:f", "numpy", "2.4")
    >>> why_not_whole(Report(Results((subject,), (lacking,))), subject)
    'nothing that was asked for is offered: it has no argument mask'
    """
    if report.outcome_of(subject) is Outcome.NOT_LOADED:
        return ""
    verdicts = report.verdicts(subject)
    if subject.problem:
        said = subject.problem.partition(": ")[2] if subject.problem.startswith("backend ") else ""
        clause = (said or subject.problem).partition("; ")[0]  # the rest is advice
        messages = Counter(one.reason for one in verdicts if one.declined)
        own = f": {messages.most_common(1)[0][0]}" if messages and clause.startswith("declined ") else ""
        return one_line(clause + own)
    missing = len(report.results.missing.get(subject.name, ()))
    if missing:
        return f"{_number(missing, 'case')} {'has' if missing == 1 else 'have'} no verdict"
    if _judged(report, subject):
        return ""
    reasons = Counter(one.reason for one in verdicts if one.reason)
    if not reasons:
        return "nothing was asked"
    (reason, _), *_ = reasons.most_common(1)
    if any(one.code == "left out" for one in verdicts if one.reason == reason):
        return one_line(f"what it offers was {reason}")
    own = reason.removeprefix(f"{subject.name} ")
    return one_line(f"nothing that was asked for is offered: {'it ' if own != reason else ''}{own}")


def _judged(report: Report, subject: Subject) -> bool:
    """Whether any case of a backend was judged. Unsupported cases were not."""
    return any(verdict.status != "unsupported" for verdict in report.verdicts(subject))


def reached_by(report: Report, subject: Subject) -> tuple[str, ...]:
    """Return the levels that a backend reaches."""
    return tuple(standing.level for standing in report.standings(subject) if standing.reached)


def _good(report: Report, reached: list[str], known: int) -> str:
    but = f" but for {_number(known, 'known failure')}" if known else ""
    if not report.results.whole and not report.results.level:
        return f"passes the part of the suite that was run{but}; only a whole run reaches levels"
    if not report.good:  # another part of the run is not good
        return f"reaches {_levels(reached)}{but}"
    if known:
        return f"conforms{but}; reaches {_levels(reached)}"
    return f"conforms to {_levels(reached)}"


def _levels(names: list[str] | tuple[str, ...]) -> str:
    if len(names) == len(levels()):
        return "every level"
    return f"level{'s' * (len(names) > 1)} {', '.join(names)}" if names else "no level"


def _fail(number: int) -> str:
    return f"{_number(number, 'case')} {'fails' if number == 1 else 'fail'}"


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
