"""Generates a table of the rules on which libraries differ from files of results of whole runs.

`python -m tools.compared results/*.jsonl --write spec/dialects.md` writes it into the
page. The backends need not be installed, because each library has an environment of its own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from attnspec import Rule, rules
from attnspec.citations import cited
from attnspec.conformance.results import Results, Subject, read
from attnspec.conformance.verdict import Verdict
from attnspec.errors import SpecError

#: The marks around the generated part of the page.
BEGIN, END = (
    "<!-- begin: tools.compared -->",
    "<!-- end: tools.compared -->",
)


def table(results: Results) -> str:
    """Return a table with a row for each rule that some backend does not simply hold."""
    partial = [header.part for header in results.headers if header.part != "whole"]
    if partial:
        raise SpecError(f"results: expected whole runs, got {', '.join(partial)}")
    names = [_column(subject) for subject in results.subjects]
    lines = [f"| rule | | {' | '.join(names)} |", f"| --- | --- |{' --- |' * len(names)}"]
    judged: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in results.verdicts:
        for name in {*verdict.rules, verdict.rule} - {""}:
            judged.setdefault((verdict.backend, name), []).append(verdict)
    for rule in rules():
        cells = [cell(rule, judged.get((subject.name, rule.id), ())) for subject in results.subjects]
        if set(cells) - {"", "holds"}:
            lines.append(f"| [{rule.id}] | {rule.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(rule: Rule, verdicts: Sequence[Verdict]) -> str:
    """Describe what a backend does with a rule, from its verdicts on the cases of the rule.

    Examples
    --------
    >>> from attnspec import find_rule
    >>> from tools.compared import cell
    >>> from attnspec.conformance.verdict import Verdict
    >>> passing = Verdict("b", "a", "", ("MASK-6",), "pass")
    >>> nan = Verdict("b", "c", "", ("MASK-6",), "deviation", rule="MASK-6", variant="nan")
    >>> cell(find_rule("MASK-6"), [passing]), cell(find_rule("MASK-6"), [passing, nan])
    ('holds', '`nan`')
    """
    own = [one for one in verdicts if one.rule in ("", rule.id)]
    shown = [one for one in own if one.status == "deviation"]
    variants = dict.fromkeys(one.variant for one in shown if one.variant and not one.declared)
    declared = any(one.declared for one in shown)
    said = [f"`{name}`" for name in variants] + (["deviates"] if declared else [])
    if any(one.bad for one in own):
        said.append("fails")
    if any(one.status == "should not met" for one in own):
        said.append("not met")
    return ", ".join(said) or ("holds" if any(one.status == "pass" for one in verdicts) else "")


def headlines(results: Results) -> str:
    """Return a table of the backends: the release, and how many calls have which verdict."""
    lines = ["| backend | release | pass | deviation | should not met | unsupported |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for subject in results.subjects:
        own = [one for one in results.verdicts if one.backend == subject.name and one.case]
        counts: Mapping[str, int] = {
            status: sum(one.status == status for one in own)
            for status in ("pass", "deviation", "should not met", "unsupported", "fail", "error")
        }
        wrong = counts["fail"] + counts["error"]
        named = subject.name + (f", {wrong} not declared" if wrong else "")
        shown = " | ".join(str(counts[status]) for status in list(counts)[:4])
        lines.append(f"| {named} | {subject.library} {subject.version} | {shown} |")
    return "\n".join(lines)


def replaced(text: str, generated: str) -> str:
    """Replace the text between the marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SpecError(f"dialects: expected {BEGIN} and {END} once each")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{rest.partition(END)[2]}"


def _column(subject: Subject) -> str:
    return subject.name.partition("?")[0]


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--write", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="spec/dialects.md"
)
def main(files: tuple[Path, ...], write: Path | None) -> None:
    """Print the tables of results of whole runs, or write them into the page."""
    results = read(files)
    generated = f"{headlines(results)}\n\n{table(results)}"
    if write is None:
        click.echo(generated)
    else:
        write.write_text(cited(replaced(write.read_text(encoding="utf-8"), generated)), encoding="utf-8")


if __name__ == "__main__":
    main()
