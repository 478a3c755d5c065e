"""``python -m tools.cheats``: judge functions that cheat, trusted and not trusted."""

import ast
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from attnspec.backends import BackendError, load
from attnspec.backends.names import UNTRUSTED
from attnspec.conformance.outside import one_line
from attnspec.conformance.results_file import read
from attnspec.conformance.run.child import judge_again
from attnspec.conformance.run.untrusted import plan, rows
from attnspec.conformance.suite import items
from attnspec.conformance.verdict import Verdict

#: The cases by which a cheat is judged: a small part of the suite.
CASES = (
    "notation-two-axes-float32",
    "scores-default-scale-1-float32",
    "scores-default-scale-3-float32",
    "scores-default-scale-5-float32",
    "scores-one-feature-each-1-float32",
    "masking-causal-3-float32",
    "masking-causal-5-float32",
    "masking-causal-more-keys-float32",
    "notation-misfits-depth-of-key-1-float32",
)
#: The seed of the measured runs. It is none of those that a cheat knows.
SEED = 20261123
#: Seconds after which a run is ended.
_LIMIT = 120.0


@dataclass(frozen=True)
class Cheat:
    """A function that cheats: its file, its name, and what it does."""

    file: str
    name: str
    does: str

    @property
    def place(self) -> str:
        """The name of its backend, in its folder."""
        return f"./{self.file}:{self.name}"


def cheats(folder: Path) -> Iterator[Cheat]:
    """List the functions in a folder that cheat, without importing them."""
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.FunctionDef) or not node.args.kwonlyargs or node.name[0] == "_":
                continue
            if does := ast.get_docstring(node):
                yield Cheat(path.name, node.name, " ".join(does.split()))


def judge_trusted(cheat: Cheat, folder: Path) -> str:
    """Judge a cheat by ``attnspec check``, as a trusted function; return what is found, empty if nothing."""
    with tempfile.TemporaryDirectory() as results:
        file = Path(results, "results.jsonl")
        command = [sys.executable, "-m", "attnspec.conformance.cli.main", "check", cheat.place]
        command += ["--results", str(file), "--time-limit", "5"]
        command += [word for name in CASES for word in ("--case", name)]
        try:
            # A session of its own, because the cheat may send signals.
            run = subprocess.run(  # noqa: S603 - this command line
                command, cwd=folder, capture_output=True, timeout=_LIMIT, start_new_session=True, check=False
            )
        except subprocess.TimeoutExpired:
            return "does not end"
        if not run.returncode:
            return ""
        found = read([file]) if file.exists() and run.returncode == 1 else None
        text = describe_bad(found.verdicts) if found else ""
        return text or f"exit status {run.returncode}"


def judge_untrusted(cheat: Cheat, folder: Path, seed: int = SEED) -> str:
    """Judge a cheat as ``attnspec check --untrusted`` does; return what is found, empty if nothing."""
    names = [name.rpartition("-")[0] for name in CASES]
    wanted = [*names, *(f"{name}-changed" for name in names)]
    asked = plan([*items(names=CASES, seed=seed)], seed, wanted)
    try:
        backend = load(f"{UNTRUSTED}{folder / cheat.file}:{cheat.name}?call_limit=2")
    except BackendError as error:
        return one_line(str(error).partition(": ")[2])
    return describe_bad([judge_again(backend, item) for item in (*asked, *rows(seed))])


def describe_bad(verdicts: Sequence[Verdict]) -> str:
    """Say how many verdicts are bad, and what the most frequent one is about; empty if none is."""
    bad = [verdict for verdict in verdicts if verdict.bad]
    if not bad:
        good = any(verdict.status == "pass" and not verdict.refusal for verdict in verdicts)
        return "" if good else "nothing is computed"
    (said, _), *_ = Counter(map(_say, bad)).most_common(1)
    return f"{len(bad)} of {len(verdicts)} cases: {said}"


def _say(verdict: Verdict) -> str:
    reason = f"raised {verdict.raised.type}" if verdict.raised and verdict.raised.type else verdict.reason
    words = one_line(reason.partition("; its ")[0])
    return f"{verdict.rule}, {words[:100]}" if words else f"{verdict.rule}, wrong numbers"


def page(found: Sequence[tuple[Cheat, str, str]]) -> str:
    """Write the table."""
    lines = [
        "# Cheats",
        "",
        "Each function here computes nothing, or is right for some calls only, and tries to pass.",
        "`python -m tools.cheats examples/cheats --write` writes the table. It judges",
        f"each function by {len(CASES)} cases, with `attnspec check` and with `attnspec check --untrusted`.",
        "The latter adds a copy of each case with one other number, and some longer problems.",
        "",
        "| cheat | what it does | `check` | `check --untrusted` |",
        "| --- | --- | --- | --- |",
    ]
    for cheat, before, after in found:
        cells = (f"[{cheat.name}]({cheat.file})", cheat.does, before or "**passes**", after or "**passes**")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", "names", multiple=True, help="Judge only this cheat.")
@click.option("--alone", is_flag=True, help="Judge only without trust, which takes less time.")
@click.option("--write", is_flag=True, help="Write README.md of the folder.")
def main(folder: Path, names: tuple[str, ...], *, alone: bool, write: bool) -> None:
    """Judge the cheats in FOLDER. Fails if one passes without trust."""
    each = [cheat for cheat in cheats(folder) if not names or cheat.name in names]
    ask = (lambda _cheat, _folder: "-") if alone else judge_trusted
    found = []
    for cheat in each:
        home = folder.resolve()
        # Without confinement, these leave files on this machine.
        before = "-" if cheat.file == "others.py" else ask(cheat, home)
        found.append((cheat, before, judge_untrusted(cheat, home)))
        click.echo(json.dumps([cheat.name, *found[-1][1:]]))
    if write:
        (folder / "README.md").write_text(page(found), encoding="utf-8", newline="\n")
    sys.exit(any(not after for _, _, after in found))


if __name__ == "__main__":
    main()
