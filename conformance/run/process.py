"""Running the suite on one backend in a process of its own, which may crash, hang or exit as it likes."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from attnspec import __version__
from attnspec.conformance.verdict import Footer, Header, Subject, Verdict, line, read

#: Times that a run goes on after its process has ended in the middle of it, and after a test did not end.
MOST_RESTARTS, MOST_HANGS = 5, 2


def run(name: str, results: Path, options: Sequence[str] = (), *, seconds: float = 300.0) -> bool:
    """Run the suite on one backend, with its progress on the terminal.

    A test that takes the process with it gets an error for its verdict, and the run
    goes on in another process.

    Parameters
    ----------
    name : str
        Of a backend, or ``module:function``.
    results : Path
        Where its verdicts go; there is always a subject in it when this returns.
    options : sequence of str
        For pytest.
    seconds : float, optional
        That one test may take.

    Returns
    -------
    bool
        Whether it ended, and pytest found nothing wrong with itself.
    """
    results.write_text("", encoding="utf-8")
    running = results.with_suffix(".running")
    print(f"{name}:", flush=True)  # noqa: T201 - said before the child writes to the same terminal
    status = 0
    hangs = 0
    for start in range(1 + MOST_RESTARTS):
        running.unlink(missing_ok=True)
        again = ["--resume"] if start else []
        limit = f"--time-limit={seconds}"
        status = _pytest(name, [f"--results={results}", f"--running={running}", limit, *again, *options])
        if _ended(results) or not running.exists():
            break
        hung = time.time() - running.stat().st_mtime >= seconds  # the file is as old as the test
        _give_verdict(name, results, running, f"did not end in {seconds:g} s" if hung else _said(status))
        hangs += hung
        if hangs > MOST_HANGS:
            break
    running.unlink(missing_ok=True)
    if not read([results]).subjects:
        problem = f"backend {name}: expected to be loaded and judged, got an end with status {status}"
        lines = line("header", Header(__version__)) + line("subject", Subject(name, "", "", problem))
        results.write_text(lines + line("footer", Footer(0)), encoding="utf-8")
    return _ended(results) and status in (0, 1, 2)  # all well; something failed; stopped at that


def _pytest(name: str, options: Sequence[str]) -> int:
    here = Path(__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "--pyargs", "attnspec.conformance", "-q", "--tb=no", "-rN"]
    # Plain assertions: to rewrite those of every module takes a part of a second, and nobody reads them.
    command += ["--no-header", "--no-table", "--assert=plain", "-p", "no:cacheprovider"]
    # The configuration of the folder we happen to be in is not ours.
    command += ["-c", str(here / "pytest.ini"), "--rootdir", str(here)]
    # Hypothesis keeps a folder in the current one unless told otherwise.
    storage = Path(tempfile.gettempdir()) / "attnspec-hypothesis"
    environment = {"HYPOTHESIS_STORAGE_DIRECTORY": str(storage), **os.environ}
    ended = subprocess.run(  # noqa: S603 - ourselves
        [*command, f"--backend={name}", *options], check=False, env=environment
    )
    return ended.returncode


def _ended(results: Path) -> bool:
    lines = results.read_text(encoding="utf-8").splitlines()
    return bool(lines) and lines[-1].startswith('{"footer": ')


def _said(status: int) -> str:
    if status >= 0:
        return f"ended the process with status {status}"
    known = -status in {*signal.Signals}
    return f"was killed by {signal.Signals(-status).name if known else f'signal {-status}'}"


def _give_verdict(name: str, results: Path, running: Path, how: str) -> None:
    """Write an error for the test that was under way when the process ended."""
    test, rules = json.loads(running.read_text(encoding="utf-8"))
    message = f"{rules[0]}: {name} {how}\nin {test}"
    with results.open("a", encoding="utf-8") as file:
        file.write(line("verdict", Verdict(name, tuple(rules), test, "error", message)))
