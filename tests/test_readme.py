"""The README and the pages beside it: the example, the commands, and what they state."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests_support import attnspec

from attnspec import levels
from attnspec.backends import NAMES
from attnspec.conformance.cli.main import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = (
    "README.md",
    "TEN_MINUTES.md",
    "PACKAGE.md",
    *(f"conformance/{n}.md" for n in ("running", "sizes", "untrusted")),
)


def block(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.exhaustive
def test_the_ten_line_backend_gives_the_output_that_is_shown(tmp_path):
    (source,) = block("python")
    assert len(source.splitlines()) <= 10
    (tmp_path / "my_attention.py").write_text(source)
    run = attnspec("check", "my_attention:attention", "--case", "masking-empty-first-float32", cwd=tmp_path)
    assert run.returncode == 1
    assert block("text")[0] in run.stdout


def test_the_readme_is_short_and_shows_its_figure_and_its_report_once():
    assert len(README.splitlines()) <= 150
    shown = [page for page in PAGES if "MASK-6 A row with nothing to attend to" in (ROOT / page).read_text()]
    assert shown == ["README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_of_a_page_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)).splitlines()
    lines += [
        " ".join(code.split())
        for code in re.findall(
            r"`([^`]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        )
    ]
    for line in lines:
        if not line.startswith("attnspec ") or line.split()[1].startswith("-"):
            continue
        command, options = line.split()[1], set(re.findall(r"(?<![-\w])--[a-z-]+", line.partition("#")[0]))
        assert command in main.commands
        known = CliRunner().invoke(main, [command, "--help"]).output
        assert {option for option in options if option not in known} == set()


def test_the_results_are_of_every_backend_and_name_levels():
    section = (
        (ROOT / "RESULTS.md").read_text(encoding="utf-8").partition("## Levels")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\| ([\w-]+) \|.*\| ([^|]*) \|$", section, re.MULTILINE)
    reached = {name: text for name, text in rows if name in NAMES}
    assert set(reached) == set(NAMES)
    known = {level.name for level in levels()}
    for text in reached.values():
        words = set(re.findall(r"(?<![A-Z])[a-z][a-z-]+", text))
        assert words - {"all", "but", "and", "none", "no", "deviate", "deviates"} <= known


def test_the_page_of_the_package_needs_no_file_of_the_repository():
    """A package index shows it elsewhere, so it has no relative link."""
    page = (ROOT / "PACKAGE.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https://)", page) == []
    assert re.findall(r"^\[[^]]+\]: (?!https://)", page, re.MULTILINE) == []
    assert page.splitlines()[2].startswith("attnspec is a specification of scaled dot-product attention")


def test_ci_runs_the_command_of_the_readme():
    *_, tests = [line for line in block("sh")[-1].splitlines() if "nox" in line]
    assert tests.replace("install nox", "install --quiet nox") in (ROOT / ".ci" / "run").read_text()
