"""The chapters of the standard and the guides as pages, with their links turned into links of the site."""

import json
import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from notebooks import notebooks
from pages.known import Known
from pages.page import Name, Page, Part, make_page
from pages.search import plain

from attnspec import CHAPTERS
from attnspec.citations import anchor
from attnspec.rule import Rule

Address = Callable[[str, str], str]
#: Pages of the repository, and where the site has them.
GUIDES = {
    "README.md": "guide/test-your-implementation",
    "TEN_MINUTES.md": "guide/ten-minutes",
    "CONTRIBUTING.md": "guide/contributing",
    "CHANGELOG.md": "changes",
    "conformance/running.md": "guide/running",
    "conformance/configuration.md": "guide/configuration",
    "conformance/sizes.md": "guide/sizes",
    "conformance/ranks.md": "guide/ranks",
    "conformance/untrusted.md": "guide/untrusted",
    "conformance/protocol.md": "guide/protocol",
    "conformance/offline.md": "guide/offline",
    "conformance/acceptance.md": "guide/acceptance",
    "spec/pack/README.md": "guide/pack",
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
#: The pages beside the chapters, in the order of the table of contents.
BESIDE = (
    "scope",
    "conformance",
    "levels",
    "versions",
    "glossary",
    "recipes",
    "calls",
    "frameworks",
    "dialects",
    "notebooks",
    "derivation",
    "evidence",
    "generator",
    "references",
)
_HEADING = re.compile(r"^### (?P<id>[A-Z]+-[1-9][0-9]*) .*$", re.MULTILINE)
_NEXT = re.compile(r"^#{1,3} |^<!-- rules -->$", re.MULTILINE)
_DEFINITION = re.compile(r"^\[(?P<name>[^][\n]+)\]: \S+$", re.MULTILINE)
_TERM = re.compile(r"^### (?P<term>[^\n]+)\n+(?P<text>.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_ALSO = re.compile(r"\*Also:\*(?P<names>.*?)(?=\*(?:Not|Active):\*|\Z)")
_SECTION = re.compile(r"^##{1,2} (?P<title>.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$|^<!-- rules -->$.*", re.MULTILINE | re.DOTALL)
#: The headings of sections that are notebooks too.
_RUNNABLE = r"^(?:## (?P<number>00\d): .*|### Two chunks, step by step)$"
_COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)


def chapters(known: Known, address: Address) -> Part:
    """Return the pages of the folder `spec`."""
    pages = []
    names = []
    for name in ("README", *CHAPTERS, *BESIDE):
        source = f"spec/{name}.md"
        page = "spec/index" if name == "README" else f"spec/{name}"
        text = (known.root / source).read_text(encoding="utf-8")
        text = _with_pages_of_rules(text) if name in CHAPTERS else text
        text = re.sub(_RUNNABLE, _with_notebook, text, flags=re.MULTILINE)
        pages.append(Page(page, relink(_COMMENT.sub("", text), source, page, address)))
        title = plain(text.splitlines()[0].lstrip("# "))
        names.append(Name("page", name, f"{page}.html", title, text=_start(text)))
        if name != "glossary":
            names += _sections(title, page, text)
    names += _terms((known.root / "spec" / "glossary.md").read_text(encoding="utf-8"))
    names += _questions((known.root / "spec" / "README.md").read_text(encoding="utf-8"))
    files: dict[str, str | Path] = {
        f"files/notebooks/{name}.ipynb": json.dumps(notebook, indent=1) + "\n"
        for name, notebook in notebooks(known.root).items()
    }
    files |= {
        f"spec/pictures/{path.name}": path
        for path in sorted((known.root / "spec" / "pictures").glob("*.svg"))
    }
    return Part(tuple(pages), tuple(names), files)


def guides(known: Known, address: Address) -> Part:
    """Return the other pages of the repository."""
    pages = []
    names = []
    for source, page in GUIDES.items():
        text = (known.root / source).read_text(encoding="utf-8")
        if source == "README.md":
            text = text.replace("# attnspec\n", "# Test your implementation\n", 1)
            text = text.replace("## Test your implementation\n", "## With the function as it is\n", 1)
            text = re.sub(r"^!\[[^]]*\]\(site/pictures/[^)]*\)\n+", "", text, flags=re.MULTILINE)
        pages.append(Page(page, relink(_COMMENT.sub("", text), source, page, address)))
        title = plain(text.splitlines()[0].lstrip("# "))
        names.append(
            Name("page", title, f"{page}.html", _start(text).partition(". ")[0], (source,), _words_of(text))
        )
        if source != "CHANGELOG.md":
            names += _sections(title, page, text)
    return Part(tuple(pages), tuple(names))


def _sections(page_title: str, page: str, text: str) -> list[Name]:
    """Return the sections of a page, each with its text. Rules are names of their own."""
    text = _FENCE.sub("", _COMMENT.sub("", text))
    heads = list(_SECTION.finditer(text))
    names: dict[str, Name] = {}
    for head, after in zip(heads, [*heads[1:], None], strict=False):
        title = plain(head["title"])
        place = re.sub(r"[^a-z0-9]+", "-", title.lower()).lstrip("-0123456789").rstrip("-")
        if not place or place in names or _HEADING.match(head[0]):
            continue
        content = text[head.end() : after.start() if after else len(text)]
        names[place] = Name(
            "section", f"{page_title}: {title}", f"{page}.html#{place}", "", text=_words_of(content)
        )
    return list(names.values())


def _words_of(text: str) -> str:
    """Return the first sentences of a text, and every other word of it once."""
    whole = plain(text.replace("|", " "))
    first = whole[:300].rpartition(" ")[0] if len(whole) > 300 else whole
    rest = dict.fromkeys(re.findall(r"[A-Za-z_][\w.-]{3,}", whole[len(first) :]))
    return " ".join([first, *(word for word in rest if word not in first)])


def _start(text: str) -> str:
    """Return the first paragraph of a page."""
    paragraphs = _FENCE.sub("", _COMMENT.sub("", text)).split("\n\n")
    return plain(next((text for text in paragraphs[1:] if text[:1].isalnum()), ""))


def _questions(readme: str) -> list[Name]:
    """Return the frequently asked questions. Each leads to the rule that answers it."""
    names = []
    for question, answer, rules in questions_of(readme):
        rule = rules[0]
        title = f"{plain(answer)} ({', '.join(rules)})"
        names.append(Name("question", plain(question), f"rules/{rule}.html", title))
    return names


def questions_of(readme: str) -> list[tuple[str, str, list[str]]]:
    """Read the frequently asked questions: question, answer, and the rules that answer it."""
    questions = []
    for line in readme.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].endswith("?"):
            questions.append((cells[0], cells[1], re.findall(r"\[([A-Z]+-[0-9]+)\]", cells[2])))
    return questions


def terms_of(known: Known) -> dict[str, tuple[str, ...]]:
    """Return the terms that each rule is the first to define, with their other names."""
    terms: dict[str, tuple[str, ...]] = {}
    for match in _TERM.finditer((known.root / "spec" / "glossary.md").read_text(encoding="utf-8")):
        if rule := re.search(r"\[([A-Z]+-[0-9]+)\]", match["text"]):
            terms[rule[1]] = (*terms.get(rule[1], ()), match["term"], *_also(match["text"]))
    return terms


def _also(text: str) -> tuple[str, ...]:
    """Return the other names of a term."""
    match = _ALSO.search(" ".join(text.split()))
    return tuple(re.split(r"[,;] ", plain(match["names"]).rstrip(". "))) if match else ()


def section(known: Known, rule_id: str, chapter: str, address: Address) -> tuple[str, str]:
    """Return the sentence of a rule and the text under it, in Markdown, with links of its page."""
    source = f"spec/{chapter}.md"
    whole = (known.root / source).read_text(encoding="utf-8")
    start = next(match for match in _HEADING.finditer(whole) if match["id"] == rule_id).end()
    end = _NEXT.search(whole, start)
    text = whole[start : end.start() if end else len(whole)].strip().replace("](#", f"]({chapter}.md#")
    used = [
        match[0]
        for match in _DEFINITION.finditer(whole)
        if f"[{match['name']}]" in text or f"][{match['name']}]" in text
    ]
    links = relink("\n".join(used), source, f"rules/{rule_id}", address)
    sentence, _, rest = relink(text, source, f"rules/{rule_id}", address).partition("\n\n")
    return sentence, f"{rest}\n\n{links}\n"


def _terms(glossary: str) -> list[Name]:
    """Return the terms of the glossary, with what it says of each."""
    names = []
    for match in _TERM.finditer(glossary):
        place = re.sub(r"[^a-z0-9]+", "-", match["term"].lower()).strip("-")
        text = plain(match["text"]).replace("*", "")
        title = text.partition(". ")[0]
        also = _also(match["text"])
        names.append(Name("term", match["term"], f"spec/glossary.html#{place}", title, also, text))
    return names


def _with_notebook(heading: re.Match[str]) -> str:
    """Return a heading with a link to the notebook of its section."""
    name = heading["number"] or "merging"
    return f"{heading[0]}\n\n{{.more}}\n[As a notebook, {name}.ipynb](page:../files/notebooks/{name}.ipynb)"


def _with_pages_of_rules(text: str) -> str:
    """Add a link to its page under the sentence of each rule."""
    parts = []
    last = 0
    for match in _HEADING.finditer(text):
        end = text.index("\n\n", match.end() + 2)
        rule = match["id"]
        parts.append(text[last:end])
        parts.append(
            "\n\n{.more}\n"
            f"[{rule}: vectors, tests, findings, wrong implementations](page:../rules/{rule}.html)"
        )
        last = end
    return "".join([*parts, text[last:]])


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
    """Return an address of the site as a page sees it, in the form that MyST reads."""
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
    if match := re.fullmatch(r"backends/findings/families/(\w+)\.py", path):
        return f"findings/families/{match[1]}.html"
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
        listing = make_page(f"files/{path}/index", "listing.html", folder=path, files=inside)
        files[f"{listing.path}.html"] = listing.text
        files.update({f"files/{path}/{file.name}": file for file in inside})
        return f"{listing.path}.html"
    if not whole.is_file():
        raise FileNotFoundError(f"links: expected a file of the repository, got {path}")
    files[f"files/{path}"] = whole
    return f"files/{path}"
