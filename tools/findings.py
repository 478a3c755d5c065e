"""Writes the pages of findings: what a released library does, shown by a script with the library alone.

Run it as `python -m tools.findings backends/findings`. It runs the scripts of the
installed libraries and says which no longer show their finding. The others keep what was last seen.
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

#: The file that holds what was last seen, beside the folders of libraries.
SEEN = "seen.json"
#: The paragraphs of a docstring that are not its text.
FIELDS = ("Documentation", "Found by", "Known")
_RULE = re.compile(r"\b[A-Z]+-\d+\b")
#: How long a script may take, in seconds.
_LIMIT = 300
_HEAD = """# Findings

What released libraries do that a rule does not allow, or that their documentation does not say. A script
shows each with the library alone. Its page has the text of a report. *New* means that no thread about it was
found. `python -m tools.findings backends/findings` runs the scripts of the installed
libraries and writes these pages."""


@dataclass(frozen=True)
class Seen:
    """What a script printed with a release of its library."""

    version: str
    expected: str
    got: str
    shows: bool = True


@dataclass(frozen=True)
class Finding:
    """One script, and what its docstring says.

    Attributes
    ----------
    name : str
        ``library/name``.
    title : str
        The first line, without the full stop.
    text : tuple of str
        Paragraphs.
    fields : mapping of str to str
        Some of `FIELDS`.
    code : str
        The script without the docstring.
    """

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


def read(path: Path) -> Finding:
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


def installed(finding: Finding) -> str:
    """Return the version of the library of a finding, or an empty string if it is not installed."""
    # A module may have another name than its package, as paddle of paddlepaddle.
    packages = metadata.packages_distributions().get(finding.library, [])
    return metadata.version(packages[0]) if packages else ""


def run(path: Path, version: str) -> Seen:
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


def page(finding: Finding, seen: Seen | None, up: str) -> str:
    """Return the page of a finding."""
    rows = [("library", f"{finding.library} {seen.version}" if seen else finding.library)]
    rows.append(("rules", ", ".join(_linked(rule, up) for rule in finding.rules)))
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
        f"[Script]({finding.name.partition('/')[2]}.py):",
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
    for one in findings:
        found = seen.get(one.name)
        version = f"{one.library} {found.version}" if found else "not run"
        state = one.status if found is None or found.shows else "shows no longer"
        rules = ", ".join(_linked(rule, "../..") for rule in one.rules)
        lines.append(f"| [{_cell(one.title)}]({one.name}.md) | {version} | {rules} | {state} |")
    return "\n".join(lines) + "\n"


def write(folder: Path, seen: Mapping[str, Seen]) -> dict[Path, str]:
    """Return the text of each page in a folder of findings, by its path."""
    findings = [read(path) for path in sorted(folder.glob("*/*.py"))]
    pages = {folder / f"{one.name}.md": page(one, seen.get(one.name), "../../..") for one in findings}
    return {folder / "README.md": index(findings, seen), **pages}


def last_seen(folder: Path) -> dict[str, Seen]:
    """Read what the scripts last printed."""
    path = folder / SEEN
    if not path.exists():
        return {}
    return {name: Seen(**said) for name, said in json.loads(path.read_text(encoding="utf-8")).items()}


def _linked(rule: str, up: str) -> str:
    found = find_rule(rule)
    return f"[{rule}]({up}/spec/{found.chapter}.md#{anchor(found)})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--no-run", is_flag=True, help="Write the pages from what was last seen.")
@click.option("--only", default="", help="Run the scripts of one library only.")
def main(folder: Path, only: str, *, no_run: bool) -> None:
    """Run the scripts of installed libraries, and write the pages of all findings."""
    seen = last_seen(folder)
    paths = sorted(folder.glob("*/*.py"))
    for path in [] if no_run else paths:
        finding = read(path)
        version = installed(finding)
        if not version or (only and finding.library != only):
            continue
        seen[finding.name] = run(path, version)
        if not seen[finding.name].shows:
            click.echo(f"{finding.name}: {finding.library} {version} shows it no longer")
    names = {f"{path.parent.name}/{path.stem}" for path in paths}
    kept = {name: asdict(seen[name]) for name in sorted(seen) if name in names}
    (folder / SEEN).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    for path, text in write(folder, seen).items():
        path.write_text(text, encoding="utf-8")
    click.echo(f"{len(paths)} findings, {len(kept)} of them seen")


if __name__ == "__main__":
    main()
