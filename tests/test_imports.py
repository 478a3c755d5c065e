"""Imports go in one direction. No other file names a library, and none is loaded before it is used."""

import ast
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests_support import python

import attnspec
from attnspec import backends, conformance
from attnspec.backends import load, load_library
from attnspec.backends.library import LIBRARIES, library_of, release
from attnspec.reference import attention
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


def test_what_a_start_loads():
    heavy = {"numpy", "torch", "jax", "rich", "pytest", "hypothesis", "flint", "markdown_it"}
    assert not heavy & loaded_by("import attnspec")
    assert "numpy" in loaded_by("import attnspec; attnspec.cases")
    heavy = {"numpy", "torch", "jax", "rich", "hypothesis", "flint", "array_api_compat"}
    assert not heavy & loaded_by("import attnspec.conformance.run.plugin")
    loaded = loaded_by("from attnspec.backends import load; load('numpy-portable')")
    assert "numpy" in loaded
    assert not {"torch", "jax"} & loaded
    loaded = loaded_by("import attnspec.conformance.cli.main, attnspec.backends.names")
    assert "click" in loaded
    assert not {"numpy", "pytest", "hypothesis", "rich", "jsonschema"} & loaded
    # It takes a second; the linter and the tests do it.
    assert "jsonschema" not in loaded_by("import attnspec; attnspec.cases()")


#: Libraries that a run on NumPy does without: by their weight, or as they need a compiler or a device.
HEAVY = {"torch", "jax", "flint", "onnx", "safetensors", "dask", "array_api_strict", "mpmath"}


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


BACKENDS = Path(backends.__file__).parent


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_library_has_one_file_and_the_strides_that_it_says(name):
    library = load_library(name)
    assert library.name == name
    assert library.version
    assert (BACKENDS / "library" / f"{name}.py").is_file()
    assert set(library.default_dtypes) <= set(library.dtypes)
    library = load_library(name)
    array = library.to_library(np.arange(6.0), "")
    if library.strides == "any":
        assert library.to_numpy(array[::-1], "").tolist() == [5, 4, 3, 2, 1, 0]
    elif library.strides == "positive":
        assert library.to_numpy(array[::2], "").tolist() == [0, 2, 4]
        with pytest.raises(ValueError, match="step must be greater than zero"):
            array[::-1]


def test_nothing_but_numpy_is_loaded_early():
    others = set(LIBRARIES.values()) - {"numpy"}
    assert not {*others, "numpy"} & loaded_by("import attnspec.backends")
    assert not others & loaded_by("import attnspec.backends.registry")
    assert not others & loaded_by("from attnspec.backends.library import release; release()")
    name = "|".join(set(LIBRARIES) - {"numpy"})
    compared = re.compile(rf'(==|!=|\bin\b)[^\n]*"({name})"|"({name})"\s*(==|!=|in\b)')
    # The server of untrusted code imports nothing of this package, so it has its own conversions.
    sources = [x for x in BACKENDS.rglob("*.py") if x.stem not in LIBRARIES and x.parent.name != "untrusted"]
    assert len(sources) > 20
    assert [path.name for path in sources if compared.search(path.read_text(encoding="utf-8"))] == []
    assert compared.search('if library == "torch":')


def module_with(**things):
    module = ModuleType("kernels")
    vars(module).update(things)
    return module


def test_a_function_runs_on_what_its_modules_import(monkeypatch):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    assert library_of(module_with(np=np)) == "numpy"
    assert library_of(module_with(np=np, torch=torch)) == "torch"
    assert library_of(module_with(einsum=jax.numpy.einsum)) == "jax"
    assert library_of(module_with(softmax=torch.softmax)) == "torch"
    assert library_of(module_with()) == "numpy"
    torch = pytest.importorskip("torch")

    def attend():
        pass

    monkeypatch.setattr(attend, "__module__", "theirs")
    monkeypatch.setitem(sys.modules, "theirs", module_with(torch=torch))
    assert library_of(module_with(attend=attend)) == "torch"
    assert library_of(module_with(attend=attend, np=np)) == "numpy"
    monkeypatch.setitem(sys.modules, "theirs", module_with(torch=torch, np=np))
    assert library_of(module_with(attend=attend)) == "numpy"
    monkeypatch.setattr(sys.modules[attention.__module__], "torch", torch, raising=False)
    assert library_of(module_with(attend=attention)) == "numpy", "the reference takes arrays of any library"


def test_several_lazy_arrays_are_computed_together():
    dask = pytest.importorskip("dask")
    seen = []
    backend = load("dask-portable")

    def count(block):
        seen.append(block.shape)
        return block

    one = backend.to_library(np.ones(3)).map_blocks(count, meta=np.ones(0))
    got = backend.to_numpy_all([one + 1, one + 2])
    assert [array.tolist() for array in got] == [[2.0] * 3, [3.0] * 3]
    assert len(seen) == 1
    assert dask.config.get("scheduler") == "synchronous"


def test_what_a_library_keeps_is_released():
    jax = pytest.importorskip("jax")
    array = load("jax-portable").to_library(np.ones((53, 1)))
    _ = array * array
    from jax._src.interpreters.pxla import _cached_lowering_to_hlo

    assert _cached_lowering_to_hlo.cache_info().currsize
    release()
    assert not _cached_lowering_to_hlo.cache_info().currsize
    assert jax.config.jax_enable_x64
