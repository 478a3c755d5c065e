"""Writes a run as annotations of a GitHub workflow, which appear at the line that they are about."""

import ast
from collections.abc import Iterator
from pathlib import Path

from attnspec.backends.names import split_options
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.outside import one_line
from attnspec.conformance.render.reproduction import check_command
from attnspec.conformance.render.text import place, title, verdict_line
from attnspec.conformance.verdict import Verdict

#: GitHub shows ten errors of a step.
_MOST = 10


def to_annotations(report: Report) -> str:
    """Write an error for each cause of a failure, one a line.

    The line is the one that raised, or else the definition of the function that was judged.
    """
    lines = [_annotation(finding.verdict) for finding in report.findings[:_MOST]]
    lines += [
        _line(subject.problem, "not judged", "", 0) for subject in report.results.subjects if subject.problem
    ]
    return "".join(lines)


def _annotation(verdict: Verdict) -> str:
    raised = verdict.raised
    file, number = (raised.file, raised.line) if raised and raised.file else definition(verdict.backend)
    command = f"; {check_command(verdict)}" if verdict.case else ""
    return _line(
        f"{verdict_line(verdict)}: {place(verdict)}{command}", f"attnspec {title(verdict)}", file, number
    )


def _line(text: str, heading: str, file: str, number: int) -> str:
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    where = f"file={_escape(path.as_posix(), inside=True)},line={number}," if file else ""
    return f"::error {where}title={_escape(heading, inside=True)}::{_escape(text)}\n"


def _escape(text: str, *, inside: bool = False) -> str:
    """Escape what ends a command of a workflow, or a property of one."""
    escaped = one_line(text).replace("%", "%25")
    return escaped.replace(":", "%3A").replace(",", "%2C") if inside else escaped


def definition(backend: str) -> tuple[str, int]:
    """Return the file and the line of a function that is named as ``module:function``, without importing it.

    The file is empty if none is found below the current folder.

    Examples
    --------
    >>> definition("torch-sdpa")
    ('', 0)
    """
    module, _, function = split_options(backend)[0].partition(":")
    path = Path(module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
    for file in (path, Path(*module.split("."), "__init__.py")):
        if function and file.is_file():
            numbers = [*_definitions(file, function.rpartition(".")[2])]
            return file.as_posix(), numbers[0] if numbers else 1
    return "", 0


def _definitions(file: Path, name: str) -> Iterator[int]:
    """Yield the lines that define a name in a file."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            yield node.lineno
