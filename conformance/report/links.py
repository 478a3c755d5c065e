"""Where a rule can be read."""

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import attnspec
from attnspec import Rule
from attnspec.citations import anchor


def address(rule: Rule) -> str:
    """Give the address of a rule on the web; empty where the package does not say where its source is.

    Examples
    --------
    >>> from attnspec import find_rule
    >>> from attnspec.conformance.report.links import address
    >>> from attnspec.citations import anchor
    >>> rule = find_rule("MASK-6")
    >>> address(rule).rpartition("/spec/")[2] in ("", f"masking.md#{anchor(rule)}")
    True
    """
    home = _home()
    return f"{home}/blob/main/spec/{rule.chapter}.md#{anchor(rule)}" if home else ""


def page(rule: Rule) -> str:
    """Give the address of a rule on the web or, where there is none, of its chapter on this machine.

    Examples
    --------
    >>> from attnspec import find_rule
    >>> from attnspec.conformance.report.links import page
    >>> page(find_rule("MASK-6")).partition("#")[0].endswith("masking.md")
    True
    """
    chapter = Path(attnspec.__file__).resolve().with_name(f"{rule.chapter}.md")
    return address(rule) or f"{chapter.as_uri()}#{anchor(rule)}"


@cache
def _home() -> str:
    """Read where the source is from what the package says of itself."""
    try:
        said: list[str] = metadata("attnspec").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    named = {label: url for label, _, url in (entry.partition(", ") for entry in said)}
    return named.get("Repository", "").removesuffix(".git").rstrip("/")
