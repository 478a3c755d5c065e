"""Findings about released libraries: a script shows each with the library alone."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from run_script import FORKING, run_script
from tests_support import can_compile

from attnspec import find_rule
from attnspec.backends import NAMES, BackendError, load
from attnspec.backends.library import LIBRARIES
from attnspec.backends.names import APART

FINDINGS = Path(__file__).parents[1] / "backends" / "findings"
SCRIPTS = sorted(FINDINGS.glob("*/*.py"))


def declared():
    for name in (*NAMES, *APART):
        try:
            backend = load(name)
        except BackendError:  # no compiler
            assert name in APART
        else:
            yield from ((name, deviation) for deviation in backend.deviations)


DECLARED = list(declared())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_still_shows(script, tmp_path):
    """Exit status 1 says that it does not: then the library has changed, and the declaration goes."""
    if importlib.util.find_spec(script.parent.name) is None:
        assert script.parent.name not in LIBRARIES
        pytest.skip("needs a library with an environment of its own")
    if "torch.compile" in script.read_text(encoding="utf-8") and not can_compile():
        pytest.skip("needs a C++ compiler and the headers of Python")
    status, told = (forked if script.parent.name == "torch" else started)(script, tmp_path / "told.txt")
    assert status == 0, f"{script.stem} shows no more:\n{told}"
    assert re.fullmatch(r"expected .+\ngot .+\n", told), told


def started(script, told):
    """Run a script: how it ended, and what it printed."""
    with told.open("w") as file:
        command = [sys.executable, "-W", "ignore", str(script)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, stdout=file, timeout=120, check=False, env=env)
    return ended.returncode, told.read_text()


def forked(script, told):
    """Run a script in a process that has imported PyTorch already, which takes most of the time."""
    process = FORKING.Process(target=run_script, args=(str(script), str(told)))
    process.start()
    process.join(120)
    process.kill()
    return process.exitcode, told.read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_uses_the_library_alone_and_names_a_rule(script):
    text = script.read_text(encoding="utf-8")
    assert "attnspec" not in text
    assert len(text.splitlines()) <= 40
    for rule_id in re.findall(r"\b[A-Z]+-\d+\b", text.split('"""')[1]):
        find_rule(rule_id)


@pytest.mark.parametrize(("name", "deviation"), DECLARED, ids=lambda thing: getattr(thing, "id", thing))
def test_a_declared_deviation_has_its_script_or_link(name, deviation):
    if deviation.source.startswith("https://"):
        return
    text = (FINDINGS / f"{deviation.source}.py").read_text(encoding="utf-8")
    assert f"({deviation.rules[0]}" in text
    for rule_id in deviation.rules:
        find_rule(rule_id)
