"""The addresses of rules."""

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import attnspec
from attnspec import Rule
from attnspec.citations import anchor


def address(rule: Rule) -> str:
    """Return the address of a rule on the web. Empty if the package metadata has no source address.

    Examples
    --------
    >>> from attnspec import find_rule
    >>> from attnspec.conformance.render.links import address
    >>> from attnspec.citations import anchor
    >>> rule = find_rule("MASK-6")
    >>> address(rule).rpartition("/spec/")[2] in ("", f"masking.md#{anchor(rule)}")
    True
    """
    home = _home()
    return f"{home}/blob/main/spec/{rule.chapter}.md#{anchor(rule)}" if home else ""


def page(rule: Rule) -> str:
    """Return the address of a rule on the web. If there is none, return that of its local chapter.

    Examples
    --------
    >>> from attnspec import find_rule
    >>> from attnspec.conformance.render.links import page
    >>> page(find_rule("MASK-6")).partition("#")[0].endswith("masking.md")
    True
    """
    chapter = Path(attnspec.__file__).resolve().with_name(f"{rule.chapter}.md")
    return address(rule) or f"{chapter.as_uri()}#{anchor(rule)}"


@cache
def _home() -> str:
    """Return the address of the source from the package metadata."""
    try:
        said: list[str] = metadata("attnspec").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    named = {label: url for label, _, url in (entry.partition(", ") for entry in said)}
    return named.get("Repository", "").removesuffix(".git").rstrip("/")
