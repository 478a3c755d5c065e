"""Findings about released libraries: a script shows each with the library alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from run_script import FORKING, run_script
from tests_support import can_compile

from attnspec import find_rule
from attnspec.backends import NAMES, BackendError, load
from attnspec.backends.names import APART, SEPARATE
from tools.findings import (
    FIELDS,
    Seen,
    index,
    installed_version,
    last_seen,
    main,
    observe,
    page,
    read_finding,
    report,
)

FINDINGS = Path(__file__).parents[1] / "backends" / "findings"
SCRIPTS = sorted(FINDINGS.glob("*/*.py"))


def declared():
    for name in (*NAMES, *APART, *SEPARATE):
        try:
            backend = load(name)
        except BackendError:  # no compiler, or not installed
            assert name in (*APART, *SEPARATE)
        else:
            yield from ((name, deviation) for deviation in backend.deviations)


DECLARED = list(declared())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.sample(20)
def test_a_finding_still_shows(script, tmp_path):
    """Exit status 1 says that it does not: then the library has changed, and the declaration goes."""
    if not installed_version(read_finding(script)):
        pytest.skip(f"{script.parent.name} is not installed")
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
        ended = subprocess.run(command, stdout=file, check=False, env=env)
    return ended.returncode, told.read_text()


def forked(script, told):
    """Run a script in a process that has imported PyTorch already, which takes most of the time."""
    process = FORKING.Process(target=run_script, args=(str(script), str(told)))
    process.start()
    process.join()
    process.kill()
    return process.exitcode, told.read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_uses_the_library_alone_and_names_a_rule(script):
    text = script.read_text(encoding="utf-8")
    assert "attnspec" not in text
    assert len(read_finding(script).code.splitlines()) <= 40
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


def test_every_script_was_run_once():
    """Run it with the library installed: `python -m tools.findings --only LIBRARY`."""
    seen = last_seen(FINDINGS)
    assert set(seen) == {f"{path.parent.name}/{path.stem}" for path in SCRIPTS}
    assert all(last.expected and last.got for last in seen.values())


FINDING = """\"\"\"NumPy: two is three (MASK-6).

More about it.

Documentation: says | nothing
about it.

Known: {known}
\"\"\"

import sys

print("expected 2")
print("got 3")
sys.exit({status})
"""


def test_what_is_written_of_a_script(tmp_path):
    (tmp_path / "numpy").mkdir()
    script = tmp_path / "numpy" / "two.py"
    script.write_text(FINDING.format(known="no thread found", status=0))
    finding = read_finding(script)
    assert (finding.rules, finding.text, finding.status) == (("MASK-6",), ("More about it.",), "new")
    assert finding.fields["Documentation"] == "says | nothing about it."
    assert set(finding.fields) < set(FIELDS)
    version = installed_version(finding)
    assert observe(script, version) == Seen(version, "2", "3")
    seen = Seen(version, "2", "3")
    table = index([finding], {"numpy/two": seen})
    assert f"| numpy {version} |" in table
    assert "| new |" in table
    text = page(finding, seen)
    assert "says \\| nothing" in text
    assert "(../../../backends/findings/numpy/two.py)" in text
    assert "### Two is three\n" in report(finding, None)
    assert "MASK-6" not in report(finding, None), "a project need not know our rules"


def test_the_command_says_which_finding_is_gone_and_writes_the_pages(tmp_path, monkeypatch):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "nothing-of-this-name").mkdir()
    (tmp_path / "numpy" / "two.py").write_text(FINDING.format(known="https://example.org/1", status=1))
    (tmp_path / "nothing-of-this-name" / "two.py").write_text(FINDING.format(known="x", status=0))
    monkeypatch.setattr("tools.findings.FOLDER", tmp_path)
    monkeypatch.setattr("tools.findings.PAGES", tmp_path / "pages")
    output = CliRunner().invoke(main).output
    assert "numpy/two: numpy" in output
    assert "shows it no longer" in output
    assert "2 findings, 1 of them seen" in output
    assert "| shows no longer |" in (tmp_path / "pages" / "README.md").read_text()
    assert "| not run |" in (tmp_path / "pages" / "README.md").read_text()
    assert "this release shows it no longer" in (tmp_path / "pages" / "numpy" / "two.md").read_text()
    assert last_seen(tmp_path)["numpy/two"].shows is False
