"""Running the suite on one backend in a process of its own, which may crash, hang or exit as it likes."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from attnspec.conformance.verdict import Subject, line, read


def run(name: str, results: Path, options: Sequence[str] = ()) -> bool:
    """Run the suite on one backend, with its progress on the terminal.

    Parameters
    ----------
    name : str
        Of a backend, or ``module:function``.
    results : Path
        Where its verdicts go; there is always a subject in it when this returns.
    options : sequence of str
        For pytest.

    Returns
    -------
    bool
        Whether it ended and every verdict is a good one.
    """
    here = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "--pyargs", "attnspec.conformance", "-q", "--tb=no", "-rN"]
    command += ["--no-header", "--no-table", "-p", "no:cacheprovider"]
    # The configuration of the folder we happen to be in is not ours.
    command += ["-c", str(here / "pytest.ini"), "--rootdir", str(here)]
    # Hypothesis keeps a folder in the current one unless told otherwise.
    storage = Path(tempfile.gettempdir()) / "attnspec-hypothesis"
    environment = {"HYPOTHESIS_STORAGE_DIRECTORY": str(storage), **os.environ}
    print(f"{name}:", flush=True)  # noqa: T201 - said before the child writes to the same terminal
    ended = subprocess.run(  # noqa: S603 - ourselves
        [*command, f"--backend={name}", f"--results={results}", *options], check=False, env=environment
    )
    if not results.exists():
        results.write_text("", encoding="utf-8")
    if not results.read_text(encoding="utf-8"):
        problem = (
            f"backend {name}: expected to be loaded and judged, got an end with status {ended.returncode}"
        )
        results.write_text(
            line("subject", Subject(name, "", "", problem)) + line("end", None), encoding="utf-8"
        )
    found = read([results])
    judged = any(verdict.status != "unsupported" for verdict in found.verdicts)
    clean = not any(subject.problem for subject in found.subjects)
    return ended.returncode == 0 and judged and clean
