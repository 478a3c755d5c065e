"""The pages of the standard: links, tables, the numbers of the notebooks, and the pictures."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

import attnspec
from attnspec import OPERATIONS, cases, citations, find_case, find_rule, levels, rules
from attnspec.citations import anchor
from attnspec.schema import VECTORS
from tools import pictures as module
from tools.pictures import FILL, FOLDER, INK, MASKS, STEPS, main, pictures

BEGIN, END = "### Form by form", "[Stacks](stacks.md) combine"
#: The columns that are read.
FORM, OPERATION, STORED, LEVEL, GRADIENTS = 0, 1, 3, 5, 6


@cache
def rows():
    page = (VECTORS.parent / "scope.md").read_text(encoding="utf-8")
    lines = [line for line in page.split(BEGIN)[1].split(END)[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def operations_in(cell):
    return {name for name in re.findall(r"`(\w+)`", cell) if name in OPERATIONS}


def test_every_form_and_vector_that_is_named_exists():
    named = {name for row in rows() for at in (OPERATION, GRADIENTS) for name in operations_in(row[at])}
    assert named == {name for name, form in OPERATIONS.items() if not form.stacked or name in named}
    for name in re.findall(r"`([a-z]+-00\d[a-z0-9-]*)`", PAGE):
        assert find_case(name)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[FORM])
def test_the_row_of_a_form_names_its_vectors_levels_and_gradients(row):
    files = re.findall(r"vectors/(\w+)\.json", row[STORED])
    held = {case.operation for name in files for case in cases() if case.chapter == name}
    assert operations_in(row[OPERATION]) <= held or not files
    assert set(re.findall(r"levels\.md#([\w-]+)", row[LEVEL])) <= {level.name for level in levels()}
    for operation in operations_in(row[OPERATION]):
        if re.match("not covered(:|,| alone)", row[GRADIENTS]):
            continue  # the reason follows, and may name operations
        if (backward := f"{operation}_vjp") in OPERATIONS:
            assert backward in row[GRADIENTS] or re.search(r"GRAD-\d+", row[GRADIENTS])
        elif not operation.endswith("_vjp"):
            assert operations_in(row[GRADIENTS]) == set()


PAGE = (Path(attnspec.__file__).parent / "notebooks.md").read_text(encoding="utf-8")
EXAMPLES = ("000", "001", "002", "003", "004")


def section(example):
    """The part of the page on one example."""
    return re.search(rf"^## {example}: .*?(?=^## )", PAGE, re.MULTILINE | re.DOTALL)[0]


def vectors_of_cells(example):
    """The vectors that stand in the row of each cell."""
    table = re.findall(r"^\| `(In [^`]*)` \|(.*)\|$", section(example), re.MULTILINE)
    assert len({cell for cell, _ in table}) == len(table)
    return {cell: set(re.findall(r"`([a-z]+-\d[a-z0-9-]*)`", row.rpartition(" |")[2])) for cell, row in table}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_section_of_an_example_names_its_cells_and_vectors(example):
    held = defaultdict(set)
    for case in cases():
        for figure in case.figures:
            if figure.example == example:
                held[figure.cell].add(case.id)
    said = vectors_of_cells(example)
    assert {cell: said.get(cell) for cell in held} == held
    of_it = {case.id for case in cases() if re.search(rf"-{example}(-|$)", case.id)}
    assert of_it
    assert of_it - set(re.findall(r"`([^`]*)`", section(example))) == set()


ROOT = Path(__file__).parent.parent
#: Folders that are ours; what is built and installed lies beside them.
FOLDERS = ("spec", "reference", "backends", "conformance", "tests", "examples")
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(page for name in FOLDERS for page in ROOT.glob(f"{name}/**/*.md")),
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
    return {x if not found[:i].count(x) else f"{x}-{found[:i].count(x)}" for i, x in enumerate(found)}


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


def test_pages_and_citations_are_found():
    assert {"README.md", "spec/masking.md", "conformance/gallery/README.md"} <= {name(path) for path in PAGES}
    assert not any("build" in path.parts or ".venv" in path.parts for path in PAGES)
    assert {"2104.09864", "2108.12409"} <= cited(ROOT / "spec" / "positions.md")
    assert {"1706.03762", "10.1093/imanum/draa038"} <= cited(REFERENCES)
    for rule in rules():
        assert anchor(rule) in anchors(ROOT / "spec" / f"{rule.chapter}.md")


@pytest.mark.parametrize("path", SPEC, ids=name)
def test_rules_are_linked_where_they_stand(path):
    for target, text in links(path):
        if re.fullmatch(r"[A-Z]+-\d+", text):
            rule = find_rule(text)
            assert target == f"{rule.chapter}.md#{anchor(rule)}"
    # Mended by `python -m attnspec.citations spec/*.md`.
    text = path.read_text(encoding="utf-8")
    assert text == citations.cited(text)


def cited(path):
    text = path.read_text(encoding="utf-8")
    return {*ARXIV.findall(text), *DOI.findall(text)}


@pytest.mark.parametrize("path", [path for path in PAGES if path != REFERENCES], ids=name)
def test_papers_that_are_cited_are_listed(path):
    assert cited(path) - cited(REFERENCES) == set()


def test_a_paper_is_listed_once_and_linked_to_by_its_number():
    seen = []
    for target, text in links(REFERENCES):
        for number in (*ARXIV.findall(target), *DOI.findall(target)):
            assert number in text
            seen.append(number)
    assert len(seen) == len(set(seen))
    assert set(seen) == cited(REFERENCES)


def test_every_picture_is_shown_in_words_and_terms_are_in_order():
    each = [link for path in SPEC for link in links(path)]
    shown = {target: text for target, text in each if target.endswith(".svg")}
    assert set(shown) == {f"pictures/{path.name}" for path in (ROOT / "spec" / "pictures").iterdir()}
    assert all(len(text) > 10 for text in shown.values())
    terms = re.findall(r"(?m)^### (.*)$", (ROOT / "spec" / "glossary.md").read_text(encoding="utf-8"))
    assert len(terms) > 50
    assert terms == sorted(set(terms), key=str.lower)


DRAWN = pictures()
SVG = "{http://www.w3.org/2000/svg}"


def test_the_stored_pictures_are_those_that_are_drawn(tmp_path, monkeypatch):
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == DRAWN
    monkeypatch.setattr(module, "FOLDER", tmp_path / "pictures")
    main()
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == set(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_small_and_described_and_its_letters_stand_inside(name):
    assert len(DRAWN[name].encode()) < 20_000
    root = ET.fromstring(DRAWN[name])
    assert len(root.findtext(f"{SVG}title")) > 10
    assert len(root.findtext(f"{SVG}desc")) > 100
    # At 7.5 units a letter, which is wide for letters of 12.
    root = ET.fromstring(DRAWN[name])
    before = {"start": 0, "middle": 0.5, "end": 1}
    for one in root.iter(f"{SVG}text"):
        wide = 7.5 * len(one.text)
        left = float(one.get("x")) - before[one.get("text-anchor")] * wide
        assert left >= 0, one.text
        assert left + wide <= float(root.get("width")), one.text
        assert 10 <= float(one.get("y")) <= float(root.get("height")), one.text


@pytest.mark.parametrize("name", MASKS)
def test_a_grid_has_a_square_for_each_allowed_key(name):
    squares = re.findall(r'class="f" d="([^"]*)"', DRAWN[f"{name}.svg"])
    assert [path.count("M") for path in squares] == [one.allowed.sum() for one in MASKS[name].panels]


def test_the_last_grid_allows_what_all_others_do():
    *sources, every = MASKS["together"].panels
    assert (every.allowed == (sum(one.allowed.astype(int) for one in sources) == len(sources))).all()
    assert not every.allowed[-1].any()


def test_the_steps_of_the_operator_are_those_of_the_standard():
    operation = OPERATIONS["attention"]
    taken = {name for step in STEPS for line in step.inputs for name in re.findall(r"\w+", line)}
    assert taken == {name for name in operation.arguments if not name.startswith("return_")}
    assert {step.output for step in STEPS} - {""} == set(operation.outputs)
    for step in STEPS:
        for rule in step.rules.split(", "):
            assert find_rule(rule)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(x * weight for x, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
@pytest.mark.parametrize("colour", [INK, FILL])
def test_the_colours_are_read_on_a_light_page_and_on_a_dark_one(colour, page):
    light, dark = sorted((luminance(colour), luminance(page)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) > 4
