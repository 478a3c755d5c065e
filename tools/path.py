"""``python -m tools.path``: how much of the package one judgement passes through.

It judges one golden vector with `attnspec check` and notes every file of the package in which a function is
called, in the command and in the processes that it starts. What only runs while modules are imported does not
count. The backend is the function of the README, which fails the vector.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

import attnspec

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(attnspec.__file__).parent
CASE = "masking-empty-first-float32"

#: Python imports a module of this name at its start. It notes each file at once, because a child may be
#: killed.
_NOTING = """
import os, sys, threading

_PACKAGE, _NOTES = os.environ["ATTNSPEC_PATH_PACKAGE"], os.environ["ATTNSPEC_PATH_NOTES"]
_seen = set()


def _note(frame, event, _):
    name = frame.f_code.co_filename
    if event != "call" or name in _seen or not name.startswith(_PACKAGE) or frame.f_code.co_name[0] == "<":
        return
    above = frame
    while above := above.f_back:
        if above.f_code.co_name == "<module>" and above.f_globals.get("__name__") != "__main__":
            return  # while a module is imported
    _seen.add(name)
    kind = "command" if str(os.getpid()) == os.environ["ATTNSPEC_PATH_FIRST"] else "child"
    with open(_NOTES, "a") as notes:
        notes.write(f"{kind} {name}\\n")


os.environ.setdefault("ATTNSPEC_PATH_FIRST", str(os.getpid()))
threading.setprofile(_note)
sys.setprofile(_note)
"""


def example() -> str:
    """Return the function of the README."""
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )[:1]
    return str(code)


def passed_files(case: str, backend: str) -> Mapping[str, set[Path]]:
    """Judge a case, and return the files in which the command and its children call a function."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "my_attention.py").write_text(example(), encoding="utf-8")
        (here / "noting").mkdir()
        (here / "noting" / "sitecustomize.py").write_text(_NOTING, encoding="utf-8")
        notes = here / "notes.txt"
        notes.touch()
        environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, (str(here / "noting"), os.environ.get("PYTHONPATH")))),
            "ATTNSPEC_PATH_PACKAGE": str(PACKAGE) + os.sep,
            "ATTNSPEC_PATH_NOTES": str(notes),
        }
        command = [sys.executable, "-m", "attnspec.conformance.cli.main", "check", backend, "--case", case]
        subprocess.run(  # noqa: S603 - our own command line
            command, cwd=here, env={**os.environ, **environment}, capture_output=True, check=False
        )
        files: dict[str, set[Path]] = {"command": set(), "child": set()}
        for line in notes.read_text(encoding="utf-8").splitlines():
            process, _, name = line.partition(" ")
            files[process].add(Path(name))
    return files


def line_count(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


@click.command()
@click.option("--case", default=CASE, show_default=True, help="The golden vector.")
@click.option(
    "--backend", default="./my_attention.py:attention", show_default=True, help="As for attnspec check."
)
@click.option("--files", is_flag=True, help="List the files.")
def main(case: str, backend: str, *, files: bool) -> None:
    """Print how many files and lines of the package one judgement passes through, by folder."""
    passed = passed_files(case, backend)
    every = sorted(passed["command"] | passed["child"])
    if not every:
        raise click.ClickException("path: expected calls of the package, got none")
    folders = Counter(str(path.relative_to(PACKAGE).parent) for path in every)
    for folder, count in folders.items():
        own = [path for path in every if str(path.relative_to(PACKAGE).parent) == folder]
        click.echo(f"{sum(map(line_count, own)):6} lines in {count:3} files of {folder}")
        for path in own if files else ():
            processes = " and ".join(process for process in passed if path in passed[process])
            click.echo(f"    {line_count(path):5} {path.relative_to(PACKAGE)} ({processes})")
    for name, paths in (*passed.items(), ("together", set(every))):
        click.echo(f"{name}: {len(paths)} files, {sum(map(line_count, paths))} lines")


if __name__ == "__main__":
    main()
