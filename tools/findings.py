"""Findings: what a released library does, shown by a script with the library alone, or by a row of a family.

`python -m tools.findings` runs those of the installed libraries and says which no longer show their finding.
``backends/findings/seen.json`` keeps what each script printed last. From this the command writes a page for
each script, with the text of a report, a page for each family, and a table of all into ``build/findings``.
"""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from attnspec import find_rule
from attnspec.citations import anchor
from attnspec.errors import SpecError

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "backends" / "findings"
PAGES = ROOT / "build" / "findings"
#: The file that holds what was last seen, beside the folders of libraries.
SEEN = "seen.json"
#: The modules of the folder of families that are no family.
_HELPERS = ("calls", "table")
#: The lines of a docstring that are not its text. `Rank` is one of `RANKS`.
FIELDS = ("Impact", "Promise", "Documentation", "Cause", "Known")
_FIELD = re.compile(rf"^(Rank|{'|'.join(FIELDS)}): ", re.MULTILINE)
#: How much a finding matters, first things first.
RANKS = {
    "memory": "memory safety",
    "numbers": "wrong numbers on ordinary finite input",
    "promise": "a documented promise is broken",
    "paths": "two paths of the library disagree",
    "difference": "another behaviour than the rule",
}
_RULE = re.compile(r"\b[A-Z]+-\d+\b")
#: How long a script may take, in seconds.
_LIMIT = 300
#: The way from the table to the root. Pages lie one folder deeper.
_UP = "../.."
_HEAD = """# Findings

What released libraries do that a rule does not allow, or that their documentation does not say. A script
shows each with the library alone, and its page has the text of a report. A family is one behaviour of several
libraries. *New* means that no thread about it was found."""


@dataclass(frozen=True)
class Seen:
    """What a script printed with a release of its library."""

    version: str
    expected: str
    got: str
    shows: bool = True


@dataclass(frozen=True)
class Finding:
    """A script and what its docstring says: a title, paragraphs, some of `FIELDS`; or a row of a family."""

    name: str
    title: str
    text: tuple[str, ...]
    fields: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    rank: str = "difference"
    family: str = ""

    @property
    def library(self) -> str:
        """The module of the library."""
        return self.name.partition("/")[0]

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules in the title and the text."""
        return tuple(dict.fromkeys(_RULE.findall(" ".join((self.title, *self.text)))))

    @property
    def status(self) -> str:
        """Whether a thread about it is known."""
        return "known" if "https://" in self.fields.get("Known", "") else "new"


@dataclass(frozen=True)
class Family:
    """One behaviour of several libraries: a title, a paragraph, and rows, each of them a finding too."""

    name: str
    title: str
    text: str
    rows: tuple[Any, ...]
    findings: tuple[Finding, ...]


def read_families(folder: Path = FOLDER) -> tuple[Family, ...]:
    """Read the tables of families."""
    sys.path.insert(0, str(folder / "families"))
    names = sorted(path.stem for path in (folder / "families").glob("*.py") if path.stem not in _HELPERS)
    try:
        return tuple(_family(importlib.import_module(name)) for name in names)
    finally:
        sys.path.pop(0)


def _family(module: Any) -> Family:
    title, _, text = (module.__doc__ or "").strip().partition("\n\n")
    findings = []
    for row in module.ROWS:
        fields = {"Promise": row.promise, "Known": row.known}
        kept = {key: said for key, said in fields.items() if said}
        _check_rank(row.finding, row.rank, kept)
        title_of_row = f"{row.library}: {row.call} ({row.rules})"
        findings.append(
            Finding(row.finding, title_of_row, (), fields=kept, rank=row.rank, family=module.__name__)
        )
    paragraph = " ".join(text.split())
    return Family(
        module.__name__, " ".join(title.split()).rstrip("."), paragraph, tuple(module.ROWS), tuple(findings)
    )


def _check_rank(name: str, rank: str, fields: Mapping[str, str]) -> None:
    if rank not in RANKS:
        raise SpecError(f"finding {name}: expected a rank of {', '.join(RANKS)}, got {rank or 'none'}")
    if rank == "promise" and not re.fullmatch(r'".+" \(.+\)', fields.get("Promise", "")):
        raise SpecError(f'finding {name}: expected Promise: "its words" (the document), got none')


def read_finding(path: Path) -> Finding:
    """Read a script."""
    source = path.read_text(encoding="utf-8")
    name = f"{path.parent.name}/{path.stem}"
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree)
    if not docstring:
        raise SpecError(f"finding {name}: expected a docstring, got none")
    head, *parts = _FIELD.split(docstring)
    title, *text = [" ".join(part.split()) for part in head.strip().split("\n\n")]
    fields = {key: " ".join(said.split()) for key, said in zip(parts[::2], parts[1::2], strict=True)}
    rank = fields.pop("Rank", "")
    _check_rank(name, rank, fields)
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno or 0 :]).strip()
    return Finding(name, title.rstrip("."), tuple(text), fields, code, rank)


def installed_version(finding: Finding) -> str:
    """Return the version of the library of a finding, or an empty string if it is not installed."""
    # A module may have another name than its package, as paddle of paddlepaddle.
    packages = metadata.packages_distributions().get(finding.library.replace("-", "_"), [])
    return metadata.version(packages[0]) if packages else ""


def observe(path: Path, version: str) -> Seen:
    """Run a script, which exits with 0 while it shows the finding and with 1 if it does not."""
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-W", "ignore", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT,
    )
    said = dict(line.partition(" ")[::2] for line in done.stdout.splitlines() if " " in line)
    return Seen(version, said.get("expected", ""), said.get("got", ""), done.returncode == 0)


def page(finding: Finding, seen: Seen | None) -> str:
    """Return the page of a finding."""
    rows = [("library", f"{finding.library} {seen.version}" if seen else finding.library)]
    rows.append(("rank", RANKS[finding.rank]))
    rows.append(("rules", ", ".join(_link(rule, f"{_UP}/..") for rule in finding.rules)))
    rows += [(key.lower(), finding.fields[key]) for key in FIELDS if key in finding.fields]
    if seen:
        rows += [("expected", f"`{seen.expected}`"), ("got", f"`{seen.got}`")]
    if seen and not seen.shows:
        rows.append(("state", "this release shows it no longer"))
    table = ["| | |", "| --- | --- |", *(f"| {name} | {_cell(said)} |" for name, said in rows)]
    parts = [
        f"# {finding.title}",
        *finding.text,
        "\n".join(table),
        f"[Script]({_UP}/../backends/findings/{finding.name}.py):",
    ]
    parts.append(f"```python\n{finding.code}\n```")
    parts += ["## Text for a report", f"~~~markdown\n{report(finding, seen)}\n~~~"]
    return "\n\n".join(part for part in parts if part) + "\n"


def report(finding: Finding, seen: Seen | None) -> str:
    """Return the text of a report to the project of the library, in Markdown."""
    subject = re.sub(r" ?\((?:[A-Z]+-\d+[^)]*)\)", "", finding.title.partition(": ")[2] or finding.title)
    parts = [
        f"### {subject[:1].upper()}{subject[1:]}",
        _RULE.sub("the specification", " ".join(finding.text)),
    ]
    if finding.status == "known":
        parts.insert(0, f"(A comment for the thread: {finding.fields['Known']})")
    if impact := finding.fields.get("Impact"):
        parts.append(f"Impact: {impact}")
    parts.append(f"```python\n{finding.code}\n```")
    if seen:
        parts.append(f"Expected: `{seen.expected}`\n\nGot: `{seen.got}`")
    if documented := finding.fields.get("Promise") or finding.fields.get("Documentation"):
        parts.append(f"What the documentation says: {documented}")
    parts.append(
        f"Version: {finding.library} {seen.version if seen else '?'}, Python 3.11, Linux x86_64, on the CPU."
    )
    return "\n\n".join(part for part in parts if part)


def family_page(family: Family) -> str:
    """Return the page of a family: a table of libraries."""
    lines = [f"# {family.title}", "", family.text, "", "| library | call | got | right | rules |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for row, finding in zip(family.rows, family.findings, strict=True):
        rules = ", ".join(_link(rule, f"{_UP}/..") for rule in finding.rules)
        outcomes = f"`{text_of(row.got)}` | `{text_of(row.right)}`"
        lines.append(f"| {row.library} | {_cell(row.call)} | {outcomes} | {rules} |")
    return "\n".join(lines) + "\n"


def index(findings: Iterable[Finding], families: Iterable[Family], seen: Mapping[str, Seen]) -> str:
    """Return the table of all findings: the ranks, the scripts by rank, and the families."""
    findings, families = list(findings), list(families)
    lines = [_HEAD, "", "| rank | scripts | rows of families |", "| --- | --- | --- |"]
    for rank, meaning in RANKS.items():
        rows = sum(finding.rank == rank for family in families for finding in family.findings)
        lines.append(f"| {meaning} | {sum(finding.rank == rank for finding in findings)} | {rows} |")
    lines += ["", "| finding | rank | seen with | rules | |", "| --- | --- | --- | --- | --- |"]
    for finding in sorted(findings, key=lambda finding: list(RANKS).index(finding.rank)):
        last = seen.get(finding.name)
        version = f"{finding.library} {last.version}" if last else "not run"
        state = finding.status if last is None or last.shows else "shows no longer"
        rules = ", ".join(_link(rule, _UP) for rule in finding.rules)
        title = f"[{_cell(finding.title)}]({finding.name}.md)"
        lines.append(f"| {title} | {finding.rank} | {version} | {rules} | {state} |")
    lines += ["", "| family | libraries | calls |", "| --- | --- | --- |"]
    for family in families:
        libraries = len({row.library for row in family.rows})
        lines.append(f"| [{family.title}](families/{family.name}.md) | {libraries} | {len(family.rows)} |")
    return "\n".join(lines) + "\n"


def text_of(outcome: object) -> str:
    """Return an outcome of a row as text, as the families print it."""
    read_families()
    return str(sys.modules["table"].text_of(outcome))


def scripts(folder: Path = FOLDER) -> list[Path]:
    """Return the scripts of single findings."""
    return [path for path in sorted(folder.glob("*/*.py")) if path.parent.name != "families"]


def place_of(name: str) -> str:
    """Return the file that shows a finding, from the folder of findings."""
    if (FOLDER / f"{name}.py").exists():
        return f"{name}.py"
    for family in read_families():
        if any(row.finding == name for row in family.rows):
            return f"families/{family.name}.py"
    raise SpecError(f"finding {name}: expected a script or a row of a family, got none")


def run_rows(families: Iterable[Family], only: str) -> list[str]:
    """Run the rows whose library is installed, and name those that no longer show their finding."""
    gone = []
    for family in families:
        for row in family.rows:
            if row.is_runnable and (not only or row.library == only):
                outcome = sys.modules["table"].observe(row)
                if not row.shows(outcome):
                    gone.append(f"{row.finding} {row.rules}: {row.call}: got {text_of(outcome)}")
    return gone


def last_seen(folder: Path) -> dict[str, Seen]:
    """Read what the scripts last printed."""
    path = folder / SEEN
    if not path.exists():
        return {}
    return {name: Seen(**said) for name, said in json.loads(path.read_text(encoding="utf-8")).items()}


def _link(rule: str, up: str) -> str:
    return f"[{rule}]({up}/spec/{find_rule(rule).chapter}.md#{anchor(find_rule(rule))})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


@click.command()
@click.option("--no-run", is_flag=True, help="Write the pages from what was last seen.")
@click.option("--only", default="", help="Run the scripts of one library only.")
def main(only: str, *, no_run: bool) -> None:
    """Run the scripts of installed libraries, and write the pages of all findings."""
    paths = scripts(FOLDER)
    findings = [read_finding(path) for path in paths]
    families = read_families(FOLDER)
    seen = last_seen(FOLDER)
    for path, finding in zip(paths, findings, strict=True):
        version = installed_version(finding)
        if no_run or not version or (only and finding.library != only):
            continue
        seen[finding.name] = observe(path, version)
        if not seen[finding.name].shows:
            click.echo(f"{finding.name}: {finding.library} {version} shows it no longer")
    for line in [] if no_run else run_rows(families, only):
        click.echo(f"shows no longer: {line}")
    kept = {finding.name: asdict(seen[finding.name]) for finding in findings if finding.name in seen}
    (FOLDER / SEEN).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    pages = {finding.name: page(finding, seen.get(finding.name)) for finding in findings}
    pages |= {f"families/{family.name}": family_page(family) for family in families}
    for name, text in {"README": index(findings, families, seen), **pages}.items():
        path = PAGES / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    rows = sum(len(family.rows) for family in families)
    click.echo(
        f"{len(findings)} findings, {len(kept)} of them seen; {rows} rows of families; pages in {PAGES}"
    )


if __name__ == "__main__":
    main()
