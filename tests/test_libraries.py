"""A library is an object. No other file names a library, and none is loaded before it is used."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from test_imports import loaded_by

from attnspec import backends
from attnspec.backends import load, load_library
from attnspec.backends.library import LIBRARIES, library_of, release

HOME = Path(backends.__file__).parent


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_library_has_one_file(name):
    library = load_library(name)
    assert library.name == name
    assert library.version
    assert (HOME / "library" / f"{name}.py").is_file()
    assert set(library.default_dtypes) <= set(library.dtypes)


def test_nothing_but_numpy_is_loaded_early():
    others = set(LIBRARIES.values()) - {"numpy"}
    assert not {*others, "numpy"} & loaded_by("import attnspec.backends")
    assert not others & loaded_by("import attnspec.backends.registry")
    assert not others & loaded_by("from attnspec.backends.library import release; release()")


def test_no_library_is_told_by_its_name():
    name = "|".join(set(LIBRARIES) - {"numpy"})
    compared = re.compile(rf'(==|!=|\bin\b)[^\n]*"({name})"|"({name})"\s*(==|!=|in\b)')
    # The server of untrusted code imports nothing of this package, so it has its own conversions.
    sources = [
        path for path in HOME.rglob("*.py") if path.stem not in LIBRARIES and path.parent.name != "untrusted"
    ]
    assert len(sources) > 20
    assert [path.name for path in sources if compared.search(path.read_text(encoding="utf-8"))] == []
    assert compared.search('if library == "torch":')


def module_with(**things):
    module = ModuleType("kernels")
    vars(module).update(things)
    return module


def test_a_function_runs_on_what_its_module_imports():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    assert library_of(module_with(np=np)) == "numpy"
    assert library_of(module_with(np=np, torch=torch)) == "torch"
    assert library_of(module_with(einsum=jax.numpy.einsum)) == "jax"
    assert library_of(module_with(softmax=torch.softmax)) == "torch"
    assert library_of(module_with()) == "numpy"


def test_the_library_is_that_of_the_modules_of_its_functions_unless_they_import_numpy_too(monkeypatch):
    torch = pytest.importorskip("torch")

    def attend():
        pass

    monkeypatch.setattr(attend, "__module__", "theirs")
    monkeypatch.setitem(sys.modules, "theirs", module_with(torch=torch))
    assert library_of(module_with(attend=attend)) == "torch"
    assert library_of(module_with(attend=attend, np=np)) == "numpy"
    monkeypatch.setitem(sys.modules, "theirs", module_with(torch=torch, np=np))
    assert library_of(module_with(attend=attend)) == "numpy"


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_strides_that_a_library_says_are_those_that_it_has(name):
    library = load_library(name)
    array = library.to_library(np.arange(6.0), "")
    if library.strides == "any":
        assert library.to_numpy(array[::-1], "").tolist() == [5, 4, 3, 2, 1, 0]
    elif library.strides == "positive":
        assert library.to_numpy(array[::2], "").tolist() == [0, 2, 4]
        with pytest.raises(ValueError, match="step must be greater than zero"):
            array[::-1]


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
