"""The frame of a page, and the addresses that its links use."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

#: What a page may load: its own folder. It cannot send anything anywhere.
_POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file: 'unsafe-inline'; "
    "img-src 'self' file: data:; connect-src 'none'; form-action 'none'; base-uri 'none'"
)
_NAVIGATION = (("index.html", "Results"), ("compare.html", "Compare"), ("feed.xml", "Changes"))


@dataclass(frozen=True)
class Links:
    """The addresses of pages outside of the folder, relative to it.

    Attributes
    ----------
    rule : callable
        The address of the page of a rule, by its id.
    finding : callable or None
        That of a finding, by ``library/name``.
    library : callable or None
        That of a library, by its name.
    home : str
        That of the front page. Empty for none.
    """

    rule: Callable[[str], str]
    finding: Callable[[str], str] | None = None
    library: Callable[[str], str] | None = None
    home: str = ""


def frame(title: str, body: str, *, root: str = "", home: str = "", scripts: Iterable[str] = ()) -> str:
    """Return a whole page.

    Examples
    --------
    >>> from attnspec.conformance.render.html.page import frame
    >>> "<title>a &lt;b&gt; \u00b7 attnspec</title>" in frame("a <b>", "<p>text</p>")
    True
    """
    links = [(at(root, home), "attnspec")] if home else []
    links += [(f"{root}{address}", name) for address, name in _NAVIGATION]
    navigation = "".join(f'<a href="{escape(address)}">{escape(name)}</a>' for address, name in links)
    loaded = "".join(f'<script defer src="{escape(root + one)}"></script>' for one in scripts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{escape(title)} \u00b7 attnspec</title>
<link rel="icon" href="data:,">
<link rel="alternate" type="application/atom+xml" title="Changes" href="{root}feed.xml">
<link rel="stylesheet" href="{root}results.css">
{loaded}
</head>
<body data-root="{root}">
<a class="skip" href="#main">Skip to content</a>
<header><nav aria-label="Results">{navigation}</nav></header>
<main id="main">
{body}
</main>
</body>
</html>
"""


def at(root: str, address: str) -> str:
    """Return an address that is relative to the folder as one that is relative to a page.

    Examples
    --------
    >>> from attnspec.conformance.render.html.page import at
    >>> at("../", "../rules/MASK-6.html"), at("../", "https://example.org/a")
    ('../../rules/MASK-6.html', 'https://example.org/a')
    """
    scheme = address.partition(":")[0] if ":" in address.partition("/")[0] else ""
    return address if scheme or address.startswith("/") else f"{root}{address}"


def link(address: str, text: str) -> str:
    """Return a link, or the text alone if there is no address."""
    return f'<a href="{escape(address)}">{escape(text)}</a>' if address else escape(text)


def script(name: str, data: Any) -> str:
    r"""Return data as a script, because a page that is opened as a file cannot fetch it.

    Examples
    --------
    >>> from attnspec.conformance.render.html.page import script
    >>> script("matrix", {"a": "</script>"})
    'attnspec.put("matrix",{"a":"\\u003c/script>"})\n'
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for letter in "<\u2028\u2029":  # `<` would end the script where it is embedded
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f"attnspec.put({json.dumps(name)},{text})\n"
