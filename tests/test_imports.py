"""Imports go in one direction: spec, reference, backends, conformance. Large libraries are loaded late."""

import ast
import os
from pathlib import Path

import pytest
from tests_support import python

import attnspec
from attnspec import conformance
from tools.path import CASE, PACKAGE, passed_files

ROOMS = ("attnspec", "attnspec.reference", "attnspec.backends", "attnspec.conformance")
HOME = Path(attnspec.__file__).parent


def room_of(module):
    """The room of a module, by its longest prefix."""
    return max((room for room in ROOMS if module == room or module.startswith(f"{room}.")), key=len)


def imports(source):
    """Our own modules that a source imports, with those of relative imports refused."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "attnspec")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                "absolute imports only: under pytest a folder is importable by its own name too"
            )
            if node.module and node.module.split(".")[0] == "attnspec":
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def upward(room, source):
    """Imports from a room further right."""
    return [module for module in imports(source) if ROOMS.index(room_of(module)) > ROOMS.index(room)]


def test_every_import_runs_one_way():
    sources = {}
    for room in ROOMS:
        folder = HOME.joinpath(*room.split(".")[1:])
        sources |= dict.fromkeys(folder.rglob("*.py"), room)
    assert len(sources) > 35
    found = {path.name: up for path, room in sources.items() if (up := upward(room, path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("attnspec", "from attnspec import reference"),
        ("attnspec", "import attnspec.conformance.judge.judge"),
        ("attnspec.reference", "from attnspec.backends import load"),
        ("attnspec.backends", "def f():\n    from attnspec.conformance.judge.call import call"),
    ],
)
def test_an_upward_import_would_be_seen(room, source):
    assert upward(room, source)


#: Two ways to the same values, which prove each other and the source by having nothing in common.
ORACLES = ("exact", "rational")


def shared(oracle, source):
    """What a file of an oracle takes from the reference beside the oracle's own."""
    taken = (module for module in imports(source) if room_of(module) == "attnspec.reference")
    return [module for module in taken if not module.startswith(f"attnspec.reference.{oracle}.")]


@pytest.mark.parametrize("oracle", ORACLES)
def test_an_oracle_shares_nothing_with_the_source_or_with_the_other(oracle):
    files = list(HOME.joinpath("reference", oracle).glob("*.py"))
    assert len(files) > 5
    found = {path.name: taken for path in files if (taken := shared(oracle, path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "from attnspec.reference import attention",
        "from attnspec.reference.heads import shared",
        "def f():\n    import attnspec.reference.softmax",
        "from attnspec.reference.rational.numbers import dot",
        "from attnspec.reference.budget.budget import FORMATS",  # which brings the source
    ],
)
def test_what_an_oracle_would_share_is_seen(source):
    assert shared("exact", source)
    assert not shared("exact", "from attnspec.reference.exact.balls import settle")


def loaded_by(statement):
    """Top-level modules in a fresh interpreter after a statement."""
    program = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(python("-c", program).stdout.split())


def test_the_spec_loads_little():
    heavy = {"numpy", "torch", "jax", "rich", "pytest", "hypothesis", "flint", "markdown_it"}
    assert not heavy & loaded_by("import attnspec")
    assert "numpy" in loaded_by("import attnspec; attnspec.cases")


def test_the_plugin_loads_nothing_heavy():
    heavy = {"numpy", "torch", "jax", "rich", "hypothesis", "flint", "array_api_compat"}
    assert not heavy & loaded_by("import attnspec.conformance.run.plugin")


def test_the_numpy_backend_loads_no_other_library():
    loaded = loaded_by("from attnspec.backends import load; load('numpy-portable')")
    assert "numpy" in loaded
    assert not {"torch", "jax"} & loaded


#: Libraries that a run on NumPy does without: by their weight, or as they need a compiler or a device.
HEAVY = {"torch", "jax", "flint", "onnx", "safetensors", "dask", "array_api_strict", "mpmath"}


def test_the_command_line_loads_no_array_library():
    loaded = loaded_by("import attnspec.conformance.cli.main, attnspec.backends.names")
    assert "click" in loaded
    assert not {"numpy", "pytest", "hypothesis", "rich", "jsonschema"} & loaded


def test_the_vectors_are_not_validated_at_load():
    """It takes a second; the linter and the tests do it."""
    assert "jsonschema" not in loaded_by("import attnspec; attnspec.cases()")


def test_a_run_on_numpy_loads_nothing_heavy():
    here = os.path.dirname(conformance.__file__)
    program = (
        "import pytest, sys; pytest.main(sys.argv[1:]); "
        "print('loaded', *{name.partition('.')[0] for name in sys.modules})"
    )
    words = ["--pyargs", "attnspec.conformance", "--backend=broken:half", "--case=softmax-000", "-q"]
    words += ["-c", f"{here}/pytest.ini", "--rootdir", here, "-p", "no:cacheprovider", "-p", "no:xdist"]
    loaded = set(python("-c", program, *words).stdout.rpartition("loaded ")[2].split())
    assert "attnspec" in loaded
    assert not {"numpy", *HEAVY} & loaded  # only the process that it starts makes arrays


def test_files_of_the_command_and_of_the_child_are_noted_and_those_only_imported_are_not():
    files = passed_files(CASE, "./my_attention.py:attention")
    folders = {
        process: {
            path.relative_to(PACKAGE / "conformance").parts[0]
            for path in paths
            if "conformance" in path.parts
        }
        for process, paths in files.items()
    }
    assert {"cli", "run", "attribution", "render"} <= folders["command"]
    assert {"run", "judge"} <= folders["child"]
    assert not {"gallery", "export"} & (folders["command"] | folders["child"])
