"""Builds the site: ``python site/build.py``, from a clone, with the packages of the group `site`.

It writes the pages as Markdown, calls Sphinx, adds the pages of results, and checks every link.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # the pages, and the tools of the repository

from check import problems, summary  # noqa: E402 - the folders are added above
from pages.cases import cases  # noqa: E402
from pages.chapters import chapters, guides, terms_of  # noqa: E402
from pages.findings import findings  # noqa: E402
from pages.front import front  # noqa: E402
from pages.gallery import gallery  # noqa: E402
from pages.known import Known, gathered  # noqa: E402
from pages.libraries import libraries, stored  # noqa: E402
from pages.links import addresses  # noqa: E402
from pages.operations import operations  # noqa: E402
from pages.page import Name, Part, joined  # noqa: E402
from pages.pictures import pictures  # noqa: E402
from pages.rules import rules  # noqa: E402
from pages.words import with_words  # noqa: E402

from attnspec.backends.names import library_of  # noqa: E402


def everything(known: Known, stored_in: Path, *, results: bool) -> Part:
    """Make all pages, names and files."""
    files: dict[str, str | Path] = {}
    address = addresses(known.root, tuple(known.rules.values()), files, results=results)
    standing = stored(stored_in)
    parts = [
        chapters(known, address),
        guides(known, address),
        rules(known, address, standing, results=results),
        operations(known),
        cases(known),
        gallery(known),
        findings(known),
        libraries(known, standing, results=results),
        pictures(known),
        front(known, results=results),
    ]
    whole = joined([*parts, Part(files=files)])
    return replace(whole, names=with_words(whole.names, terms_of(known)))


def write(part: Part, source: Path) -> None:
    """Write the pages and files into the folder that Sphinx reads."""
    shutil.rmtree(source, ignore_errors=True)
    for page in part.pages:
        path = source / f"{page.path}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page.text, encoding="utf-8")
    for name, thing in part.files.items():
        if name.startswith("spec/pictures/") and isinstance(thing, Path):
            _put(source / name, thing)
    names = [asdict(name) for name in part.names]
    (source / "names.json").write_text(json.dumps(names), encoding="utf-8")


def write_files(part: Part, html: Path) -> None:
    """Write the other files beside the pages that Sphinx made."""
    for name, thing in part.files.items():
        if not name.startswith("spec/pictures/"):
            _put(html / name, thing)
    (html / "_static" / "names.js").write_text(names_script(part.names), encoding="utf-8")


def names_script(names: Sequence[Name]) -> str:
    """Return the script that gives the search its names."""
    rows = [
        [name.kind, name.name, name.title, name.address, "|".join(name.words), name.text] for name in names
    ]
    text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f"attnspecNames([\n{text}\n]);\n"


def has_results(stored_in: Path) -> bool:
    """Whether the installed package makes pages of results, and some are stored."""
    try:
        import attnspec.conformance.render.html  # noqa: F401 - only whether it is there
    except ImportError:
        return False
    return any(stored_in.glob("*.jsonl.xz"))


def write_results(stored_in: Path, html: Path) -> None:
    """Write the pages of the stored results."""
    from attnspec.conformance.render import html as pages

    pages.write(
        sorted(stored_in.glob("*.jsonl.xz")),
        html / "results",
        rule_page=lambda rule: f"../rules/{rule}.html",
        finding_page=lambda name: f"../findings/{name.replace('/', '.html#')}",
        library_page=lambda library: f"../libraries/{library_of(library)}.html",
        home="../index.html",
    )


def _put(path: Path, thing: str | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(thing, Path):
        shutil.copyfile(thing, path)
    else:
        path.write_text(thing, encoding="utf-8")


def main() -> int:
    """Build the site and say what was built."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=HERE.parent / "build" / "site", help="the folder to build in"
    )
    parser.add_argument("--results", type=Path, default=HERE / "results", help="the folder of stored results")
    given = parser.parse_args()
    out = given.out.resolve()
    source, html = out / "source", out / "html"
    started = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - started:5.0f} s  {text}", flush=True)

    results = has_results(given.results)
    part = everything(gathered(HERE.parent), given.results, results=results)
    write(part, source)
    say(f"{len(part.pages)} pages written as Markdown")
    shutil.rmtree(html, ignore_errors=True)
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-j", "2", "-c", str(HERE)]
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, *command, "-d", str(out / "doctrees"), "-E", str(source), str(html)], check=False
    )
    if done.returncode:
        return done.returncode
    write_files(part, html)
    say("pages made by Sphinx")
    if results:
        write_results(given.results, html)
        say("pages of results written")
    else:
        say("no pages of results: no results are stored")
    found = problems(html, [name.address for name in part.names])
    say(summary(html))
    print("\n".join(found[:100]))
    say(f"{len(found)} problems; the site is {html / 'index.html'}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
