"""Packed and paged attention: the examples in Python and in C conform, and a variant is named."""

import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tests_support import attnspec, whole_suite

from attnspec.backends import describe, load
from attnspec.conformance.judge.judge import judge

EXAMPLES = Path(__file__).parents[1] / "examples"
FORMS = {"packed": "PACK-", "paged": "PAGE-"}


@cache
def about(prefix):
    return [one for one in whole_suite() if any(rule.startswith(prefix) for rule in one.rules)]


def verdicts(backend, prefix):
    return [judge(backend, one) for one in about(prefix)]


def described(name, *changes):
    """The kernel of an example, with some changes of its source."""
    source = (EXAMPLES / name / "kernel.py").read_text()
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    module = {"__name__": name}
    exec(compile(source, f"{name}.py", "exec"), module)
    operation = f"{name}_attention"
    return describe(module["attention"], name=name, axes=4, companions={operation: module[operation]})


@pytest.mark.parametrize("name", FORMS)
def test_an_example_in_python_conforms(name):
    found = verdicts(described(name), FORMS[name])
    assert {one.status for one in found} - {"unsupported"} == {"pass"}
    assert sum(one.status == "pass" for one in found) > 40
    run = attnspec("check", EXAMPLES / name, "-k", f"{FORMS[name]}1", "--dtype", "float32", status=0)
    assert f"{FORMS[name]}1" in run.stdout


@pytest.mark.parametrize("name", ["extend", "wrapper"])
def test_an_example_of_a_served_call_conforms(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "kernel", raising=False)
    backend = load(str(EXAMPLES / name))
    found = [judge(backend, one) for one in whole_suite() if one.operation == "packed_paged_attention"]
    assert {one.status for one in found} - {"unsupported"} == {"pass"}
    assert sum(one.status == "pass" for one in found) > 15


def test_init_writes_the_configuration_of_the_extend_kernel(tmp_path):
    shutil.copy(EXAMPLES / "extend" / "kernel.py", tmp_path)
    attnspec("init", "kernel:extend_attention", status=0, cwd=tmp_path)
    tables = (
        tomllib.loads((folder / "attnspec.toml").read_text()) for folder in (tmp_path, EXAMPLES / "extend")
    )
    written, own = (table["backend"] for table in tables)
    assert written == own | {"array": "numpy"}


def test_the_example_in_c_conforms(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) is installed")
    words = ["-O2", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "packed", EXAMPLES / "packed.c", "-lm"]
    subprocess.run([compiler, *words], check=True)
    found = verdicts(load(f"program:{tmp_path / 'packed'}"), FORMS["packed"])
    assert {one.status for one in found} - {"unsupported"} == {"pass"}
    assert sum(one.status == "pass" for one in found) > 40


def test_sequences_aligned_at_their_end_are_a_variant():
    """As `flash_attn_varlen_func` aligns them. Undeclared, it is named; declared, it is verified."""
    ahead = "np.diff(key_starts) - np.diff(query_starts)"
    given = "np.broadcast_to(query_offset, len(query_starts) - 1)"
    backend = described(
        "packed", (given, f"{ahead} if type(query_offset) is int and not query_offset else {given}")
    )
    undeclared = [one for one in verdicts(backend, "PACK-5") if one.status == "fail"]
    assert undeclared
    assert {(one.rule, one.variant) for one in undeclared} >= {("PACK-5", "bottom-right")}
    declaring = replace(backend, dialect={"PACK-5": "bottom-right"})
    declared = verdicts(declaring, "PACK-")
    assert {one.status for one in declared} == {"pass", "deviation", "unsupported"}
    assert {one.rule for one in declared if one.status == "deviation"} == {"PACK-5"}
