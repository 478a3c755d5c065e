"""The README: its example, its table and its commands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnspec import rules
from attnspec.backends import NAMES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.exhaustive
def test_the_ten_line_backend_gives_the_output_that_is_shown(tmp_path):
    (source,) = block("python")
    assert len(source.splitlines()) <= 10
    shown = block("text")[0]
    (tmp_path / "my_attention.py").write_text(source)
    command = [sys.executable, "-m", "attnspec.conformance.cli.main", "check", "my_attention:attention"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 1
    assert shown in run.stdout


def test_the_table_is_one_that_the_command_prints():
    """Its rows are the rules, its columns the backends; and nothing in it is red."""
    results = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    table = results[results.index("attnspec conformance, by rule") :]
    table = table[: table.index("\n```")]
    assert re.findall(r"^│ ([A-Z]+-\d+)", table, re.MULTILINE) == [rule.id for rule in rules()]
    assert all(name in table for name in NAMES)
    assert "FAIL" not in table
    assert "ERROR" not in table


def test_the_page_of_the_package_needs_no_file_of_the_repository():
    """A package index shows it elsewhere: it has no relative link, and the same report as the README."""
    page = (ROOT / "PACKAGE.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https://)", page) == []
    assert re.findall(r"^\[[^]]+\]: (?!https://)", page, re.MULTILINE) == []
    assert block("text")[0] in page
    assert page.splitlines()[2].startswith("attnspec is a specification of scaled dot-product attention")


def test_ci_runs_the_command_of_the_readme():
    *_, tests = [line for line in block("sh")[-1].splitlines() if "nox" in line]
    assert tests.replace("install nox", "install --quiet nox") in (ROOT / ".ci" / "run").read_text()
