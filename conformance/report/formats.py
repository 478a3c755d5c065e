"""The formats that a report can be written in: another one is a line here, and a file beside this one."""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from attnspec import SpecError

if TYPE_CHECKING:
    from attnspec.conformance.report.report import Report


@dataclass(frozen=True)
class Format:
    """One format of a report.

    Attributes
    ----------
    option : str
        That of the command line which asks for it.
    suffix : str
        That of its files; empty where any will do.
    function : str
        What writes it, as ``module:function``, given a `Report`: it is loaded when it is asked for.
    text : str
        What the command line says of it.
    """

    option: str
    suffix: str
    function: str
    text: str

    def write(self, report: "Report") -> str:
        """Write a report in this format."""
        module, _, name = self.function.partition(":")
        text: str = getattr(import_module(f"attnspec.conformance.report.{module}"), name)(report)
        return text


FORMATS = (
    Format("junit", "", "junit:to_junit", "JUnit XML"),
    Format("markdown", "", "markdown:to_markdown", "Markdown"),
    Format("badge", ".svg", "badge:to_svg", "a badge"),
    Format("badge", ".json", "badge:to_json", "JSON for a badge service"),
)


def options() -> dict[str, str]:
    """Give each option of the command line with what it writes.

    Examples
    --------
    >>> from attnspec.conformance.report.formats import options
    >>> list(options())
    ['junit', 'markdown', 'badge']
    """
    texts: dict[str, list[str]] = {}
    for one in FORMATS:
        texts.setdefault(one.option, []).append(one.text + (f" ({one.suffix})" if one.suffix else ""))
    return {option: f"Write a report here: {', or '.join(found)}." for option, found in texts.items()}


def find_format(option: str, path: Path) -> Format:
    """Find the format that an option and the name of a file ask for.

    Raises
    ------
    SpecError
        When there is none of that suffix.

    Examples
    --------
    >>> from pathlib import Path
    >>> from attnspec.conformance.report.formats import find_format
    >>> find_format("badge", Path("badge.svg")).function
    'badge:to_svg'
    """
    found = [one for one in FORMATS if one.option == option]
    for one in found:
        if one.suffix in ("", path.suffix):
            return one
    raise SpecError(
        f"--{option}: expected a file that ends in {' or '.join(one.suffix for one in found)}, got {path}"
    )
