"""Hostile uses, in tables: what each gets. None ends green without having judged, hangs, or loses results."""

import sys
from pathlib import Path

import pytest
from hostile import CALLS, MuteError

from attnspec.backends import BackendError
from attnspec.conformance.attribution.report import Outcome, Report
from attnspec.conformance.judge.failure import Raised
from attnspec.conformance.outside import cut, one_line
from attnspec.conformance.render.screen import screen
from attnspec.conformance.render.text import verdict_text
from attnspec.conformance.run import pool, worker
from attnspec.conformance.run.plan import Outline, Selection
from attnspec.conformance.run.run import run_all

TESTS = Path(__file__).parent
#: Asked of each implementation: values twice, so that what is left behind by the first call shows.
CASES = ("softmax-000-float64", "notation-batch-float64")
GOOD, FAILS, NOT_LOADED, NOT_WHOLE = Outcome


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.sample(7)
def test_what_a_call_may_do(name, monkeypatch):
    monkeypatch.chdir(TESTS)
    _, ends, message = CALLS[name]
    limit = 2.0 if "did not end" in message else 600.0
    results = run_all([f"hostile:{name}"], Selection(names=CASES), seconds=limit).results
    report = Report(results)
    text = screen(report)
    assert report.outcome in {"good": [GOOD], "fails": [FAILS], "either": Outcome}[ends], text
    assert message in text
    assert len(text) < 10_000
    assert sorted(verdict.case for verdict in results.verdicts) == sorted(CASES), "each case once"
    assert not left_over(), "what it has started ends with it"


def test_a_failure_of_the_judge_is_not_put_to_the_implementation(monkeypatch):
    monkeypatch.chdir(TESTS)
    results = run_all(["hostile:breaking_the_judge"], Selection(names=CASES)).results
    report = Report(results)
    assert [one.case for one in results.verdicts] == [CASES[1]], "no verdict on what was not judged"
    assert report.outcome is NOT_WHOLE
    text = " ".join(screen(report).split())
    assert f"internal error of attnspec, not of the implementation: judge {CASES[0]}: TypeError" in text
    assert "(judge.py, line " in text
    assert "does not conform" not in text


def test_a_function_that_does_not_return_in_time_is_abandoned(monkeypatch):
    monkeypatch.chdir(TESTS)
    monkeypatch.setattr(pool, "MOST_HANGS", 1)
    monkeypatch.setattr(pool, "HANG_LIMIT", 1)
    results = run_all(["hostile:hanging"], Selection(names=CASES), seconds=1).results
    (verdict,) = results.verdicts
    assert (verdict.status, verdict.reason) == ("error", "did not end in 1 s")
    text = screen(Report(results))
    assert "error: backend hostile:hanging: abandoned after 1 cases that did not end" in text
    # Its time is that of the process that judges nothing, whose clock the function cannot stop.
    monkeypatch.chdir(TESTS)
    monkeypatch.setattr(pool, "SLOW_LIMIT", 0.0)
    monkeypatch.setattr(pool, "MOST_HANGS", 0)
    results = run_all(["hostile:enormous"], Selection(names=CASES)).results
    assert len(results.verdicts) == 1
    abandoned = "error: backend hostile:enormous: abandoned after failing cases took 0 s"
    assert abandoned in screen(Report(results))
    assert len(run_all(["hostile:right"], Selection(names=CASES)).results.verdicts) == len(CASES)


def test_a_function_that_raises_at_random_is_told_from_one_that_always_does(monkeypatch):
    """A call that fails is made again, and this one does not fail again."""
    monkeypatch.chdir(TESTS)
    results = run_all(["broken:raising_once"], Selection(names=("notation-batch",))).results
    (verdict,) = [verdict for verdict in results.verdicts if verdict.status == "error"]
    assert not verdict.repeatable
    assert "raised RuntimeError: not this time" in verdict_text(verdict)
    assert "not repeatable: the same call, repeated, has another result" in verdict_text(verdict)


def test_exceptions_and_lines_without_a_text_are_one_line():
    assert Raised(BackendError("x" * 5000)).data.message == "x" * 4000 + "... and 1000 characters more"
    assert Raised(MuteError()).data.message == "a message that cannot be read"
    assert one_line("a\n\x1b[1mb\tc") == "a \ufffd[1mb c"
    assert len(one_line("x" * 10**7)) < 2100
    assert cut("x" * 2000) == "x" * 2000


def test_a_case_that_the_process_does_not_find_is_an_error_of_ours():
    process = worker.Worker(Selection())
    process.load("numpy-portable")
    process.request(Outline("masking-causal-1+zz-float32", "causal", ("SOFT-1",), "float32"))
    with pytest.raises(worker.InternalError, match=r"not of the implementation: masking-causal-1\+zz"):
        process.verdict(600.0)
    process.stop()


def left_over():
    """Processes of a kernel that are still there."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"time.sleep(987)" in place.read_bytes():
                found.append(place)
        except OSError:
            pass
    return found


#: Lines of a module, run as it is imported, to what is said of it.
IMPORTS = {
    "raise KeyboardInterrupt": "got its process was killed by SIGINT",
    "raise SystemExit(0)": "raised SystemExit: 0",
    "raise RuntimeError('no device')": "raised RuntimeError: no device",
    "import os; os._exit(0)": "got its process ended with status 0",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": "got its process was killed by SIGKILL",
    "import time; time.sleep(987)": "got no end in 3 s",
    "import ctypes; ctypes.PyDLL(None).sleep(987)": "got no end in 3 s",
    "def f(:": "raised SyntaxError",
    "import absent_module": "imports absent_module, which is not installed",
    "1 / 0": "raised ZeroDivisionError",
    "import attnspec.absent": "imports attnspec.absent, which is not installed",
    "attention = 3": "expected a function or a Backend, got int",
    "attention = None": "expected a function or a Backend, got NoneType",
    "": "expected kernel to have attention, got no such attribute",
}
#: And those that can be judged all the same.
IMPORTED = (
    "import threading; assert threading.current_thread() is threading.main_thread()",
    "import warnings; warnings.warn('old', DeprecationWarning)",
    "import sys; sys.stdout.write('noise ' * 100_000)",
    "import threading, time; threading.Thread(target=time.sleep, args=(987,)).start()",
    "import atexit, time; atexit.register(time.sleep, 987)",
    "import os; os.closerange(0, 3)",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "import numpy as np; np.seterr(all='raise')",
)


@pytest.mark.parametrize("source", IMPORTS)
@pytest.mark.sample(4)
def test_what_an_import_may_do(source, here, monkeypatch):
    monkeypatch.setattr(worker, "IMPORT_LIMIT", 3.0)
    (here / "kernel.py").write_text(source + "\n")
    report = Report(run_all(["kernel:attention"], Selection(names=CASES)).results)
    assert report.outcome is Outcome.NOT_LOADED
    (subject,) = report.results.subjects
    assert IMPORTS[source] in subject.problem
    assert "\n" not in subject.problem.strip()
    assert report.results.verdicts == ()


@pytest.mark.parametrize("source", IMPORTED)
@pytest.mark.sample(3)
def test_what_an_import_may_do_and_be_judged(source, here):
    (here / "kernel.py").write_text(
        f"{source}\nimport sys\nsys.path.append({str(TESTS)!r})\nfrom hostile import right as attention\n"
    )
    report = Report(run_all(["kernel:attention"], Selection(names=CASES)).results)
    assert report.outcome is Outcome.GOOD, screen(report)


CRASHING = """
import os, sys
sys.path.append({tests!r})
from hostile import right
with open("imports", "a") as file:
    file.write(".")
{more}
def attention(query, key, value):
    if query.dtype.name == "float32" or {every}:
        os.abort()
    return right(query, key, value)
"""


def crashing(folder, *, more="", every=False, **kwargs):
    """Run a kernel that aborts in many calls; return the report and the number of imports."""
    (folder / "kernel.py").write_text(CRASHING.format(tests=str(TESTS), more=more, every=every))
    results = run_all(["kernel:attention"], Selection(rules=("SOFT-1",)), **kwargs).results
    return Report(results), len((folder / "imports").read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="processes are copied on Linux only")
@pytest.mark.parametrize("jobs", [1, 2])
def test_after_a_crash_no_other_costs_an_import(jobs, here, monkeypatch):
    monkeypatch.setattr(pool, "MOST_CRASHES", 6)  # a copy that ends is not counted
    report, imports = crashing(here, jobs=jobs)
    statuses = [one.status for one in report.results.verdicts]
    assert statuses.count("error") > 8
    assert statuses.count("pass") >= 8, "the others are judged"
    assert not report.results.missing.get("kernel:attention")
    assert imports <= 2 * jobs
    text = screen(report).strip().splitlines()
    assert text[2].startswith("SOFT-1 Weights are the softmax of each row: case ")
    assert "its process was killed by SIGABRT, at " in text[2]
    assert "kernel.py, line 10, in attention" in text[2]
    assert text[3].startswith("reproduce: attnspec check kernel:attention --case ")
    assert "run: chosen (" in "\n".join(text)


def test_a_process_with_threads_of_an_import_is_not_copied(here, monkeypatch):
    monkeypatch.setattr(pool, "MOST_CRASHES", 3)
    thread = "import threading, time; threading.Thread(target=time.sleep, args=(987,), daemon=True).start()"
    report, imports = crashing(here, more=thread)
    assert imports == 3
    assert report.results.missing["kernel:attention"], "the rest is said to be not judged"
    assert "cases of the plan were not judged" in screen(report)
    assert "abandoned after its process ended 3 times" in screen(report)


def test_a_run_of_nothing_but_crashes_is_abandoned_and_told_once(here, monkeypatch):
    monkeypatch.setattr(pool, "MOST_CRASHES", 12)
    report, imports = crashing(here, every=True)
    text = " ".join(screen(report).split())
    assert report.outcome is FAILS
    assert imports <= 2 or sys.platform != "linux"
    assert "abandoned after its process ended 12 times, and no call returned" in text
    assert text.count("reproduce:") == 1
    assert "no call returns" in text


@pytest.mark.parametrize(("variable", "threads"), [("", "1"), ("OPENBLAS_NUM_THREADS", "3")])
def test_matrix_products_have_one_thread_unless_asked_otherwise(variable, threads, here, monkeypatch):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if variable:
        monkeypatch.setenv(variable, threads)
    (here / "own.py").write_text(
        "import os\n\n\ndef attention(query, key, value):\n"
        "    raise ValueError(os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    results = run_all(["./own.py:attention"], Selection(names=CASES[:1])).results
    assert [verdict.raised.message for verdict in results.verdicts] == [threads]
