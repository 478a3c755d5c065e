"""Builds the site: ``python site/build.py``, from a clone, with the packages of the group `site`.

It writes the pages as Markdown, calls Sphinx, adds the pages of results, and checks every link.
"""

import argparse
import base64
import hashlib
import json
import posixpath
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # the pages, and the tools of the repository

from check import problems, summary  # noqa: E402 - the folders are added above
from pages.cases import cases  # noqa: E402
from pages.chapters import addresses, chapters, guides, terms_of  # noqa: E402
from pages.findings import findings  # noqa: E402
from pages.front import front  # noqa: E402
from pages.gallery import gallery, pictures  # noqa: E402
from pages.known import Known, known_of  # noqa: E402
from pages.libraries import libraries  # noqa: E402
from pages.operations import operations  # noqa: E402
from pages.page import Page, Part, join  # noqa: E402
from pages.rules import rules  # noqa: E402
from pages.search import names_script, with_words  # noqa: E402
from pages.symptoms import symptoms  # noqa: E402
from publish import finish  # noqa: E402

from attnspec.backends.names import library_of  # noqa: E402
from attnspec.conformance.render.html.column import Column  # noqa: E402
from attnspec.conformance.render.html.folder import files, read_columns  # noqa: E402
from attnspec.conformance.render.html.page import POLICY, Links, render  # noqa: E402
from attnspec.conformance.render.html.page import Page as PageOfResults  # noqa: E402

#: The pages of a sample: one of each kind.
SAMPLE = (
    "index", "search", "404", "try", "symptoms", "questions", "citing", "pictures", "rules/index",
    "rules/MASK-6", "operations/index", "operations/attention", "cases/index", "cases/masking",
    "gallery/index", "gallery/MASK-6", "findings/index", "findings/jax", "libraries/index", "libraries/torch",
    "spec/index", "spec/masking", "spec/levels", "spec/glossary", "guide/ten-minutes", "guide/pack",
    "changes", "results/index",
)  # fmt: skip
_PAGE = re.compile(r"(?P<head>\]\(|^\[[^][\n]+\]: )(?P<path>[\w/.-]+)\.md(?:#[\w-]+)?", re.MULTILINE)
_DAY = re.compile(r"-\d{4}-\d\d-\d\d(?=\.jsonl)")


def site_parts(known: Known) -> Part:
    """Make all pages, names and files."""
    copied: dict[str, str | Path] = {}
    address = addresses(known.root, tuple(known.rules.values()), copied, results=bool(known.columns))
    parts = [
        chapters(known, address),
        guides(known, address),
        rules(known, address),
        operations(known),
        cases(known),
        gallery(known),
        findings(known),
        libraries(known),
        pictures(known),
        symptoms(known),
        front(known),
    ]
    whole = join([*parts, Part(files=copied)])
    return replace(whole, names=with_words(whole.names, terms_of(known)))


def latest_runs(folder: Path) -> list[Path]:
    """Return the newest stored run of each backend and version: earlier ones are of earlier standards."""
    runs = sorted(folder.glob("*.jsonl*"))
    return [*{_DAY.sub("", path.name): path for path in runs}.values()]


def write_sources(out: Path, known: Known, *, sample: bool = False) -> Part:
    """Write the pages that Sphinx reads into `source`, and the other files beside its pages into `html`."""
    part = site_parts(known)
    source, html = out / "source", out / "html"
    for folder in (source, html):
        shutil.rmtree(folder, ignore_errors=True)
    for page in part.pages:
        if not sample:
            _put(source / f"{page.path}.md", page.text)
        elif page.path in SAMPLE:
            _put(source / f"{page.path}.md", _sampled(page))
    for name, content in part.files.items():
        _put((source if name.startswith("spec/pictures/") else html) / name, content)
    _put(source / "names.json", json.dumps([asdict(name) for name in part.names]))
    _put(html / "_static" / "names.js", names_script(part.names))
    return part


def _sampled(page: Page) -> str:
    """Return the text of a page of a sample. Its links to pages that are left out are for the check alone."""

    def absent(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), match["path"]))
        return match[0] if path in SAMPLE else f"{match['head']}page:{match['path']}.html"

    return _PAGE.sub(absent, page.text)


def make_html(out: Path, columns: Sequence[Column], *, sample: bool = False) -> int:
    """Let Sphinx make the pages, and those of results in the same shell. Return its exit status."""
    from sphinx.application import Sphinx
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    html = out / "html"
    folder = html / "results"
    links = Links(
        rule=lambda rule: f"../rules/{rule}.html",
        finding=lambda name: f"../findings/{name.replace('/', '.html#')}",
        library=lambda library: f"../libraries/{library_of(library)}.html",
        assets="../_static/",
    )

    def results(_: object) -> Iterator[tuple[str, dict[str, str], str]]:
        for name, content in files(columns, links) if columns else ():
            if isinstance(content, PageOfResults):
                head = render("head.html", page=content, policy=_policy())
                values = {"title": content.title, "body": content.body, "metatags": head}
                yield f"results/{name.removesuffix('.html')}", values, "page.html"
            else:
                _put(folder / name, content)

    with patch_docutils(HERE), docutils_namespace():
        app = Sphinx(
            out / "source",
            HERE,
            html,
            out / "doctrees",
            "html",
            # The contents and links of a sample name pages that it leaves out.
            confoverrides={"suppress_warnings": ["myst", "toc"]} if sample else {},
            status=None,
            freshenv=True,
            warningiserror=True,
            parallel=1 if sample else 2,
        )
        app.connect("html-collect-pages", results)
        app.build()
    return app.statuscode


def _policy() -> str:
    """Return what a page of results may load. Of scripts inside of a page, only that of the theme runs."""
    import furo

    page = (Path(furo.__file__).parent / "theme" / "furo" / "base.html").read_text(encoding="utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    return POLICY.format(scripts="".join(f" 'sha256-{text}'" for text in hashes), forms="'self' file:")


def _put(path: Path, content: str | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        path.write_text(content, encoding="utf-8")


def main() -> int:
    """Build the site and say what was built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=HERE.parent / "build" / "site", help="the folder to build in"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results", help="the folder of stored results")
    parser.add_argument("--base", default="", help="the address at which the site will be")
    parser.add_argument("--repository", default="", help="the address of the repository, for links to it")
    parser.add_argument("--sample", action="store_true", help="build a page of each kind: half a minute")
    options = parser.parse_args()
    out = options.out.resolve()
    html = out / "html"
    started = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - started:5.0f} s  {text}", flush=True)

    columns = read_columns(latest_runs(options.results))
    say(f"{len(columns)} stored results read")
    known = known_of(HERE.parent, tuple(columns))
    part = write_sources(out, known, sample=options.sample)
    say(f"{len(part.pages)} pages written as Markdown")
    if status := make_html(out, known.columns, sample=options.sample):
        return status
    finish(html, options.base, options.repository)
    say("pages made by Sphinx")
    names = [name.address for name in part.names]
    absent = [f"{page.path}.html" for page in part.pages] if options.sample else ()
    wrong = problems(html, names, absent)
    say(summary(html))
    print("\n".join(wrong[:100]))
    say(f"{len(wrong)} problems; the site is {html / 'index.html'}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
