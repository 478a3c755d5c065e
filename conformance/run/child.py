"""The process that calls a backend. It reads requests and writes verdicts, one on each line.

Only this process runs a backend's code. `Worker` starts it and ends it.
"""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from attnspec import OPERATIONS, Case, SpecError
from attnspec.backends import Backend, BackendError, load
from attnspec.backends.attention_of_form import attention_of_form
from attnspec.backends.constraints import ANY, SERIAL, Constraints
from attnspec.backends.program.serve import until_closed
from attnspec.backends.user.signature import explain_unknown_parameters
from attnspec.conformance.claim import class_of
from attnspec.conformance.judge.deviation import declarations, not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.outside import cut
from attnspec.conformance.results import Subject
from attnspec.conformance.run.cases import Cases
from attnspec.conformance.run.events import Loaded, offer_of
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.suite.group import Item
from attnspec.conformance.verdict import Raise, Verdict, to_json

if TYPE_CHECKING:
    from attnspec.conformance.sizes.limits import Limits

#: Number of cases of a plan in one line.
_IN_A_LINE = 500

Answer = Callable[[str, Any], None]


class Child:
    """The state of the process: the backend, once it is loaded, and the cases."""

    def __init__(self, seed: int | None, files: tuple[str, ...], answer: Answer, *, sizes: bool) -> None:
        self.answer, self._sizes = answer, sizes
        self._seed = seed
        self._cases = Cases(seed, files)
        self._backend: Backend | None = None
        self._limits: Limits | None = None
        self._copies_arrays = False
        self._gallery: Any = None

    @property
    def backend(self) -> Backend:
        """The backend that `load` has loaded."""
        assert self._backend is not None  # noqa: S101 - the parent asks for `load` first
        return self._backend

    def plan(self, selection: dict[str, Any]) -> None:
        """List the selected cases, before the backend is loaded."""
        given: dict[str, Any] = {name: tuple(x) if type(x) is list else x for name, x in selection.items()}
        chosen = Selection(**given)
        constraints = Constraints.of_suffix(chosen.fits) if chosen.fits else ANY
        plan = self._cases.plan(chosen, constraints)
        for start in range(0, len(plan), _IN_A_LINE):
            part = plan[start : start + _IN_A_LINE]
            self.answer("planned", [[x.name, x.group, x.rules, x.dtype, x.refusal] for x in part])
        self.answer("plan", len(plan))

    def limit(self, seconds: float, octets: float, each: float) -> None:
        """Set the limits of the sizes."""
        from attnspec.conformance.sizes.limits import Limits

        self._limits = Limits(seconds, octets, each)

    def load(self, name: str) -> None:
        """Load the backend."""
        backend = load(name)
        self._backend = attention_of_form(backend) if self._sizes else backend
        self._copies_arrays = not device_fault(backend)
        loaded = describe_loaded(name, self.backend)
        outputs = OPERATIONS["attention"].outputs
        returns = [output for output in outputs if self.backend.has("attention", f"return_{output}")]
        self.answer("loaded", asdict(loaded) | {"returns": returns})

    def prepare(self, request: Mapping[str, Any]) -> None:
        """Make the case of a request without judging it."""
        if request["do"] == "judge":
            self._find(request["name"], request["group"])

    def judge(self, name: str, group: str, *, described: bool = False) -> None:
        """Judge one case, whose traits the parent may know."""
        item = self._find(name, group)
        verdict = self._judge_sized(item) if isinstance(item, SizedCase) else judge_again(self.backend, item)
        if verdict.bad or item.refusal:
            self.end_if_device_is_lost()
        verdict = verdict if described else with_traits(verdict, item)
        self.answer("verdict", to_json(verdict))
        self.backend.array_library.release()

    def end_if_device_is_lost(self) -> None:
        """End this process if a call left a GPU in error: every later call would fail."""
        if self._copies_arrays and (fault := device_fault(self.backend)):
            self.answer("lost", fault)
            os._exit(1)

    def missing(self, shown: list[str]) -> None:
        """Make an error for each declaration that no case has shown."""
        self.answer("verdicts", [to_json(verdict) for verdict in not_shown(self.backend, shown)])

    def diagnose(self, cases: list[list[str]], seconds: float | None) -> None:
        """Find the gallery entries with the same results as the backend; None if there are none."""
        from attnspec.conformance.attribution.diagnosis import Gallery, diagnose_run  # imports the gallery

        found = [case for case in (self._find(*each) for each in cases) if not isinstance(case, SizedCase)]
        self._gallery = self._gallery or Gallery()  # which keeps the calls that it makes
        limit = inf if seconds is None else seconds
        diagnosis = diagnose_run(self.backend, found, limit, self._gallery)
        self.answer("diagnosis", asdict(diagnosis) if diagnosis else None)

    def probe(self, cases: list[list[str]], seconds: float) -> None:
        """Say on which sizes it depends whether calls like some cases fail; empty if none shows it."""
        from attnspec.conformance.attribution.probes import probe_case

        found = [case for case in (self._find(*each) for each in cases) if isinstance(case, Case)]
        said = (probe_case(self.backend, case, seconds / len(found)) for case in found)
        self.answer("probe", next(filter(None, said), ""))

    def search(self, number: int, folder: str) -> None:
        """Search for a failing call, and store it in a folder."""
        from attnspec.conformance.run.search import search, store  # imports Hypothesis

        try:
            found = search(self.backend, number, self._seed)
        except BackendError as error:
            self.answer("counterexample", {"problem": str(error)})
            return
        verdict, call = store(self.backend, found, Path(folder)) if found else (None, [])
        self.answer("counterexample", {"verdict": verdict and to_json(verdict), "call": call})

    def _judge_sized(self, item: SizedCase) -> Verdict:
        """Judge a sized case within the limits."""
        if self._limits is None:
            self.limit(inf, 0.0, inf)
        assert self._limits is not None  # noqa: S101 - for the type checker: it has just been set
        return self._limits.judge(self.backend, item, judge_again)

    def _find(self, name: str, group: str) -> Item | SizedCase:
        return self._cases.find(name, group, self.backend.constraints)


def device_fault(backend: Backend) -> str:
    """Return why one number cannot be copied to the device of a backend and back; empty if it can."""
    try:
        backend.to_numpy(backend.to_library(np.zeros(1, backend.dtypes[0])))
    except Exception as error:  # noqa: BLE001 - each library has errors of its own
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return ""


def describe_loaded(name: str, backend: Backend) -> Loaded:
    """Describe a loaded backend."""
    compiles = bool(backend.array_library.compile)
    return Loaded(subject_of(name, backend), compiles, backend.constraints.suffix, offer_of(backend))


def subject_of(name: str, backend: Backend) -> Subject:
    """Describe a backend for the results."""
    unknown, notes = explain_unknown_parameters(backend), "; ".join(backend.notes)
    problem = f"backend {name}: {unknown}" if unknown else ""
    kind, claims = class_of(name, backend), ",".join(backend.claims)
    functions = (*backend.companions.values(), backend.attention)
    conventions = [function.convention for function in functions if hasattr(function, "convention")]
    own = {ours: parameter for each in conventions for ours, parameter in each.own_names.items()}
    # An offset that only says where the queries are in any case is no option of the function.
    placed = {"query_offset"} - own.keys() if any(each.at_length for each in conventions) else set()
    names = ",".join(f"{ours}={parameter}" for ours, parameter in own.items())
    offer = offer_of(backend)
    taken = offer.functions.items() if offer else ()
    every = (x for operation, names in taken for x in OPERATIONS[operation].options if x in names)
    asked = (x for x in every if not x.startswith("return_") and x not in placed)
    options = ",".join(dict.fromkeys(asked))
    return Subject(
        name,
        backend.library,
        backend.version,
        problem,
        notes,
        kind,
        backend.profile,
        claims,
        "-".join(filter(None, (backend.constraints.others, "" if backend.concurrent else SERIAL))),
        options,
        names,
        ",".join(declarations(backend)),
    )


def _once(backend: Backend, item: Item | SizedCase) -> Verdict:
    try:
        # NumPy's defaults, because a kernel may change them for this process.
        with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):
            return judge(backend, item)
    except KeyboardInterrupt as error:  # raised by the kernel: this process ignores SIGINT
        raised = Raise(type(error).__name__, str(error))
        rule = item.rules[0]
        return Verdict(
            backend.name,
            item.name,
            item.group,
            item.rules,
            "error",
            item.dtype,
            rule=rule,
            raised=raised,
            code="raised",
        )


def judge_again(
    backend: Backend, item: Item | SizedCase, put: Callable[[Backend, Item | SizedCase], Verdict] = _once
) -> Verdict:
    """Judge a case and measure the time; repeat a failure once, to see whether it is repeatable."""
    started = time.perf_counter()
    verdict = put(backend, item)
    again = verdict.bad and put(backend, item).status != verdict.status
    seconds = round(time.perf_counter() - started, 4)
    reason = cut(verdict.reason)  # it may quote a long message
    return replace(verdict, seconds=seconds, repeatable=not again, refusal=item.refusal, reason=reason)


def with_traits(verdict: Verdict, item: Item | SizedCase) -> Verdict:
    """Add the traits of a case to the verdict on it."""
    from attnspec.conformance.judge.traits import describe  # the index has most of them

    traits, numbers, sizes = describe(item)
    return replace(verdict, traits=traits, numbers=numbers, sizes=sizes)


def _answers(pipe: int) -> Answer:
    stream = os.fdopen(pipe, "wb", closefd=False)

    def answer(kind: str, thing: Any) -> None:
        # json.dumps escapes lone surrogates, which a message may contain.
        stream.write((json.dumps({kind: thing}) + "\n").encode())
        stream.flush()

    return answer


def main() -> None:
    """Use the standard streams for requests and answers, and give the backend other streams."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it, and ends this process
    faulthandler.enable(all_threads=False)
    copies, sizes, seed, *files = json.loads(sys.argv[1])
    child = Child(seed, tuple(files), _answers(answers), sizes=sizes)
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, all_threads=False)
    if copies:
        _load_and_copy(child, requests, answers)
    for line in until_closed(requests):
        _handle(child, line)


def _load_and_copy(child: Child, requests: BinaryIO, answers: int) -> None:
    """Load the backend here and answer in copies; return if the loaded process cannot be copied."""
    from attnspec.conformance.run.copies import can_be_copied, serve_in_copies, threads

    before = threads()
    for line in requests:
        _handle(child, line)
        if json.loads(line)["do"] == "load":
            break
    if not can_be_copied(before):
        return

    def put(line: bytes, pipe: int) -> None:
        child.answer = _answers(pipe)
        _handle(child, line)

    def end(how: str, stack: str) -> None:
        child.answer("ended", {"how": how, "stack": stack})

    serve_in_copies(requests, answers, put, end, lambda line: child.prepare(json.loads(line)))


def _handle(child: Child, line: bytes) -> None:
    """Answer one request."""
    request = json.loads(line)
    asked = " ".join(str(part) for part in (request["do"], request.get("name", "")) if part)
    try:
        getattr(child, request.pop("do"))(**request)
    except (BackendError, SpecError) as error:
        child.answer("problem", str(error))
    except Exception as error:  # noqa: BLE001 - what an implementation raises is a verdict
        child.end_if_device_is_lost()
        child.answer("internal", f"not of the implementation: {asked}: {_say(error)}")


def _say(error: Exception) -> str:
    """Say what was raised and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno}, {last.name})"


if __name__ == "__main__":
    main()
