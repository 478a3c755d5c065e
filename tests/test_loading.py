"""Backends of users and of other packages are found. If not, a single message says what to write."""

import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import get_args, get_type_hints

import numpy as np
import pytest
from tests_support import command

from attnspec.backends import BackendError, expand, load
from attnspec.backends.constraints import Constraints
from attnspec.backends.names import entry_points_of_packages
from attnspec.backends.user.configuration import KEYS, find_configuration
from attnspec.backends.user.convention import LAYOUTS, Convention

ROOT = Path(__file__).parents[1]

ATTENTION = """
import numpy as np

from attnspec import reference


def attention(query, key, value, *, scale=None, is_causal=False):
    return reference.attention(query, key, value, scale=scale, is_causal=is_causal, dtype=query.dtype)


def helper(x):
    return x


class Cache:
    def plan(self, lengths):
        self.lengths = lengths

    def run(self, query, key, value):
        return query

    forward = run


class Layer:
    def __init__(self, scale=None):
        self.scale = scale

    def __call__(self, *arrays, **options):
        return self.forward(*arrays, **options)

    def forward(self, query, key, value, *, is_causal=False):
        return attention(query, key, value, scale=self.scale, is_causal=is_causal)


def of_short_names(q, k, v, causal=False):
    return q


def of_odd_names(a, b, c):
    return a


def half_named(query, K, V):
    return query


layer = Layer()
"""
SHORT_NAMES = """expected query, key, value, got q, k, v; write this in attnspec.toml, \
or run `attnspec init mine_to_load:of_short_names`:
[backend]
function = "mine_to_load:of_short_names"
[backend.names]
query = "q"
key = "k"
value = "v\""""
LAYERS = """
import torch

class Attention(torch.nn.Module):
    def forward(self, query, key, value, *, is_causal=False, scale=None):
        options = {"is_causal": is_causal, "scale": scale}
        return torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)

attention = Attention()
"""
TOML = '[backend]\nfunction = "mine_to_load:attention"\ndtypes = ["float64"]\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module, a package and a subfolder, where no configuration is found further up."""
    (tmp_path / "mine_to_load.py").write_text(ATTENTION)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "kernel.py").write_text("from .inner import attention\n")
    (tmp_path / "pack" / "inner.py").write_text(ATTENTION)
    (tmp_path / "below" / "further").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize(
    "place",
    [
        "mine_to_load:attention",
        "./mine_to_load.py:attention",
        "mine_to_load.py:attention",
        "mine_to_load:layer",
        "mine_to_load:layer.forward",
        "pack.kernel:attention",
        "./pack/kernel.py:attention",
        "below/json.py:attention",
        "below/not-a-name.py:attention",
    ],
)
def test_what_is_found(folder, place):
    for odd in ("json.py", "not-a-name.py"):
        (folder / "below" / odd).write_text(ATTENTION)
    assert expand(place) == (place,)
    backend = load(place)
    assert backend.name == place
    assert backend.has("attention", "is_causal")
    assert backend.not_understood == ()
    array = backend.to_library(np.ones((2, 3)))
    assert backend.attention(array, array, array, is_causal=True).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_two_files_of_one_name_are_two_modules(folder):
    (folder / "below" / "mine_to_load.py").write_text("def attention(query, key, value):\n    return query\n")
    assert load("./mine_to_load.py:attention").has("attention", "scale")
    assert not load("./below/mine_to_load.py:attention").has("attention", "scale")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("mine_to_load:of_short_names", SHORT_NAMES),
        ("mine_to_load:of_odd_names", 'query = "a"\nkey = "b"\nvalue = "c"'),
        ("mine_to_load:half_named", 'key = "K"\nvalue = "V"'),
        ("mine_to_load:Layer", "got the class Layer; create an instance, layer = Layer(...), and name it:"),
        ("mine_to_load:Cache", "instances cannot be called (methods: forward, plan, run); judge a function"),
        (
            "mine_to_load:Layer.forward",
            "give self a default, or name the arguments that they are under [backend.names]",
        ),
        ("mine_to_load:atention", "got no such attribute (attention?); it has attention,"),
        ("mine_to_load.attention", "expected a colon before the function, mine_to_load:attention, got"),
        ("mine_to_load.atention", "expected a colon before the function, mine_to_load:attention, got"),
        ("pack.attention", "expected a colon before the function, pack:attention, got"),
        ("absent_module.attention", "expected a library (numpy, strict, "),
        (":", "expected module:function or ./file.py:function, got ':'"),
        ("mine_to_load:", "expected module:function or ./file.py:function, got 'mine_to_load:'"),
        ("mine_to_load.py", "expected a function, such as mine_to_load.py:attention or"),
        ("mine_to_load", "expected a function, such as mine_to_load:attention or"),
        ("./absent.py:attention", "expected a file absent.py, got none"),
        ("absent_module:attention", "expected a module absent_module, got none in this folder or installed"),
        ("pack.absent:attention", "expected a module pack.absent, got none in this folder or installed"),
        ("needing:attention", "needing imports triton_absent, which is not installed; pip install"),
        ("below/badly.py:attention", "importing below/badly.py raised SyntaxError"),
        ("token:attention", "of the standard library; to name the file, write ./token.py:FUNCTION"),
    ],
)
def test_what_cannot_be_used_says_what_to_write(folder, place, message):
    (folder / "needing.py").write_text("import triton_absent.language\n")
    (folder / "token.py").write_text(ATTENTION)
    (folder / "below" / "badly.py").write_text("def f(:\n")
    with pytest.raises(BackendError) as caught:
        load(place)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) < 10


def test_modules_named_like_those_of_python_break_nothing(folder):
    """In a process of its own, as a user starts one: what is imported there already would hide it."""
    for name in ("types", "json", "token", "random"):
        (folder / f"{name}.py").write_text("raise RuntimeError('the wrong one')\n")
    program = (
        "from attnspec.backends import load; backend = load('mine_to_load:attention');"
        "import random, json, token; print(backend.library)"
    )
    command = [sys.executable, "-P", "-c", program]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.stdout == "numpy\n", run.stderr


def test_a_module_of_torch_is_called_by_its_forward(folder):
    (folder / "layers.py").write_text(LAYERS)
    backend = load("layers:attention")
    assert backend.library == "torch"
    assert backend.has("attention", "scale")
    one = backend.to_library(np.ones((2, 3, 4), "float32"))
    assert tuple(backend.attention(one, one, one, is_causal=True).shape) == (2, 3, 4)


def test_a_configuration_is_found_upward(folder):
    assert find_configuration(folder / "below" / "further") is None
    (folder / "attnspec.toml").write_text(TOML)
    assert find_configuration(folder / "below" / "further") == folder / "attnspec.toml"
    (folder / "below" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert find_configuration(folder / "below" / "further") == folder / "attnspec.toml"
    project = TOML.replace("[backend]", "[tool.attnspec.backend]")
    (folder / "below" / "pyproject.toml").write_text(f"[project]\nname = 'x'\n\n{project}")
    assert find_configuration(folder / "below" / "further") == folder / "below" / "pyproject.toml"


@pytest.mark.parametrize(
    ("file", "table"), [("attnspec.toml", "backend"), ("pyproject.toml", "tool.attnspec.backend")]
)
def test_a_backend_with_a_configuration_is_called_by_its_function(folder, monkeypatch, file, table):
    (folder / file).write_text(TOML.replace("backend", table))
    assert expand(".") == expand(str(folder)) == ("mine_to_load:attention",)
    for place in (".", "mine_to_load:attention"):
        assert load(place).dtypes == ("float64",), "what the file says holds by either name"
        assert load(place).name == "mine_to_load:attention"
    assert expand(".?dtype=float32") == ("mine_to_load:attention?dtype=float32",)
    assert load("mine_to_load:attention?dtype=float32").dtypes == ("float32",)
    assert load("mine_to_load:layer").dtypes == ("float32", "float64"), "the file is of another function"
    monkeypatch.chdir(folder / "below" / "further")
    assert expand(str(folder)) == ("mine_to_load:attention",)
    assert load("mine_to_load:attention").dtypes == ("float64",)
    monkeypatch.chdir(Path(__file__).parent)
    assert expand(str(folder)) == (str(folder),), "from elsewhere the function alone would not find it"
    assert load(str(folder)).name == str(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('layuot = "BSHD"', "got 'layuot' (layout?)"),
        ("axes = true", "axes: expected 3 or 4, got True"),
        ("depths = [0]", "depths: expected positive integers, got [0]"),
        ("multiple = [1, 2, 3]", "multiple: expected one integer or two, got [1, 2, 3]"),
        ('heads = "same"', "heads: expected grouped or equal, got 'same'"),
        ("always = { window = 3 }", "always: expected flags that are true, such as is_causal, got"),
        ('given = ["colour"]', "given: expected options of the specification, got colour"),
        ('names = { q = "query" }', 'names: expected ours = "yours", got q = "query"; write query = "q"'),
        ('names = { is_casual = "causal" }', "got is_casual (is_causal?)"),
        ('names = { mask = "is_causal" }', "for each argument, got is_causal for mask and is_causal"),
        ('names = { window = "scale" }', "parameter for each argument, got scale for scale and window"),
        ('companions = { rotery = "a:b" }', "got 'rotery' (rotary?)"),
    ],
)
def test_a_key_that_is_wrong_is_named(folder, text, message):
    (folder / "attnspec.toml").write_text(TOML.replace("dtypes", f"{text}\ndtypes"))
    with pytest.raises(BackendError) as caught:
        load(".")
    assert message in str(caught.value)


BLOCK = (ROOT / "conformance" / "configuration.md").read_text().split("```toml\n")[1].partition("```")[0]


def test_every_key_and_every_value_is_documented():
    # In the example, and the keys of a program beside it.
    assert set(KEYS) - set(tomllib.loads(BLOCK)["backend"]) == {"program", "call_limit", "ranks"}
    # Also the defaults, which `attnspec init` writes.
    hints = get_type_hints(Convention) | get_type_hints(Constraints)
    choices = {key: get_args(hints[key]) for key in ("mask", "heads", "value_depth", "bias_dtype")}
    choices |= {"layout": LAYOUTS, "accuracy": ("cast", "full")}
    for key, values in choices.items():
        of_key = BLOCK[BLOCK.index(f"\n{key} = ") :]
        assert values
        for value in values:
            assert f'"{value}"' in of_key[:300], f"{key} = {value}"


SOURCE = """
    from dataclasses import replace

    from attnspec.backends import Backend, load_library

    def attention(query, key, value, *, scale=None):
        return value[..., :1, :] + 0 * query[..., :1]

    def backend():
        return Backend("whatever", load_library("numpy"), attention, ("float32",))

    made = backend()
    dated = replace(made, dialect={"MASK-6": "nan"}, versions=">=1.0,<1.1")
    odd = replace(made, dtypes=("float31",))

    def breaking():
        raise RuntimeError("no device\\nof that kind")

    def of_nothing():
        return 3
"""
ENTRIES = """
    [attnspec.backends]
    acme-called = acme_attention:backend
    acme-made = acme_attention:made
    acme-dated = acme_attention:dated
    acme-odd = acme_attention:odd
    acme-breaking = acme_attention:breaking
    acme-nothing = acme_attention:of_nothing
    acme-absent = acme_attention:gone
    acme-missing = acme_elsewhere:backend
    acme-twice = acme_attention:backend
    torch = acme_attention:backend
    numpy-portable = acme_attention:backend
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path, monkeypatch):
    """Two packages, as pip leaves them."""
    twice = "[attnspec.backends]\nacme-twice = acme_attention:made\n"
    for package, entries in (("acme", ENTRIES), ("zebra", twice)):
        folder = tmp_path / f"{package}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(dedent(entries))
    (tmp_path / "acme_attention.py").write_text(dedent(SOURCE))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "acme_attention", raising=False)


@pytest.mark.parametrize("name", ["acme-called", "acme-made"])
def test_a_registered_backend_is_found_by_its_name(name):
    assert expand(name) == (name,)
    backend = load(name)
    assert (backend.name, backend.library, backend.dtypes) == (name, "numpy", ("float32",))
    assert load(f"{name}?dtype=float64").dtypes == ("float64",)


def test_registered_backends_are_listed_and_our_names_are_not_theirs():
    assert load("acme-dated").dialect == {}
    assert "declarations are for >=1.0,<1.1" in load("acme-dated").notes[0]
    assert not {"torch", "numpy-portable"} & set(entry_points_of_packages())
    assert load("numpy-portable").has("attention", "window")
    assert len(expand("torch")) > 1
    with pytest.raises(BackendError, match="acme-called"):
        expand("acme-colled")

    listed = command("backends", status=0)
    shown = " ".join(listed.output.split())
    assert "acme-made numpy 2" in shown
    assert "acme-breaking entry point attnspec.backends:" in shown
    assert "(declarations are for >=1.0,<1.1)" in shown


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("acme-odd", r"dtypes: expected some of float16, .*, got \('float31',\)"),
        ("acme-breaking", "expected a Backend or a function that returns one, got RuntimeError: no device"),
        ("acme-nothing", "expected a Backend or a function that returns one, got int"),
        ("acme-absent", "expected a Backend or a function that returns one, got AttributeError"),
        ("acme-missing", "expected a Backend or a function that returns one, got ModuleNotFoundError"),
        ("acme-twice", "acme_attention:made of zebra: expected one entry point of this name, got 2"),
    ],
)
def test_a_broken_one_is_one_line_about_that_name(name, message):
    with pytest.raises(BackendError, match=message) as caught:
        load(name)
    assert str(caught.value).startswith(f"backend {name}: ")
    assert "\n" not in str(caught.value)
    assert load("acme-made").name == "acme-made"
