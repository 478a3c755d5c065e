"""Other packages register backends by name. An error in one of them affects only this name."""

import sys
from textwrap import dedent

import pytest

from attnspec.backends import BackendError, expand, load
from attnspec.backends.names import registered

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
    for package, entries in (
        ("acme", ENTRIES),
        ("zebra", "[attnspec.backends]\nacme-twice = acme_attention:made\n"),
    ):
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


def test_what_it_declares_holds_for_its_releases():
    assert load("acme-dated").dialect == {}
    assert "declarations are for >=1.0,<1.1" in load("acme-dated").notes[0]


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


def test_our_names_are_not_theirs_to_take():
    assert not {"torch", "numpy-portable"} & set(registered())
    assert load("numpy-portable").has("attention", "window")
    assert len(expand("torch")) > 1


def test_they_are_named_where_no_name_fits():
    with pytest.raises(BackendError, match="acme-called"):
        expand("acme-colled")


def test_they_are_listed():
    from click.testing import CliRunner

    from attnspec.conformance.cli.main import main

    listed = CliRunner().invoke(main, ["backends"])
    assert listed.exit_code == 0, listed.output
    shown = " ".join(listed.output.split())
    assert "acme-made numpy 2" in shown
    assert "acme-breaking entry point attnspec.backends:" in shown
    assert "(declarations are for >=1.0,<1.1)" in shown
