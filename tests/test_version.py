"""A version identifies a text: what is normative has not changed since the version was given."""

import re
from pathlib import Path

import pytest

from attnspec import OPERATIONS, __version__, levels, rules
from attnspec.conformance import registry
from attnspec.reference.budget import attention
from attnspec.reference.budget.arithmetic import PROFILES
from tools import version

SPEC = Path(version.__file__).parents[1] / "spec"


#: A page beside the chapters, which binds programs.
PROTOCOL = SPEC.parent / "conformance" / "protocol.md"


@pytest.mark.parametrize("page", [*sorted(SPEC.glob("*.md")), PROTOCOL], ids=lambda page: page.stem)
def test_each_page_has_the_version_and_its_status(page):
    text = page.read_text(encoding="utf-8")
    assert version.stamp(page.stem, text, __version__) == text
    assert f"attnspec {__version__}, " in text.splitlines()[2]


def test_nothing_normative_has_changed_since_the_version_of_the_citation():
    assert f"version: {__version__}\n" in (SPEC.parent / "CITATION.cff").read_text(encoding="utf-8")
    # Mended by `python -m tools.version VERSION`.
    assert (version.changes(), version.read_version()["version"]) == ([], __version__)


def test_a_change_of_each_part_is_seen_and_needs_a_newer_version(monkeypatch):
    parts = dict(registry._contents())
    before = registry.digests()
    assert [*parts] == ["text", "rules", "levels", "budgets", "operations", "vectors", "cases"]
    monkeypatch.setattr(attention, "SCALING", 7)
    assert [name for name, digest in registry.digests().items() if digest != before[name]] == ["budgets"]
    assert any("lse_error[i]" in formula for formula in parts["budgets"])
    assert any("Delta w_{ij}" in formula for formula in parts["budgets"])
    assert "protocol" in {name for name, _ in parts["text"]}
    monkeypatch.setattr(version, "changes", lambda: ["rules"])
    with pytest.raises(SystemExit, match=r"rules changed since .*: give a newer version"):
        version.write(__version__)


def test_a_release_a_patch_and_a_draft():
    statuses = {"2026.11.25": "release", "2026.11.25.1": "release", "2026.11.26.dev2": "draft"}
    for name, status in statuses.items():
        page = version.stamp("masking", "# Masking\n\n*attnspec 1, draft.*\n\nText\n", name)
        assert page == f"# Masking\n\n*attnspec {name}, {status}. This page is normative.*\n\nText\n"


def test_the_registry_has_every_id_once_and_no_number_is_left_out():
    ids = [*registry.registry()]
    assert len({(kind, name) for kind, name, _ in ids}) == len(ids)
    counts = {kind: sum(one == kind for one, _, _ in ids) for kind, _, _ in ids}
    sizes = {"rule": rules(), "level": levels(), "profile": PROFILES, "operation": OPERATIONS}
    assert [counts[kind] for kind in sizes] == [*map(len, sizes.values())]
    known = {name for kind, name, _ in ids if kind == "rule"} | {*registry.WITHDRAWN}
    for prefix in {name.partition("-")[0] for name in known}:
        numbers = sorted(int(re.sub(r".*-", "", name)) for name in known if name.startswith(f"{prefix}-"))
        assert numbers == list(range(1, len(numbers) + 1)), prefix
