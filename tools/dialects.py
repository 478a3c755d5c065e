"""Generates the tables of `spec/dialects.md`, which show the rules on which libraries differ.

Those of the libraries of this package are made from the declared variants and deviations of their backends,
and from a call for each question about gradients. A complete run of the suite fails if a declaration is
wrong, so the tables are verified. Those of other libraries are made from files of results of whole runs,
because each of them has an environment of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from attnspec import Case, Rule, cases, rules
from attnspec.backends import NAMES, Backend, Deviation, Unsupported, load
from attnspec.backends.errors import NotDifferentiable
from attnspec.backends.names import PORTABLE
from attnspec.citations import cited
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.judge.expected import exact
from attnspec.conformance.judge.failure import Declined, Failure, Missing, Raised
from attnspec.conformance.judge.judge import applicable_rules
from attnspec.conformance.results import Results
from attnspec.conformance.results_file import read
from attnspec.conformance.verdict import Verdict
from attnspec.dialect import described
from attnspec.errors import SpecError
from tools.findings import place_of

PAGE = Path(__file__).resolve().parents[1] / "spec" / "dialects.md"
_HEADING = "The numbers in the table stand for these deviations:"
_GRADIENTS = """### Gradients

The gradients that the libraries compute by automatic differentiation, from one call for each cell.
A call that a backend does not offer has an empty cell. `raises`: the library does not differentiate it.
`mean`: the query contributes the mean of its cotangents to the gradient of every value."""


def page(backends: Sequence[Backend]) -> str:
    """Return the generated part of the page: versions, the table, and the list of deviations."""
    versions = dict.fromkeys(f"{backend.library} {backend.version}" for backend in backends)
    parts = [
        f"Verified on {', '.join(versions)}.",
        declarations_table(backends),
        _HEADING,
        deviation_table(backends),
    ]
    parts += [
        _GRADIENTS,
        gradient_table([backend for backend in backends if backend.function("attention_vjp")]),
    ]
    return "\n\n".join(parts) + "\n"


def declarations_table(backends: Sequence[Backend]) -> str:
    """Return a table with a row for each rule that has variants or from which a backend deviates."""
    numbers = _numbers(backends)
    lines = [
        f"| rule | | {' | '.join(backend.name for backend in backends)} |",
        f"| --- | --- |{' --- |' * len(backends)}",
    ]
    for rule in rules():
        if rule.variants or any(_deviations(rule, backend) for backend in backends):
            cells = " | ".join(declared_cell(rule, backend, numbers) for backend in backends)
            lines.append(f"| [{rule.id}] | {rule.title} | {cells} |")
    return "\n".join(lines)


def declared_cell(rule: Rule, backend: Backend, numbers: Mapping[Deviation, int]) -> str:
    """Return the cell of a rule and a backend."""
    theirs = _deviations(rule, backend)
    if rule.id in backend.dialect:
        said = f"`{described(backend.dialect)[rule.id]}`"
    elif any(deviation.is_general for deviation in theirs):
        said = "deviates"
    else:
        said = "holds" if theirs or is_offered(rule, backend) else ""
    if not theirs:
        return said
    listed = ", ".join(str(numbers[deviation]) for deviation in theirs)
    return f"{said} ({listed})" if said == "deviates" else f"{said} but for ({listed})"


def is_offered(rule: Rule, backend: Backend) -> bool:
    """Whether a rule applies to a backend: it accepts the call of some golden vector of the rule."""
    return any(_takes(backend, rule, case) for case in cases() if rule.id in case.rules)


def deviation_table(backends: Sequence[Backend]) -> str:
    """Return the table of deviations, with the backends and the script that shows each."""
    lines = ["| | rule | what happens instead | where | shown by |", "| --- | --- | --- | --- | --- |"]
    for deviation, number in _numbers(backends).items():
        where = ", ".join(backend.name for backend in backends if deviation in backend.deviations)
        if deviation.dtypes:
            where += f"; {', '.join(deviation.dtypes)}"
        shown = deviation.source
        if not shown.startswith("https://"):
            shown = f"[{shown}](../backends/findings/{place_of(shown)})"
        lines.append(f"| {number} | [{deviation.rules[0]}] | {deviation.reason} | {where} | {shown} |")
    return "\n".join(lines)


def native_backends() -> list[Backend]:
    """Load every backend with a declaration, but those of the portable code, which is ours."""
    native = (load(name) for name in NAMES if name not in PORTABLE)
    return [backend for backend in native if backend.dialect or backend.deviations]


def replace_part(text: str, part: str, generated: str) -> str:
    """Replace the text between the marks of a generated part of the page."""
    begin, end = (f"<!-- {word}: {part}, by tools.dialects -->" for word in ("begin", "end"))
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SpecError(f"dialects: expected {begin} and {end} once each")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{generated.strip()}\n\n{end}{rest.partition(end)[2]}"


def _numbers(backends: Sequence[Backend]) -> dict[Deviation, int]:
    """Return the number of each deviation, in the order of their rules."""
    order = {rule.id: place for place, rule in enumerate(rules())}
    found = dict.fromkeys(deviation for backend in backends for deviation in backend.deviations)
    sorted_by_rule = sorted(found, key=lambda deviation: order[deviation.rules[0]])
    return {deviation: number for number, deviation in enumerate(sorted_by_rule, start=1)}


def _deviations(rule: Rule, backend: Backend) -> list[Deviation]:
    return [deviation for deviation in backend.deviations if deviation.rules[0] == rule.id]


def _takes(backend: Backend, rule: Rule, case: Case) -> bool:
    each = (one_dtype for one_dtype in in_each(case, backend.dtypes) if _is_asked(backend, rule, one_dtype))
    found = next(each, None)
    if found is None:
        return False
    given = (found.arguments, _with_one_depth(found.arguments))
    return any(_offers(backend, case.operation, arguments) for arguments in given)


def _is_asked(backend: Backend, rule: Rule, case: Case) -> bool:
    try:
        return rule.id in applicable_rules(backend, case)
    except Unsupported:
        return False


def _with_one_depth(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Give the values the depth of the keys, because some libraries require it and few rules are about it."""
    if not {"key", "value"} <= set(arguments):
        return dict(arguments)
    key, value = (arguments[name] for name in ("key", "value"))
    return {**arguments, "value": np.resize(value, (*value.shape[:-1], key.shape[-1]))}


def _offers(backend: Backend, operation: str, arguments: Mapping[str, Any]) -> bool:
    try:
        call(backend, operation, arguments)
    except Unsupported:
        return False
    except (Failure, Raised):
        return True
    return True


_VJP = "attention_vjp"
Arguments = Mapping[str, Any]


def gradient_table(backends: Sequence[Backend]) -> str:
    """Write a row for each question about gradients, with a column for each backend."""
    lines = [
        f"| gradients with | {' | '.join(backend.name for backend in backends)} |",
        f"| --- |{' --- |' * len(backends)}",
    ]
    lines += [
        f"| {what} | {' | '.join(gradient_cell(ask, backend) for backend in backends)} |"
        for what, ask in QUESTIONS.items()
    ]
    return "\n".join(lines)


def gradient_cell(ask: Callable[[Backend], str], backend: Backend) -> str:
    """Answer a question about a backend; empty if it does not offer the call, or ``raises``."""
    try:
        return ask(backend)
    except Missing:
        return ""
    except (Raised, Declined):
        return "raises"
    except Unsupported as unsupported:
        return "raises" if isinstance(unsupported, NotDifferentiable) else ""
    except Failure:
        return "none"


def _problem(**options: Any) -> dict[str, Any]:
    """Make a call of two queries and three keys, of which the options disallow some."""
    random = np.random.default_rng(7)
    shapes = {"query": (1, 1, 2, 4), "key": (1, 1, 3, 4), "value": (1, 1, 3, 4), "d_output": (1, 1, 2, 4)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | options


def _empty(**options: Any) -> Callable[[Backend], str]:
    """Describe the gradient of a query without an allowed key."""

    def ask(backend: Backend) -> str:
        arguments = _problem(**options)
        got = call(backend, _VJP, arguments)
        for said, dialect in (("0", {}), ("mean", {"GRAD-10": "uniform"}), ("NaN", {"GRAD-10": "nan"})):
            if _same(got, exact(_VJP, arguments, dialect)):
                return said
        return _kind(got)

    return ask


def _describe_padding(**options: Any) -> Callable[[Backend], str]:
    """Describe whether NaN in a key and a value that no query attends to reaches a gradient."""

    def ask(backend: Backend) -> str:
        arguments = _problem(**options)
        clean = exact(_VJP, arguments)
        for name in ("key", "value"):
            arguments[name][..., 2, :] = np.nan
        got = call(backend, _VJP, arguments)
        return "no trace" if _same(got, clean) else _kind(got)

    return ask


def _describe_lse(backend: Backend) -> str:
    arguments = _problem(d_lse=np.array([[[0.5, -2.0]]], np.float32))
    got = call(backend, _VJP, arguments)
    for said, dialect in (("counts", {}), ("ignored", {"GRAD-6": "ignored"})):
        if _same(got, exact(_VJP, arguments, dialect)):
            return said
    return _kind(got)


def _describe_bias(backend: Backend) -> str:
    bias = np.array([[0.5, -np.inf, 1.0], [0.0, 1.0, -1.0]], np.float32)
    got = call(backend, _VJP, _problem(bias=bias))["d_bias"][0, 1]
    return "0" if got == 0 else "NaN" if np.isnan(got) else "not 0"


def _same(got: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return all(np.allclose(got[name], values[name], 1e-3, 1e-5, equal_nan=True) for name in got)


def _kind(got: Mapping[str, Any]) -> str:
    return "NaN" if any(np.isnan(gradient).any() for gradient in got.values()) else "other numbers"


_ROW = np.array([[True, False, True], [False, False, False]])
#: The questions, each with the function that answers it.
QUESTIONS: Mapping[str, Callable[[Backend], str]] = {
    "a query whose keys a mask all disallows": _empty(mask=_ROW),
    "a query whose keys a bias of minus infinity all disallows": _empty(
        bias=np.where(_ROW, 0, -np.inf).astype(np.float32)
    ),
    "a query past its length": _empty(query_lengths=1),
    "no key within the length": _empty(key_lengths=0),
    "NaN in a key and a value past the length": _describe_padding(key_lengths=2),
    "NaN in a key and a value that a mask disallows for all queries": _describe_padding(
        mask=np.array([True, True, False])
    ),
    "a cotangent of the lse": _describe_lse,
    "a bias of minus infinity, at its place in `d_bias`": _describe_bias,
}


def results_table(results: Results) -> str:
    """Return a table with a row for each rule that some backend does not simply hold."""
    partial = [header.part for header in results.headers if header.part != "whole"]
    if partial:
        raise SpecError(f"results: expected whole runs, got {', '.join(partial)}")
    names = [subject.name.partition("?")[0] for subject in results.subjects]
    lines = [f"| rule | | {' | '.join(names)} |", f"| --- | --- |{' --- |' * len(names)}"]
    judged: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in results.verdicts:
        for name in {*verdict.rules, verdict.rule} - {""}:
            judged.setdefault((verdict.backend, name), []).append(verdict)
    for rule in rules():
        cells = [judged_cell(rule, judged.get((subject.name, rule.id), ())) for subject in results.subjects]
        if set(cells) - {"", "holds"}:
            lines.append(f"| [{rule.id}] | {rule.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def judged_cell(rule: Rule, verdicts: Sequence[Verdict]) -> str:
    """Describe what a backend does with a rule, from its verdicts on the cases of the rule."""
    own = [verdict for verdict in verdicts if verdict.rule in ("", rule.id)]
    shown = [verdict for verdict in own if verdict.status == "deviation"]
    variants = dict.fromkeys(verdict.variant for verdict in shown if verdict.variant and not verdict.declared)
    declared = any(verdict.declared for verdict in shown)
    said = [f"`{name}`" for name in variants] + (["deviates"] if declared else [])
    if any(verdict.bad for verdict in own):
        said.append("fails")
    if any(verdict.status == "should not met" for verdict in own):
        said.append("not met")
    return ", ".join(said) or ("holds" if any(verdict.status == "pass" for verdict in verdicts) else "")


def headlines(results: Results) -> str:
    """Return a table of the backends: the release, and how many calls have which verdict."""
    lines = ["| backend | release | pass | deviation | should not met | unsupported |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for subject in results.subjects:
        own = [verdict for verdict in results.verdicts if verdict.backend == subject.name and verdict.case]
        counts: Mapping[str, int] = {
            status: sum(verdict.status == status for verdict in own)
            for status in ("pass", "deviation", "should not met", "unsupported", "fail", "error")
        }
        wrong = counts["fail"] + counts["error"]
        named = subject.name + (f", {wrong} not declared" if wrong else "")
        shown = " | ".join(str(counts[status]) for status in list(counts)[:4])
        lines.append(f"| {named} | {subject.library} {subject.version} | {shown} |")
    return "\n".join(lines)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--write", is_flag=True, help="Write the part of spec/dialects.md instead of printing it.")
def main(files: tuple[Path, ...], *, write: bool) -> None:
    """Make the tables of the installed libraries, or of FILES with the results of whole runs of others."""
    if files:
        results = read(files)
        part, generated = "results", f"{headlines(results)}\n\n{results_table(results)}"
    else:
        part, generated = "declarations", page(native_backends())
    if write:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(cited(replace_part(text, part, generated)), encoding="utf-8")
    else:
        click.echo(generated)


if __name__ == "__main__":
    main()
