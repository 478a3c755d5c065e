"""Turns the links of pages of the repository into links of the site."""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from attnspec.citations import anchor
from attnspec.rule import Rule
from pages.page import page

#: Pages of the repository, and where the site has them.
GUIDES = {
    "README.md": "guide/test-your-implementation",
    "TEN_MINUTES.md": "guide/ten-minutes",
    "CONTRIBUTING.md": "guide/contributing",
    "CHANGELOG.md": "changes",
    "conformance/running.md": "guide/running",
    "conformance/configuration.md": "guide/configuration",
    "conformance/sizes.md": "guide/sizes",
    "conformance/untrusted.md": "guide/untrusted",
    "conformance/protocol.md": "guide/protocol",
    "conformance/offline.md": "guide/offline",
    "conformance/acceptance.md": "guide/acceptance",
    "examples/cheats/README.md": "guide/cheats",
    "site/README.md": "guide/site",
}
#: Pages that the site has in another form.
_INSTEAD = {
    "conformance/gallery/README.md": "gallery/index.html",
    "backends/findings/README.md": "findings/index.html",
    "spec/vectors": "cases/index.html",
}
#: A link, an image or a definition; code is kept as it is.
_LINK = re.compile(
    r"(?P<kept>^(?P<fence>```+|~~~+).*?^(?P=fence)$|(?P<tick>`+)(?!`).+?(?<!`)(?P=tick)(?!`))"
    r"|(?P<head>\]\()(?P<target>[^()\s]+)(?P<tail>\))"
    r"|^(?P<name>\[[^][\n]+\]: )(?P<to>\S+)$",
    re.MULTILINE | re.DOTALL,
)


def relink(text: str, source: str, page: str, address: Callable[[str, str], str]) -> str:
    """Rewrite the links of a page."""

    def rewrite(match: re.Match[str]) -> str:
        if match["kept"]:
            return match[0].replace("```math\n", "```{math}\n", 1)
        target = match["target"] or match["to"]
        if re.match(r"[a-z]+:|#", target):
            new = target
        else:
            path, _, place = target.partition("#")
            whole = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
            new = relative(page, address(whole, place))
        return f"{match['head']}{new}{match['tail']}" if match["target"] else f"{match['name']}{new}"

    return _LINK.sub(rewrite, text)


def relative(page: str, address: str) -> str:
    """Return an address of the site as a page sees it, in the form that MyST reads.

    Examples
    --------
    >>> relative("rules/MASK-6", "spec/masking.md"), relative("rules/MASK-6", "findings/jax.html#float64")
    ('../spec/masking.md', 'place:../findings/jax.html#float64')
    """
    path, sign, place = address.partition("#")
    near = posixpath.relpath(path, posixpath.dirname(page) or ".")
    if path.endswith((".md", ".svg")) and not path.startswith("files/"):
        return near + sign + place
    # Pages that are made of HTML have anchors that Sphinx does not know: see `myst_url_schemes`.
    return f"place:{near}#{place}" if sign else f"page:{near}"


def addresses(
    root: Path, rules: tuple[Rule, ...], files: dict[str, str | Path], *, results: bool
) -> Callable[[str, str], str]:
    """Return a function that gives the address of a path of the repository in the site.

    Other files that pages link are added to `files`.
    """
    anchors = {(f"spec/{rule.chapter}.md", anchor(rule)): f"rules/{rule.id}.html" for rule in rules}

    def address(path: str, place: str) -> str:
        if (path, place) in anchors:
            return anchors[path, place]
        if path == "RESULTS.md" and results:
            return "results/index.html"
        return _page(path, f"#{place}" if place else "") or _file(root, path, files)

    return address


def _page(path: str, sign: str) -> str:
    """Return the page that shows a path of the repository. Empty if there is none."""
    if path in GUIDES:
        return f"{GUIDES[path]}.md{sign}"
    if path in _INSTEAD:
        return _INSTEAD[path]
    if match := re.fullmatch(r"backends/findings/(\w+)/(\w+)\.(?:md|py)", path):
        return f"findings/{match[1]}.html#{match[2]}"
    if match := re.fullmatch(r"spec/vectors/(\w+)\.json", path):
        return f"cases/{match[1]}.html"
    if re.fullmatch(r"spec/\w+\.md", path):
        return ("spec/index.md" if path == "spec/README.md" else path) + sign
    return path if path.startswith("spec/pictures/") else ""


def _file(root: Path, path: str, files: dict[str, str | Path]) -> str:
    """Put a file of the repository, or the files of a folder, beside the pages."""
    whole = root / path
    if whole.is_dir():
        inside = [file for file in sorted(whole.glob("*")) if file.is_file()]
        listing = page(f"files/{path}/index", "listing.html", folder=path, files=inside)
        files[f"{listing.path}.html"] = listing.text
        files.update({f"files/{path}/{file.name}": file for file in inside})
        return f"{listing.path}.html"
    if not whole.is_file():
        raise FileNotFoundError(f"links: expected a file of the repository, got {path}")
    files[f"files/{path}"] = whole
    return f"files/{path}"
