"""``python -m tools.gallery``: judges the suite by the gallery, and writes what was measured.

`--write` stores the kills and the quality of the diagnosis in ``kills.json``, and writes
``build/gallery.md``: the tables of all entries and of what kills each of them. `--page` writes the page from
what is stored.
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from attnspec import find_rule, rules
from attnspec.conformance.gallery import KINDS, NEEDS, Entry, correct_entries, wrong_entries
from attnspec.conformance.gallery.kills import FILE, Kill, read_kills
from tools.diagnosis import SAMPLE, Counts, count, diagnose, report
from tools.kill_matrix import Finding, kills_elsewhere, matrix, problems, summary, unbroken_rules


@dataclass(frozen=True)
class Measurement:
    """The results of one measurement of the whole gallery."""

    kills: Mapping[str, Kill]  # the kills, by the names of the wrong entries
    diagnosis: Counts  # the numbers of wrong entries that are named rightly and wrongly


def kills(findings: Iterable[Finding], quick: Iterable[Finding]) -> dict[str, Kill]:
    """Take the kills from the findings of the whole suite and of its quick part."""
    quickly = {finding.entry for finding in quick if finding.killed_by}
    return {
        finding.entry: Kill(finding.killed_by, finding.entry in quickly)
        for finding in findings
        if finding.rule
    }


def read(path: Path = FILE) -> Measurement:
    """Read the stored measurement."""
    return Measurement(read_kills(path), Counts(**json.loads(path.read_text(encoding="utf-8"))["diagnosis"]))


def store(measurement: Measurement, path: Path = FILE) -> None:
    """Store a measurement."""
    content = asdict(measurement)
    for kill in content["kills"].values():
        for name in ("other", "reported"):
            if not kill[name]:
                del kill[name]
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8", newline="\n")


PAGE = Path(__file__).resolve().parents[1] / "build" / "gallery.md"

_HEAD = """\
# What kills the entries of the gallery

The gallery has {wrong} wrong implementations, which break {broken} of {rules} rules, and {correct} correct
ones. `conformance/gallery/README.md` says what they are.

In the tables, *killed by* is the cheapest case that reports the broken rule. The cases of a rule are tried in
this order: golden vectors by size and dtype, generated cases, relations between calls. *Quick* says whether
the part of the suite that `--quick` runs also kills the entry. It kills {quick} of {wrong} entries. *Seen* is
a public thread about such a bug.

Some entries are wrong only past the sizes of the ordinary run, or only in many calls. No case of their own
rule kills these {survivors} entries. The ordinary run kills {otherwise} of them under another rule. `--sizes`
kills {sized} more, by its cases of up to 2^32 multiplications. The table then lists the case and the rule
that it reports.{left} For each of these entries, `conformance/gallery/edges/needs.json` has a call that shows
the bug. Tests make these calls.

## Diagnosis

`python -m tools.diagnosis` puts each wrong entry on another base and diagnoses it on calls of another seed.
It then repeats this without the entry itself. Any name in the second measurement is that of a similar entry,
which these calls do not distinguish:

```text
{said}
```

"""


def page(measurement: Measurement) -> str:
    """Write the page of a measurement."""
    kills, wrong, correct = measurement.kills, wrong_entries(), correct_entries()
    late = [kills[entry.name] for entry in wrong if entry.needs and not kills[entry.name].case]
    head = _HEAD.format(
        wrong=len(wrong),
        correct=len(correct),
        rules=len(rules()),
        broken=len({entry.rule for entry in wrong}),
        quick=sum(kills[entry.name].quick for entry in wrong),
        said=report(measurement.diagnosis),
        survivors=len(late),
        otherwise=sum(kill.ordinary for kill in late),
        sized=sum(bool(kill.other) and not kill.ordinary for kill in late),
        left=_needs([kill for kill in late if not kill.other]),
    )
    kinds = [f"- {letter}: {text}" for letter, text in KINDS.items()]
    parts = [head, "\n".join(["## Classes of bugs", "", *kinds]) + "\n"]
    order = [rule.id for rule in rules()]
    for chapter in dict.fromkeys(rule.chapter for rule in rules()):
        entries = [entry for entry in wrong if find_rule(entry.rule).chapter == chapter]
        entries.sort(key=lambda entry: order.index(entry.rule))
        columns = ("name", "rule", "what it does", "class", "seen", "killed by", "quick")
        rows = [_row(entry, kills[entry.name]) for entry in entries]
        parts.append("\n".join([f"## Wrong: {chapter}", "", *_table_head(*columns), *rows]) + "\n")
    rows = [
        f"| `{entry.name}` | {entry.sentence} | {entry.accuracy} | {', '.join(entry.lacks)} |"
        for entry in correct
    ]
    columns = ("name", "how it is made", "class of budget", "without")
    parts.append("\n".join(["## Correct", "", *_table_head(*columns), *rows]) + "\n")
    return "\n".join(parts)


def _needs(survivors: Sequence[Kill]) -> str:
    needs = "; ".join(f"*{need}*, {text}" for need, text in NEEDS.items())
    return f"\nFor the other {len(survivors)} entries, it says what they need: {needs}." if survivors else ""


def _table_head(*columns: str) -> list[str]:
    return [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]


def _row(entry: Entry, kill: Kill) -> str:
    repository, _, number = entry.seen.partition("#")
    seen = f"[{entry.seen}](https://github.com/{repository}/issues/{number})" if entry.seen else ""
    sentence = entry.sentence.replace("|", "\\|")
    quick = "yes" if kill.quick else "no"
    other = f"{kill.other} as {kill.reported}" if kill.other else ""
    killed_by = kill.case or other or (f"needs {entry.needs}" if entry.needs else "")
    return f"| `{entry.name}` | {entry.rule} | {sentence} | {entry.kind} | {seen} | {killed_by} | {quick} |"


def measure(workers: int, names: Sequence[str] = ()) -> Measurement:
    """Judge the wrong entries by both parts of the suite, and diagnose a sample of them.

    With names, only these entries are judged, and the rest is what is stored.
    """
    every = [entry.name for entry in wrong_entries()]
    wrong = [name for name in every if not names or name in names]
    whole, part = (matrix(wrong, (), quick=quick, workers=workers) for quick in (False, True))
    found = kills(whole, part)
    for name, case, rule in kills_elsewhere([name for name, kill in found.items() if not kill.case]):
        found[name] = replace(found[name], other=case, reported=rule)
    if names:
        stored = read()
        known = {**stored.kills, **found}
        return Measurement({name: known[name] for name in every if name in known}, stored.diagnosis)
    return Measurement(found, count(diagnose(wrong[::SAMPLE], workers=workers)))


@click.command()
@click.argument("names", nargs=-1)
@click.option("--quick", is_flag=True, help="Use only the part of the suite that --quick runs.")
@click.option("--workers", default=2, show_default=True, help="Processes.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write findings to it.")
@click.option("--write", is_flag=True, help="Judge the wrong entries by both parts, and store this.")
@click.option("--page", "only_page", is_flag=True, help="Write the page of what is stored.")
def main(
    names: tuple[str, ...], *, quick: bool, workers: int, file: Path | None, write: bool, only_page: bool
) -> None:
    """Judge the suite by the gallery or by some of its entries. Fails if a result is not the expected one."""
    started = time.perf_counter()
    if write:
        store(measure(workers, names))
    if write or only_page:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(read()), encoding="utf-8", newline="\n")
        click.echo(f"{PAGE}: written")
        return
    chosen = [
        [entry.name for entry in entries if not names or entry.name in names]
        for entries in (wrong_entries(), correct_entries())
    ]
    findings = matrix(chosen[0], chosen[1], quick=quick, workers=workers)
    if file is not None:
        file.write_text(json.dumps([asdict(finding) for finding in findings]), encoding="utf-8")
    found = problems(findings) + ([] if names else unbroken_rules(findings))
    click.echo("\n".join([summary(findings), *found]))
    click.echo(f"{len(findings)} entries, {len(found)} problems, {time.perf_counter() - started:.0f} s")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
