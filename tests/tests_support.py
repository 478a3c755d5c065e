"""Helpers for several test files."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from functools import cache, wraps
from pathlib import Path

import broken
import numpy as np
from click.testing import CliRunner

from attnspec import OPERATIONS, Case, find_rule
from attnspec.backends import NAMES, Backend, BackendError, load, load_library
from attnspec.backends.names import APART, SEPARATE
from attnspec.conformance.cli.main import main
from attnspec.conformance.run.cases import Cases
from attnspec.conformance.run.plan import Selection, index, plan_of
from attnspec.conformance.suite import items
from attnspec.dtypes import DTYPES
from attnspec.reference import functions

TESTS = os.path.dirname(__file__)
#: What is set for our own runs has no place in those that are tried.
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}


def command(*words, status=None):
    """Run the command in this process; ``status`` is the one with which it has to end."""
    run = CliRunner().invoke(main, [*map(str, words)])
    assert status in (None, run.exit_code), run.output
    return run


def python(*words, cwd=TESTS, stdout=subprocess.PIPE, status=None, **environment):
    """Run Python in a process of its own; modules are found in the folder."""
    streams = {"stdout": stdout, "stderr": subprocess.PIPE, "text": True, "env": CLEAN | environment}
    run = subprocess.run([sys.executable, *map(str, words)], **streams, check=False, cwd=cwd)
    assert status in (None, run.returncode), f"{run.stdout}{run.stderr}"
    return run


def attnspec(*words, **options):
    """Run the command in a process of its own."""
    return python("-m", "attnspec.conformance.cli.main", *words, **options)


def written():
    """The keys of the configuration in the current folder."""
    return tomllib.loads(Path("attnspec.toml").read_text())["backend"]


def pairs(name):
    """The rows of a table of two columns, as a dictionary."""
    text = Path(TESTS, "tables", f"{name}.txt").read_text(encoding="utf-8")
    return dict(line.split(" | ") for line in text.splitlines())


@cache
def whole_suite():
    """The cases of the whole suite, which take seconds to make: made once for all tests of a process."""
    return tuple(items())


@cache
def quick_suite():
    """The cases of the quick part."""
    names = {outline.name for outline in index() if outline.quick}
    return tuple(case for case in whole_suite() if case.name in names)


def about(*rules):
    """The cases of the quick part that bear on some rules."""
    return [case for case in quick_suite() if {*rules} & {*case.rules}]


def fitted_cases(constraints, *rules, **part):
    """The generated cases of a part of the suite that bear on some rules, drawn to fit constraints."""
    outlines = plan_of(Selection(rules=rules, **part))
    chosen = tuple((outline.group, outline.name) for outline in outlines if outline.group)
    made = Cases()
    plan = made.plan(Selection(fits=constraints.suffix, drawn=chosen), constraints)
    return [made.find(outline.name, outline.group, constraints) for outline in plan]


def installed_backends():
    """The backends that can be loaded here, by name."""
    for name in (*NAMES, *APART, *SEPARATE):
        try:
            yield name, load(name)
        except BackendError:  # no compiler, or not installed
            assert name in (*APART, *SEPARATE)


def can_compile():
    """Whether PyTorch can compile for a CPU here: that takes a C++ compiler and the headers of Python."""
    headers = Path(sysconfig.get_paths()["include"], "Python.h")
    return shutil.which(os.environ.get("CXX", "g++")) is not None and headers.exists()


def backend_of(name, **options):
    """One of the misbehaving functions, as a backend on NumPy."""
    return Backend(f"broken:{name}", load_library("numpy"), getattr(broken, name), **options)


def backend_of_operations(own, dtypes=DTYPES):
    """Functions of operations, by name, as a backend on NumPy."""
    attention = (own["attention"],) if "attention" in own else ()
    companions = {name: function for name, function in own.items() if name != "attention"}
    return Backend("own", load_library("numpy"), *attention, companions=companions, dtypes=(*dtypes,))


def backend_ignoring(operation, name, beside, dtypes=DTYPES):
    """A backend of an operation that ignores an argument, and what needs it, beside another."""
    run, known = functions()[operation], OPERATIONS[operation].arguments

    @wraps(run)
    def ignore(*arrays, **options):
        given = beside in options
        left = {own: x for own, x in options.items() if not (given and name in (own, *known[own].needs))}
        return run(*arrays, **left)

    return backend_of_operations({operation: ignore}, dtypes)


def own_case(rule, arguments, operation="attention", **options):
    """A generated call that bears on a rule."""
    return Case("own-1", "", find_rule(rule).chapter, operation, (rule,), arguments, group="own", **options)


def converted(backend, arguments):
    """The arguments with the arrays of the library of a backend."""
    return {
        name: backend.to_library(thing) if isinstance(thing, np.ndarray) else thing
        for name, thing in arguments.items()
    }


def run_operation(backend, operation, arguments):
    """Call an operation with NumPy arrays, converted to the library of the backend."""
    given = converted(backend, arguments)
    arrays = [given.pop(name) for name in OPERATIONS[operation].arrays]
    return backend.function(operation)(*arrays, **given)
