"""The formats of reports. A new format is a line here and a module in this folder."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from attnspec import SpecError

if TYPE_CHECKING:
    from attnspec.conformance.attribution.report import Report


@dataclass(frozen=True)
class Format:
    """One format of a report: an option of the command line, and the required suffix of its files, or empty.

    The function, as ``module:function``, takes a `Report`. It is loaded on demand.
    """

    option: str
    suffix: str
    function: str
    text: str

    def write(self, report: "Report") -> str:
        """Return a report in this format."""
        module, _, name = self.function.partition(":")
        text: str = getattr(import_module(f"attnspec.conformance.render.{module}"), name)(report)
        return text


FORMATS = (
    Format("junit", "", "junit:to_junit", "JUnit XML"),
    Format("markdown", "", "markdown:to_markdown", "Markdown"),
    Format("badge", ".svg", "badge:to_svg", "a badge"),
    Format("badge", ".json", "badge:to_json", "JSON for a badge service"),
    Format("annotations", "", "annotations:to_annotations", "annotations of a GitHub workflow"),
)


def options() -> dict[str, str]:
    """Return the help text of each option of the command line."""
    texts: dict[str, list[str]] = {}
    for format_ in FORMATS:
        suffix = f" ({format_.suffix})" if format_.suffix else ""
        texts.setdefault(format_.option, []).append(f"{format_.text}{suffix}")
    return {option: f"Write a report here: {', or '.join(kinds)}." for option, kinds in texts.items()}


def find_format(option: str, path: Path) -> Format:
    """Find the format for an option and the name of a file."""
    formats = [format_ for format_ in FORMATS if format_.option == option]
    for format_ in formats:
        if format_.suffix in ("", path.suffix):
            return format_
    suffixes = " or ".join(format_.suffix for format_ in formats)
    raise SpecError(f"--{option}: expected a file that ends in {suffixes}, got {path}")
