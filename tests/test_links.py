"""Links have targets, rules in the text are linked, and links are listed at the end of a page."""

import re
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from attnspec import CHAPTERS, citations, find_rule, rules
from attnspec.citations import anchor

ROOT = Path(__file__).parent.parent
#: Folders that are ours; what is built and installed lies beside them.
FOLDERS = ("spec", "reference", "backends", "conformance", "tests", "examples")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(page for name in FOLDERS for page in (ROOT / name).rglob("*.md")),
]
SPEC = sorted((ROOT / "spec").glob("*.md"))
REFERENCES = ROOT / "spec" / "references.md"
ARXIV = re.compile(r"(?i)arxiv(?:\.org/abs/|[ :])\s*(\d{4}\.\d{4,5})")
DOI = re.compile(r"\b10\.\d{4,9}/[^\s\])>]+(?<![.,;])")


def name(path):
    return str(path.relative_to(ROOT))


@cache
def tokens(path):
    found = []
    for token in MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8")):
        found += [token, *(token.children or ())]
    return found


def links(path):
    """What is linked to or shown, and the text of each link."""
    each = tokens(path)
    for index, token in enumerate(each):
        if token.type == "link_open":
            text = "".join(other.content for other in each[index + 1 : index + 3] if other.type == "text")
            yield token.attrGet("href"), text
        elif token.type == "image":
            yield token.attrGet("src"), token.content


def slug(heading):
    """The name that a code host gives to a heading."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


@cache
def anchors(path):
    each, found = tokens(path), []
    for index, token in enumerate(each):
        if token.type == "heading_open":
            children = each[index + 1].children
            found.append(slug("".join(child.content for child in children)))
    return {
        one if not found[:i].count(one) else f"{one}-{found[:i].count(one)}" for i, one in enumerate(found)
    }


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path):
    for target, _ in links(path):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), target
        if fragment:
            assert fragment in anchors(there), target


def test_pages_are_found():
    assert {"README.md", "spec/masking.md", "conformance/gallery/README.md"} <= {name(path) for path in PAGES}
    assert not any("build" in path.parts or ".venv" in path.parts for path in PAGES)


def test_anchors_of_rules_are_those_that_reports_link_to():
    for rule in rules():
        assert anchor(rule) in anchors(ROOT / "spec" / f"{rule.chapter}.md")


@pytest.mark.parametrize("path", SPEC, ids=name)
def test_a_link_that_bears_the_id_of_a_rule_leads_to_it(path):
    for target, text in links(path):
        if re.fullmatch(r"[A-Z]+-\d+", text):
            rule = find_rule(text)
            assert target == f"{rule.chapter}.md#{anchor(rule)}"


@pytest.mark.parametrize("path", SPEC, ids=name)
def test_rules_that_are_cited_exist_and_a_link_to_one_is_no_bare_bracket(path):
    text = path.read_text(encoding="utf-8")
    families = "|".join(sorted({rule.id.partition("-")[0] for rule in rules()}))
    for cited in set(re.findall(rf"\b(?:{families})-\d+\b", text)):
        assert find_rule(cited)
    bare = [token.content for token in tokens(path) if token.type == "text"]
    assert not [text for text in bare if re.search(rf"\[(?:{families})-\d+\]", text)]


def cited(path):
    text = path.read_text(encoding="utf-8")
    return {*ARXIV.findall(text), *DOI.findall(text)}


@pytest.mark.parametrize("path", [path for path in PAGES if path != REFERENCES], ids=name)
def test_papers_that_are_cited_are_listed(path):
    assert cited(path) - cited(REFERENCES) == set()


def test_citations_are_found():
    assert {"2104.09864", "2108.12409"} <= cited(ROOT / "spec" / "positions.md")
    assert {"1706.03762", "10.1093/imanum/draa038"} <= cited(REFERENCES)


def test_a_paper_is_listed_once_and_linked_to_by_its_number():
    seen = []
    for target, text in links(REFERENCES):
        for number in (*ARXIV.findall(target), *DOI.findall(target)):
            assert number in text
            seen.append(number)
    assert len(seen) == len(set(seen))
    assert set(seen) == cited(REFERENCES)


def test_every_picture_is_shown_and_says_in_words_what_it_shows():
    each = [link for path in SPEC for link in links(path)]
    shown = {target: text for target, text in each if target.endswith(".svg")}
    assert set(shown) == {f"pictures/{path.name}" for path in (ROOT / "spec" / "pictures").iterdir()}
    assert all(len(text) > 10 for text in shown.values())


def test_terms_of_the_glossary_are_in_order():
    terms = re.findall(
        r"^### (.*)$", (ROOT / "spec" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(terms) > 50
    assert terms == sorted(set(terms), key=str.lower)


@pytest.mark.parametrize("path", SPEC, ids=name)
def test_rules_that_running_text_cites_are_linked(path):
    """Mended by `python -m attnspec.citations spec/*.md`."""
    text = path.read_text(encoding="utf-8")
    assert text == citations.cited(text)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_no_text_of_a_chapter_names_a_rule_without_a_link(chapter):
    """Found by the parser of Markdown, which knows nothing of what writes the links."""
    each = tokens(ROOT / "spec" / f"{chapter}.md")
    linked = {index + 1 for index, token in enumerate(each) if token.type == "link_open"}
    headings = {index + 2 for index, token in enumerate(each) if token.type == "heading_open"}
    known = {rule.id for rule in rules()}
    for index, token in enumerate(each):
        if token.type == "text" and not {index} & (linked | headings):
            assert not known & {*re.findall(r"[A-Z]+-\d+", token.content)}
