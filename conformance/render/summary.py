"""The summary of a run: the part of the suite, the result in one line, and lines about each backend."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from attnspec import OPERATIONS, levels
from attnspec.conformance.attribution.declined import declined_lines
from attnspec.conformance.attribution.exceptions import never_returns
from attnspec.conformance.attribution.finding import Finding
from attnspec.conformance.attribution.known_failures import Stale
from attnspec.conformance.attribution.levels import NOT_SHOWN
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.outside import one_line
from attnspec.conformance.render.counts import (
    budget_line,
    dtypes_line,
    gradients_line,
    left_out_line,
    number_of,
    options_line,
    some,
    time_line,
    unsupported_line,
    unsupported_lines,
)
from attnspec.conformance.render.text import brief
from attnspec.conformance.render.words import TRAITS, trait_text
from attnspec.conformance.results import Results, Subject
from attnspec.conformance.traits import EMPTY, FAR, HUGE, NOTHING, SPECIAL, negative
from attnspec.conformance.verdict import Verdict, shown_declarations

#: The largest number of rules that are named as missing for a level.
_MOST_RULES = 6
#: The largest number of cases of stale entries that are named.
_MOST_CASES = 3
#: If fewer values than this share of all were judged, the first line says so.
_FEW_VALUES = 0.02
#: The largest number of characters of the result of an unmet SHOULD.
_MOST_OF_UNMET = 70
#: One failing call may fail for another reason than its edge.
_SEVERAL = 2
#: The ends of ranges, which ordinary calls are far from.
_ENDS = (HUGE, FAR, SPECIAL, negative("key_positions"))
#: The edges at which a kernel that is right otherwise may fail, and both of them.
_EDGES = ((NOTHING,), (EMPTY,), (EMPTY, NOTHING))


def headline(report: Report) -> str:
    """Return the result of a run in one line.

    It says "conforms" only for a good run, or beside the edge that all failures of one backend share.
    """
    subjects = report.results.subjects
    if report.failures.stale and report.outcome is Outcome.FAILS and not report.failures.new:
        return "does not conform: entries of known failures no longer apply"
    if len(subjects) == 1:
        return backend_headline(report, subjects[0])
    if not subjects:
        return "nothing was judged"
    if report.good:
        good = _good(report, common_levels(report), len(report.failures.known))
        number = len(report.accepted)
        return f"{good}; refusals: {number_of(number, 'call')} accepted" if number else good
    bad = [subject.name for subject in subjects if report.outcome_of(subject) is not Outcome.GOOD]
    return f"{len(bad)} of {len(subjects)} backends do not conform, or were not judged whole"


def backend_headline(report: Report, subject: Subject) -> str:
    """Return the result of one backend in one line."""
    outcome = report.outcome_of(subject)
    if outcome is Outcome.NOT_LOADED:
        return "was not judged: it could not be loaded"
    if outcome is Outcome.NOT_WHOLE:
        return "was not judged whole" if _is_judged(report, subject) else "was not judged"
    if outcome is Outcome.FAILS and not report.level and (never := never_returns(report.verdicts(subject))):
        return f"does not conform: {never}"
    refusals, verdicts = refusals_verdict(report, subject), report.verdicts(subject)
    values = _values_verdict(report, subject) + _few_values(report, subject)
    if report.results.headers[0].part != "chosen" and (line := options_line(subject.options, verdicts)):
        values += f"; {line}"
    if outcome is Outcome.FAILS and re.search(r"no call confirmed: [^;]*\blayout\b", subject.note):
        values = f"its layout is a guess that no call confirmed; {values}"
    return f"values: {values}; refusals: {refusals}" if refusals else values


def _values_verdict(report: Report, subject: Subject) -> str:
    """Return the result of one backend that was judged, without the calls that must be rejected."""
    reached = report.levels_reached(subject)
    new = [verdict for verdict in report.failures.new if verdict.backend == subject.name]
    failing = [verdict for verdict in new if not verdict.refusal]
    lacking = missing_rules(report, subject)
    if report.level and report.outcome_of(subject) is Outcome.GOOD:
        more = f"; {_fail(len(failing))} outside of it" if failing else ""
        return f"reaches level {report.level}, as required{more}"
    more = f"; reaches {_levels(reached)}" if reached else ""
    more += lacking + ("; was not judged whole" if why_not_whole(report, subject) else "")
    if report.level:
        return f"does not conform to level {report.level}{more}"
    if failing:
        rules = {verdict.main_rule for verdict in failing}
        edge = _limits_of(failing, report.verdicts(subject))
        result = f"conforms but for calls {edge}" if edge else "does not conform"
        return f"{result}: {_fail(len(failing))} under {number_of(len(rules), 'rule')}{more}"
    known = sum(verdict.backend == subject.name for verdict, _ in report.failures.known)
    if report.failures.stale and not new:  # the run fails because of this, and not because of the backend
        return "does not fail, but entries of known failures no longer apply: remove them"
    return _good(report, reached, known, good=report.good or bool(new)) + lacking


def _limits_of(failing: Sequence[Verdict], verdicts: Sequence[Verdict]) -> str:
    """Say at which ends of ranges, or beside these at which edge, all failing cases are.

    A call with the options of each one at an end, and with other numbers, has to pass.
    """
    at_end = [verdict for verdict in failing if {*_ENDS} & {*verdict.traits}]
    judged = [{*x.traits} for x in verdicts if x.status in ("pass", "deviation")]
    right = [having for having in judged if not {*_ENDS} & having]
    options = [{*OPERATIONS[x.operation or "attention"].options} & {*x.traits} for x in at_end]
    if not all(any(given <= having for having in right) for given in options):
        return ""
    others = [verdict for verdict in failing if verdict not in at_end]
    edge = _edge_of(others, verdicts) if others else ""
    ends = [trait_text(end) for end in _ENDS if any(end in verdict.traits for verdict in at_end)]
    return " or ".join([*ends, *filter(None, [edge])]) if edge or not others else ""


def _edge_of(failing: Sequence[Verdict], verdicts: Iterable[Verdict]) -> str:
    """Say which edge all failing cases share, if most calls with it fail and others pass."""
    if len({verdict.stem for verdict in failing}) < _SEVERAL or any(map(_is_other_row, failing)):
        return ""
    for edges in _EDGES:
        if all({*edges} & {*verdict.traits} for verdict in failing):
            passing = [bool({*edges} & {*x.traits}) for x in verdicts if x.status == "pass"]
            clear = passing.count(True) < len(failing) < passing.count(False)
            return " or ".join(TRAITS[edge] for edge in edges) if clear else ""
    return ""


def _is_other_row(verdict: Verdict) -> bool:
    """Whether a wrong number stands where another one is expected than 0, which no edge leaves."""
    off = verdict.difference
    if off is None or isinstance(off.got, str) or isinstance(off.expected, str):
        return False
    return isfinite(off.got) and isfinite(off.expected) and off.expected != 0


def _few_values(report: Report, subject: Subject) -> str:
    """Say how many values of its operations were judged, if they are few of all."""
    values = [verdict for verdict in report.verdicts(subject) if not verdict.refusal]
    judged = sum(verdict.status != "unsupported" for verdict in values)
    if not 0 < judged < _FEW_VALUES * len(values):
        return ""
    operations = sorted({verdict.operation for verdict in values if verdict.status != "unsupported"})
    own = sum(verdict.operation in operations for verdict in values)
    of = f" of {' and '.join(operations)}" if all(operations) else ""
    return f"; only {judged} of {own} values{of} were judged"


def refusals_verdict(report: Report, subject: Subject) -> str:
    """Return the result of the calls that must be rejected. Empty if none was judged."""
    judged = any(verdict.refusal and verdict.status != "unsupported" for verdict in report.verdicts(subject))
    new = [v for v in report.failures.new if v.backend == subject.name and v.refusal]
    others = sum(not verdict.accepts for verdict in new)
    number = len(new) - others + sum(verdict.backend == subject.name for verdict in report.accepted)
    are = "is" if number == 1 else "are"
    calls = [f"{number_of(number, 'call')} {are} accepted that the standard rejects"] if number else []
    calls += [f"{_fail(others)}{' otherwise' if number else ''}"] if others else []
    if calls:
        return f"{'does not conform: ' if new else ''}{', '.join(calls)}"
    return "conforms" if judged else ""


def why_not_whole(report: Report, subject: Subject) -> str:
    """Return the reason that not all planned cases were judged. Empty if all were, or nothing was loaded.

    It may quote the implementation, so it is not a part of the headline.
    """
    if report.outcome_of(subject) is Outcome.NOT_LOADED:
        return ""
    verdicts = report.verdicts(subject)
    if subject.problem:
        # What follows a semicolon is advice.
        clause = subject.problem.removeprefix(f"backend {subject.name}: ").partition("; ")[0]
        declined = Counter(verdict.reason for verdict in verdicts if verdict.declined)
        judged = sum(verdict.status != "unsupported" for verdict in verdicts)
        # The problem of a run to its end that declined most calls is that it did.
        mostly = declined.total() > judged and not report.results.missing.get(subject.name)
        message = f": {declined.most_common(1)[0][0]}" if mostly else ""
        return one_line(clause + message)
    missing = len(report.results.missing.get(subject.name, ()))
    if missing:
        return f"{number_of(missing, 'case')} {'has' if missing == 1 else 'have'} no verdict"
    if _is_judged(report, subject):
        return ""
    reasons = Counter(verdict.reason for verdict in verdicts if verdict.reason)
    if not reasons:
        return "nothing was asked"
    ((reason, _),) = reasons.most_common(1)
    if any(verdict.code == "left out" for verdict in verdicts if verdict.reason == reason):
        return one_line(f"what it offers was {reason}")
    own = reason.removeprefix(f"{subject.name} ")
    return one_line(f"nothing that was asked for is offered: {'it ' if own != reason else ''}{own}")


def common_levels(report: Report) -> list[str]:
    """Return the levels that all backends of a run reach."""
    first, *others = (report.levels_reached(subject) for subject in report.results.subjects)
    return [name for name in first if all(name in reached for reached in others)]


def levels_line(report: Report, subject: Subject) -> str:
    """Return the levels that a backend reaches, and what it lacks for the next."""
    standings = report.standings(subject)
    if not standings:
        cut = subject.problem or report.results.missing.get(subject.name)
        why = "the backend was not judged completely" if cut else "the suite was not run as a whole"
        return f"not determined, because {why}"
    return (", ".join(report.levels_reached(subject)) or "none") + missing_rules(report, subject)


def missing_rules(report: Report, subject: Subject) -> str:
    """Return what a backend lacks for the nearest level of which it offers something, or an empty string."""
    accepts = any(verdict.backend == subject.name for verdict in report.accepted)
    lacking = [
        standing
        for standing in report.standings(subject)
        if not standing.reached and not (accepts and standing.level == "strict")
    ]
    offered = [
        standing for standing in lacking if not {*standing.missing.values()} <= {"unsupported", NOT_SHOWN}
    ]
    if not offered:
        return ""
    # Most levels build on `core`, so what is missing for `core` is reported first, unless it is not offered.
    nearest = min(
        offered,
        key=lambda standing: (
            standing.level != "core" or "unsupported" in standing.missing.values(),
            len(standing.missing),
        ),
    )
    rules = [f"{rule} ({result})" for rule, result in nearest.missing.items()]
    return f"; {nearest.level} lacks {some(rules, _MOST_RULES)}"


def run_line(results: Results) -> str:
    """Describe which part of the suite was run, and with which cases."""
    headers = results.headers
    names = (f"level {header.level}" if header.part == "level" else header.part for header in headers)
    parts = ", ".join(dict.fromkeys(names)) or "nothing"
    planned = sum(len(header.cases) for header in headers)
    if missing := sum(map(len, results.missing.values())):
        whole = "not whole" if parts == "whole" else parts
        parts = f"{whole}: {missing} of {planned} cases of the plan were not judged"
    seeds = {header.seed for header in headers} - {None}
    if seeds:
        return f"run: {parts} (seed {', '.join(map(str, sorted(seeds, key=str)))})"
    if headers and headers[0].part == "sizes":
        return f"run: {parts}"
    if planned and all(case.startswith("sizes-") for header in headers for case in header.cases):
        return f"run: {parts} sizes"
    return f"run: {parts} (the fixed cases; --seed N draws others, --sizes larger ones)"


def unmet_lines(unmet: Sequence[Finding], *, every: bool) -> Iterator[str]:
    """Describe the SHOULD rules that one backend does not meet, in a line each if every one is asked for."""
    if every or len(unmet) == 1:
        yield from map(unmet_line, unmet)
    elif unmet:
        rules = ", ".join(f"{finding.rule} ({number_of(len(finding.failures), 'case')})" for finding in unmet)
        yield f"SHOULD not met, which fails no run: {rules}"


def unmet_line(finding: Finding) -> str:
    """Describe an unmet SHOULD without its title, which is in the table."""
    number = len(finding.failures)
    cases = f" ({number} cases)" if number > 1 else ""
    result = brief(finding.failures[0])
    result = result if len(result) <= _MOST_OF_UNMET else f"{result[:_MOST_OF_UNMET]}..."
    return (
        f"SHOULD not met: {finding.rule}{cases}: {result}; fails no run; see attnspec explain {finding.rule}"
    )


def stale_line(stale: Stale) -> str:
    """Say what to do about entries of known failures that no longer apply."""
    names, backend = stale.cases, stale.backend
    single, them = len(names) == 1, "it" if len(names) == 1 else "them"
    named = some(names, _MOST_CASES)
    of = f"{stale.rule} {named} on {backend}:" if single else f"{stale.rule} on {backend}: {len(names)} cases"
    if stale.now:
        fails = f"{'fails' if single else 'fail'} under {' and '.join(stale.now)} now"
        advice = f"{fails}, not as {stale.status}; look at {them} again"
    else:
        advice = f"{'does' if single else 'do'} not fail any more; remove {them}"
    return f"{of} {advice}" + ("" if single else f": {named}")


def other_part_line(parts: tuple[str, str]) -> str:
    """Say that a file of known failures was written from another part of the suite than that of the run."""
    return (
        f"hint: the file of known failures was written from a {parts[0]} run and has only the cases of that "
        f"run, but this run is {parts[1]}: use --write-known-failures with the options of this run"
    )


def backend_lines(report: Report, subject: Subject, *, every: bool = True) -> Iterator[str]:
    """Yield the lines about one backend: what it does not offer, its budget and the time.

    What it does not offer is one line, and none beside failures, unless `every` asks for every reason.
    """
    verdicts = report.verdicts(subject)
    if verdicts:
        if every:
            yield from unsupported_lines(verdicts)
        elif report.outcome_of(subject) is not Outcome.FAILS:
            yield from filter(None, [unsupported_line(verdicts)])
        yield from declined_lines(verdicts, report.seed)
        lines = [left_out_line(verdicts), gradients_line(verdicts), budget_line(verdicts)]
        if report.results.headers[0].part != "chosen":
            lines.append(dtypes_line(verdicts))
        if report.results.headers[0].part in ("quick", "smoke"):  # of a whole run this is an error
            lines.append(_not_verified_line(subject, verdicts))
        yield from filter(None, [*lines, time_line(verdicts)])


def _not_verified_line(subject: Subject, verdicts: Sequence[Verdict]) -> str:
    """Name the declarations that no call of a part of the suite has shown or refuted."""
    # `attnspec init` writes NUM-2 after a call that shows it, which few parts have.
    seen = {"NUM-2"} | shown_declarations(verdicts) | {verdict.rule for verdict in verdicts if verdict.bad}
    keys = [key for key in subject.declares.split(",") if key and seen.isdisjoint((key, key.split()[0]))]
    named = f"declared, not verified: no call of this run shows {some(keys, _MOST_RULES)}"
    return one_line(named) if keys else ""


def _is_judged(report: Report, subject: Subject) -> bool:
    """Whether any case of a backend was judged. Unsupported cases were not."""
    return any(verdict.status != "unsupported" for verdict in report.verdicts(subject))


def _good(report: Report, reached: Sequence[str], known: int, *, good: bool = True) -> str:
    but = f" but for {number_of(known, 'known failure')}" if known else ""
    if not report.results.whole and not report.results.level:
        return f"passes the part of the suite that was run{but}; only a whole run reaches levels"
    if not good:  # another part of the run is not good
        return f"reaches {_levels(reached)}{but}"
    if known:
        return f"conforms{but}; reaches {_levels(reached)}"
    return f"conforms to {_levels(reached)}" if reached else "conforms; what it offers is no whole level"


def _levels(names: Sequence[str]) -> str:
    if len(names) == len(levels()):
        return "every level"
    return f"level{'s' * (len(names) > 1)} {', '.join(names)}" if names else "no level"


def _fail(number: int) -> str:
    return f"{number_of(number, 'case')} {'fails' if number == 1 else 'fail'}"
