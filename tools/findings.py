"""Findings: what a released library does, shown by a script with the library alone.

`python -m tools.findings` runs the scripts of the installed libraries and says which no longer show their
finding. ``backends/findings/seen.json`` keeps what each printed last. From this the command writes a page for
each finding, with the text of a report, and a table of all of them into ``build/findings``.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

import click

from attnspec import find_rule
from attnspec.citations import anchor
from attnspec.errors import SpecError

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "backends" / "findings"
PAGES = ROOT / "build" / "findings"
#: The file that holds what was last seen, beside the folders of libraries.
SEEN = "seen.json"
#: The paragraphs of a docstring that are not its text.
FIELDS = ("Documentation", "Found by", "Known")
_RULE = re.compile(r"\b[A-Z]+-\d+\b")
#: How long a script may take, in seconds.
_LIMIT = 300
#: The way from the table to the root. Pages lie one folder deeper.
_UP = "../.."
_HEAD = """# Findings

What released libraries do that a rule does not allow, or that their documentation does not say. A script
shows each with the library alone. Its page has the text of a report. *New* means that no thread about it was
found."""


@dataclass(frozen=True)
class Seen:
    """What a script printed with a release of its library."""

    version: str
    expected: str
    got: str
    shows: bool = True


@dataclass(frozen=True)
class Finding:
    """One script, and what its docstring says: a title, paragraphs, and some of `FIELDS`."""

    name: str
    title: str
    text: tuple[str, ...]
    fields: Mapping[str, str] = field(default_factory=dict)
    code: str = ""

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
        known = self.fields.get("Known", "")
        if not known:
            return "not looked up"
        return "known" if "https://" in known else "new"


def read_finding(path: Path) -> Finding:
    """Read a script."""
    source = path.read_text(encoding="utf-8")
    name = f"{path.parent.name}/{path.stem}"
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree)
    if not docstring:
        raise SpecError(f"finding {name}: expected a docstring, got none")
    title, *paragraphs = [" ".join(part.split()) for part in docstring.split("\n\n")]
    fields = {}
    text = []
    for paragraph in paragraphs:
        key, colon, rest = paragraph.partition(": ")
        if colon and key in FIELDS:
            fields[key] = rest
        else:
            text.append(paragraph)
    code = "\n".join(source.splitlines()[tree.body[0].end_lineno or 0 :]).strip()
    return Finding(name, title.rstrip("."), tuple(text), fields, code)


def installed_version(finding: Finding) -> str:
    """Return the version of the library of a finding, or an empty string if it is not installed."""
    # A module may have another name than its package, as paddle of paddlepaddle.
    packages = metadata.packages_distributions().get(finding.library, [])
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
    parts.append(f"```python\n{finding.code}\n```")
    if seen:
        parts.append(f"Expected: `{seen.expected}`\n\nGot: `{seen.got}`")
    if documented := finding.fields.get("Documentation"):
        parts.append(f"What the documentation says: {documented}")
    parts.append(
        f"Version: {finding.library} {seen.version if seen else '?'}, Python 3.11, Linux x86_64, on the CPU."
    )
    return "\n\n".join(part for part in parts if part)


def index(findings: Iterable[Finding], seen: Mapping[str, Seen]) -> str:
    """Return the table of all findings."""
    lines = [_HEAD, "", "| finding | seen with | rules | |", "| --- | --- | --- | --- |"]
    for finding in findings:
        last = seen.get(finding.name)
        version = f"{finding.library} {last.version}" if last else "not run"
        state = finding.status if last is None or last.shows else "shows no longer"
        rules = ", ".join(_link(rule, _UP) for rule in finding.rules)
        lines.append(f"| [{_cell(finding.title)}]({finding.name}.md) | {version} | {rules} | {state} |")
    return "\n".join(lines) + "\n"


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
    paths = sorted(FOLDER.glob("*/*.py"))
    findings = [read_finding(path) for path in paths]
    seen = last_seen(FOLDER)
    for path, finding in zip(paths, findings, strict=True):
        version = installed_version(finding)
        if no_run or not version or (only and finding.library != only):
            continue
        seen[finding.name] = observe(path, version)
        if not seen[finding.name].shows:
            click.echo(f"{finding.name}: {finding.library} {version} shows it no longer")
    kept = {finding.name: asdict(seen[finding.name]) for finding in findings if finding.name in seen}
    (FOLDER / SEEN).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    pages = {finding.name: page(finding, seen.get(finding.name)) for finding in findings}
    for name, text in {"README": index(findings, seen), **pages}.items():
        path = PAGES / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    click.echo(f"{len(findings)} findings, {len(kept)} of them seen; pages in {PAGES}")


if __name__ == "__main__":
    main()
