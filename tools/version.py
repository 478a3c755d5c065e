"""Gives the text a new version: stamps the pages, and stores a digest of each part of the normative content.

``python -m tools.version`` says what has changed since the version that is stored. With a version, such as
2026.11.25.dev1 for a draft, 2026.11.25 for a release or 2026.11.25.1 for a patch, it writes it.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import click
from packaging.version import Version

from attnspec import CHAPTERS, __version__
from attnspec.conformance.registry import digests

ROOT = Path(__file__).parents[1]
STORED = ROOT / "spec" / "version.json"
#: The pages whose sentences bind. The others are informative.
NORMATIVE = {*CHAPTERS, "README", "conformance", "levels", "versions", "protocol"}
_STAMP = re.compile(r"\A(# [^\n]*\n\n)(?:\*attnspec [^\n]*\*\n\n)?")
_PLACES = (
    (ROOT / "spec" / "__init__.py", r'(?m)^__version__ = "(.*)"$'),
    (ROOT / "CITATION.cff", r"(?m)^version: (.*)$"),
)


def read_version() -> dict[str, Any]:
    """Return the version that is stored, with its digests."""
    result: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    return result


def changes() -> list[str]:
    """Name the parts of the normative content that have changed since the version that is stored."""
    before = read_version()["digests"]
    return [name for name, digest in digests().items() if before.get(name) != digest]


def stamp(page: str, text: str, version: str) -> str:
    """Return a page with its version and status below its title."""
    status = "draft" if Version(version).is_devrelease else "release"
    force = "normative" if page in NORMATIVE else "informative"
    return _STAMP.sub(rf"\g<1>*attnspec {version}, {status}. This page is {force}.*\n\n", text, count=1)


def write(version: str) -> None:
    """Write a version, which must be newer if the content has changed."""
    if changes() and Version(version) <= Version(read_version()["version"]):
        sys.exit(f"{', '.join(changes())} changed since {read_version()['version']}: give a newer version")
    for page in (*sorted((ROOT / "spec").glob("*.md")), ROOT / "conformance" / "protocol.md"):
        page.write_text(stamp(page.stem, page.read_text(encoding="utf-8"), version), encoding="utf-8")
    for path, place in _PLACES:
        text = path.read_text(encoding="utf-8")
        path.write_text(
            re.sub(place, lambda found: found[0].replace(found[1], version), text), encoding="utf-8"
        )
    STORED.write_text(
        json.dumps({"version": version, "digests": digests()}, indent=2) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1])
    else:
        click.echo(f"{__version__}: {', '.join(changes()) or 'nothing'} changed")
