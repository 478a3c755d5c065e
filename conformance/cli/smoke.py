"""Test the suite itself with a correct and a wrong implementation."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends import DTYPES, Backend, BackendError, Broken, Unsupported, load
from attnspec.backends.names import name_program
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.judge.failure import Failure, Raised
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.judge.refusal import fitting_call
from attnspec.conformance.render.text import result_line
from attnspec.conformance.suite import find

#: A golden vector that fails if the mask is ignored.
_CASE = "masking-empty-last"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    problem: str = ""

    @property
    def good(self) -> bool:
        """Whether the check succeeded."""
        return not self.problem

    def __str__(self) -> str:
        return f"ok    {self.what}" if self.good else f"WRONG {self.what}: {self.problem}"


def check_harness() -> Iterator[Finding]:
    """Judge a correct and a wrong implementation, in this process and as a program."""
    here = load("numpy-portable")
    served = f'"{sys.executable}" -m attnspec.backends.program.serve numpy-portable'
    routes = {"in this process": here}
    try:
        routes["as a program"] = load(name_program(served))
    except BackendError as error:
        yield Finding("a program that is known to be right is started", str(error))
    for place, backend in routes.items():
        for dtype in DTYPES:
            verdict = judge(backend, find(f"{_CASE}-{dtype}"))
            problem = "" if verdict.status == "pass" else result_line(verdict)
            yield Finding(f"what is known to be right passes {place}, {dtype}", problem)
        verdict = judge(replace(backend, attention=_blind(backend)), find(f"{_CASE}-float32"))
        problem = "" if verdict.status == "fail" else f"its verdict is {verdict.status}"
        yield Finding(f"what ignores its mask fails {place}", problem)


def try_out(name: str) -> Iterator[Finding]:
    """Load a backend, make a call without options, and report the result."""
    try:
        backend = load(name)
    except BackendError as error:
        yield Finding(f"{name} is loaded", str(error))
        return
    operation = "attention" if backend.function("attention") else next(iter(backend.companions))
    offered = ", ".join(option for option in _options(backend, operation))
    yield Finding(f"{name}: {backend.version}, {', '.join(backend.dtypes)}, with {offered or 'no options'}")
    query = np.array([[1.0, 0.0], [0.0, 2.0]])
    arguments = {"query": query, "key": query, "value": np.array([[1.0, 2.0], [3.0, 4.0]])}
    if operation != "attention":
        arguments = dict(fitting_call(backend, operation))
    for dtype in backend.dtypes:
        try:
            outputs = call(backend, operation, in_dtype(arguments, dtype))
        except (Failure, Raised, Broken, Unsupported) as problem:
            yield Finding(f"a call in {dtype}", str(problem))
        else:
            yield Finding(f"a call in {dtype} gave {_said(outputs)}")


def _options(backend: Backend, operation: str) -> Iterator[str]:
    yield from (name for name in OPERATIONS[operation].options if backend.has(operation, name))


def _said(outputs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {np.round(array.astype(float), 4).tolist()}" for name, array in outputs.items())


def _blind(backend: Backend) -> Any:
    """Make a function that takes a mask and ignores it."""
    attention = backend.attention

    def ignoring(query: Any, key: Any, value: Any, *, mask: Any = None) -> Any:
        del mask
        return attention(query, key, value)

    return ignoring
