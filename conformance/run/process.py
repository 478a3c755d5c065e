"""Running the suite on one backend in a process of its own, which may crash, hang or exit as it likes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from attnspec import __version__
from attnspec.conformance.results import Footer, Header, Subject, line, read
from attnspec.conformance.verdict import Verdict

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


#: What would change a run from outside; our own words are all on the command line.
_FOREIGN = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")


def _pytest(name: str, options: Sequence[str]) -> int:
    here = Path(__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "--pyargs", "attnspec.conformance", "--no-table"]
    # Nothing of the surroundings: no configuration, no conftest.py, no plugin but ours.
    command += ["-c", str(here / "pytest.ini"), "--rootdir", str(here), "--noconftest"]
    command += ["-p", "attnspec.conformance.run.plugin", *(["-p", "xdist"] if "-n" in options else [])]
    # And nothing that a case has no use for: each costs its time in every one of them.
    idle = ("terminal", "logging", "cacheprovider", "warnings", "doctest", "junitxml", "tmpdir")
    command += [word for plugin in idle for word in ("-p", f"no:{plugin}")]
    environment = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
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
    """Write an error for the case that was being judged when the process ended."""
    said = json.loads(running.read_text(encoding="utf-8"))
    rules = tuple(said["rules"])
    verdict = Verdict(name, said["case"], said["group"], rules, "error", rule=rules[0], reason=how)
    with results.open("a", encoding="utf-8") as file:
        file.write(line("verdict", verdict))
