"""The pages of this project: templates with one shell, and the addresses that links use."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

#: The style sheet and the scripts, which every page loads from its own folder.
ASSETS = Path(__file__).parent / "assets"
_TEMPLATES = Path(__file__).parent / "templates"
#: What a page may load: its own folder. It cannot send anything anywhere.
POLICY = (
    "default-src 'none'; script-src 'self' file:{scripts}; style-src 'self' file: 'unsafe-inline'; "
    "img-src 'self' file: data:; connect-src 'none'; form-action {forms}; base-uri 'none'"
)


@dataclass(frozen=True)
class Links:
    """The addresses of pages beside those of results, relative to their folder.

    `rule` takes the id of a rule, `finding` takes ``library/name``, and `library` takes the name of a
    library. `assets` is the folder of the style sheet and the scripts.
    """

    rule: Callable[[str], str]
    finding: Callable[[str], str] | None = None
    library: Callable[[str], str] | None = None
    assets: str = "_static/"


@dataclass(frozen=True)
class Page:
    """A page without its shell, at its path in the folder."""

    path: str
    title: str
    body: Markup

    @property
    def root(self) -> str:
        """The way from the page to the folder."""
        return "../" * self.path.count("/")


@cache
def environment(*folders: Path) -> jinja2.Environment:
    """Return the templates, with those of other folders. Every value is escaped that is no markup."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    templates.globals["at"] = at
    return templates


def render(template: str, **values: Any) -> Markup:
    """Fill a template."""
    return Markup(environment().get_template(template).render(values))  # noqa: S704 - templates escape


def alone(page: Page) -> str:
    """Return a whole page of a folder that has no site around it."""
    return render("shell.html", page=page, policy=POLICY.format(scripts="", forms="'none'"))


def at(root: str, address: str) -> str:
    """Return an address that is relative to the folder as one that is relative to a page."""
    scheme = address.partition(":")[0] if ":" in address.partition("/")[0] else ""
    return address if scheme or address.startswith("/") else f"{root}{address}"


def script(function: str, *values: Any) -> str:
    r"""Return a call of a function as a script, because a page that is opened as a file cannot fetch data."""
    text = ",".join(json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values)
    for letter in "<\u2028\u2029":  # `<` would end the script where it is embedded
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f"{function}({text});\n"
