"""Makes a built site ready for a host: descriptions, previews, canonical links, files that hosts read.

``python site/publish.py build/site/html FOLDER --version 2026.12.01`` puts a site into a folder that keeps
the released versions: the newest at its root, and each one under its own path.
"""

import argparse
import html
import re
import shutil
from pathlib import Path
from urllib.parse import quote

from markupsafe import escape

#: The most characters of a description.
_LONGEST = 200
#: What keeps its line breaks.
_KEPT = re.compile(r"(<(pre|script|style|textarea)\b.*?</\2>)", re.DOTALL)
_UNUSED = re.compile(r'<symbol id="svg-(?:pencil|eye)".*?</symbol>', re.DOTALL)
_TAG = re.compile(r"<[^>]+>")
#: Where the text of a page begins, and a paragraph that may describe it.
_START = re.compile(r'<article role="main"[^>]*>|<h1')
_PARAGRAPH = re.compile(r"<p(?: class=\"(?:lead|verdict)\"| class=\"sentence\")?>(.+?)</p>", re.DOTALL)
_PREVIEW = "_static/preview.png"


def finish(folder: Path, base: str = "", repository: str = "") -> None:
    """Complete the pages of a site, and add the files beside them.

    With the address at which the site will be, `base`, pages name their own, and the feed has whole ones.
    """
    base = f"{base.rstrip('/')}/" if base else ""
    paths = sorted(folder.rglob("*.html"))
    for path in paths:
        name = path.relative_to(folder).as_posix()
        text = path.read_text(encoding="utf-8")
        if "<head>" in text:
            path.write_text(_finished(text, name, base, repository), encoding="utf-8")
    (folder / ".nojekyll").touch()
    (folder / "robots.txt").write_text(
        "User-agent: *\nAllow: /\n" + f"Sitemap: {base}sitemap.xml\n" * bool(base), encoding="utf-8"
    )
    feed = folder / "results" / "feed.xml"
    if base and feed.exists():
        text = feed.read_text(encoding="utf-8")
        feed.write_text(re.sub(r'href="(?![a-z]+:)', f'href="{base}results/', text), encoding="utf-8")
    if base:
        listed = (path.relative_to(folder).as_posix() for path in paths if path.name != "404.html")
        places = "".join(f"<url><loc>{escape(_whole(base, name))}</loc></url>\n" for name in listed)
        (folder / "sitemap.xml").write_text(
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{places}</urlset>\n',
            encoding="utf-8",
        )


def describe(text: str) -> str:
    """Return what a page is about: its first paragraph with a sentence in it."""
    start = _START.search(text)
    for match in _PARAGRAPH.finditer(text, start.end() if start else 0):
        words = " ".join(html.unescape(_TAG.sub("", match[1])).split())
        if len(words) > 25:
            return words if len(words) <= _LONGEST else f"{words[:_LONGEST].rpartition(' ')[0]} \u2026"
    return (
        "A standard for attention: numbered rules, proven values, and a suite that tests any implementation."
    )


def _whole(base: str, name: str) -> str:
    return base + quote(re.sub(r"(^|/)index\.html$", r"\1", name))


def _finished(text: str, name: str, base: str, repository: str) -> str:
    root = "../" * name.count("/")
    title = re.search(r"<title>(.*?)</title>", text, re.DOTALL)
    about = escape(describe(text))
    named = title[1].strip() if title else "attnspec"
    tags = [
        f'<meta name="description" content="{about}">',
        '<meta property="og:site_name" content="attnspec">',
        '<meta property="og:type" content="website">',
        f'<meta property="og:title" content="{named}">',
        f'<meta property="og:description" content="{about}">',
        '<meta name="twitter:card" content="summary_large_image">',
        f'<link rel="icon" type="image/svg+xml" href="{root}_static/favicon.svg">',
    ]
    if base and name == "404.html":
        tags = [f'<base href="{base}">', '<meta name="robots" content="noindex">', *tags]
    elif base:
        address = escape(_whole(base, name))
        tags += [
            f'<link rel="canonical" href="{address}">',
            f'<meta property="og:url" content="{address}">',
            f'<meta property="og:image" content="{base}{_PREVIEW}">',
        ]
    text = text.replace("<head>", "<head>\n" + "\n".join(tags), 1)
    if repository:
        copy = (
            f'<p>In a clone of the <a href="{escape(repository)}">repository</a>, run these two commands.</p>'
        )
        text = re.sub(r'<p id="copy">.*?</p>', lambda _: copy, text, count=1)
        link = (
            f'<p class="source"><a href="{escape(repository)}">Repository, questions and corrections</a></p>'
        )
        text = re.sub(r"</footer>(?!.*</footer>)", f"{link}</footer>", text, count=1, flags=re.DOTALL)
    # Icons that no page uses, and a class without a style, are on every page of the theme.
    text = _UNUSED.sub("", text).replace('class="reference internal"', 'class="reference"')
    # Line breaks and indents of templates are a tenth of a page.
    parts = _KEPT.split(text)
    return "".join(
        part if place % 3 == 1 else re.sub(r"\s*\n\s*", "\n", part)
        for place, part in enumerate(parts)
        if place % 3 != 2
    )


def place(site: Path, folder: Path, version: str = "") -> None:
    """Put a site at the root of a folder, and a released version under its own path too.

    What the root held before is replaced, but for the folders of versions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name == ".git" or re.fullmatch(r"\d{4}\.\d+\.\d+(\.\w+)?", path.name):
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.copytree(site, folder, dirs_exist_ok=True)
    if version:
        shutil.rmtree(folder / version, ignore_errors=True)
        shutil.copytree(site, folder / version)


def main() -> None:
    """Put a built site into the folder of versions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="the built site")
    parser.add_argument("folder", type=Path, help="the folder that a host publishes")
    parser.add_argument("--version", default="", help="the released version, if it is one")
    options = parser.parse_args()
    place(options.site, options.folder, options.version)


if __name__ == "__main__":
    main()
