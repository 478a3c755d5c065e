"""The pages of results, without a browser."""

import csv
import json
import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from html_results import HOSTILE, data_of, every_rule, verdict, write_run
from tests_support import command

from attnspec import SpecError, levels, rules
from attnspec.conformance.render.html import write
from attnspec.conformance.render.html.folder import files, read_columns
from attnspec.conformance.render.html.marks import MARKS
from attnspec.conformance.render.html.page import Links

#: The largest number of bytes of a page, and of a script with data.
MOST = 300_000
MINE = "mine-f-1.0-2026-01-05"


class Folder:
    """A folder of pages."""

    def __init__(self, path):
        self.path = path
        self.columns = {column["slug"]: column for column in self.data("matrix")["columns"]}

    def text(self, name):
        return (self.path / name).read_text(encoding="utf-8")

    def data(self, name):
        return data_of(self.path / "data" / f"{name}.js")

    def letters(self, slug):
        return dict(zip((rule.id for rule in rules()), self.columns[slug]["letters"], strict=True))

    def pages(self):
        return {path: path.read_text(encoding="utf-8") for path in self.path.rglob("*.html")}

    def large(self, *suffixes):
        files = [path for path in self.path.rglob("*") if path.suffix in suffixes]
        assert files
        return [path.name for path in files if path.stat().st_size > MOST]


@pytest.fixture(scope="module")
def folder(results_folder):
    return Folder(results_folder)


@pytest.fixture
def build(tmp_path):
    """A function that writes the pages of runs, each given as a day and arguments of `write_run`."""

    def write_pages(*runs):
        days = [run.pop("day", "2026-01-01") for run in runs]
        paths = [write_run(tmp_path / f"{n}-{days[n]}.jsonl", **run) for n, run in enumerate(runs)]
        write(paths, tmp_path / "out")
        return Folder(tmp_path / "out")

    return write_pages


class _Page(HTMLParser):
    """The addresses, ids and elements of a page."""

    def __init__(self, text):
        super().__init__()
        self.addresses, self.ids, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append(tag)
        self.ids += [values["id"]] if "id" in values else []
        self.addresses += [values[name] for name in ("href", "src") if name in values]


def test_links_lead_somewhere_and_pages_load_nothing_from_elsewhere(folder):
    pages = {path.resolve(): _Page(text) for path, text in folder.pages().items()}
    assert len(pages) == 3 + 3 + 4
    for path, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), path
        for address in page.addresses:
            if address.startswith("data:"):
                continue
            name, _, anchor = unquote(address).partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.is_file(), (path, address)
            if anchor and "=" not in anchor:
                assert anchor in pages[target].ids, (path, address)
    for path, text in folder.pages().items():
        assert "connect-src 'none'" in unescape(text)
        assert not re.search(r"https?://|file:///", text), path
    for path in (folder.path / "_static").iterdir():
        if path.name != "names.js":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"https?:|fetch\(|XMLHttp|WebSocket|sendBeacon|@import|url\(", text), path
    assert HOSTILE in {column["backend"] for column in folder.columns.values()}
    for path, text in folder.pages().items():
        assert "img" not in _Page(text).tags, path
    for path in (folder.path / "data").iterdir():
        assert "</script" not in path.read_text(encoding="utf-8")


def test_a_run_with_deviations_is_not_said_to_conform(build):
    judged = [verdict("f", "a", "MASK-6", "deviation", variant="nan"), verdict("f", "b", "MASK-1")]
    deviates = build({"backend": "f", "judged": judged}).text("f.html")
    assert "no undeclared failure" in deviates
    assert "conforms" not in deviates


def test_each_kind_of_verdict_has_a_mark_of_its_own(folder):
    letters = folder.letters(MINE)
    expected = {"MASK-1": "p", "MASK-4": "f", "MASK-6": "d", "MASK-13": "s", "MASK-8": "u"}
    expected |= {"ERR-1": "f", "INV-4": "m", "MASK-2": "n"}
    assert {rule: letters[rule] for rule in expected} == expected
    assert [*letters.values()].count("p") == 1
    assert len({mark.symbol for mark in MARKS}) == len(MARKS)
    assert len({mark.letter for mark in MARKS}) == len({mark.name for mark in MARKS}) == len(MARKS) == 7


def test_a_cell_says_what_was_got_expected_and_allowed_and_how_to_see_it(folder):
    cells = folder.data(MINE)["cells"]
    (example,) = cells["MASK-4"]["examples"]
    assert (example["place"], example["got"], example["expected"]) == ("output[2, 0]", "1.5", "0.25")
    assert example["allowed"] == "0.5"
    assert example["off"] == "off by 1.25, 2.5 times the allowed error; 2 of 6 elements are off"
    assert 'find("masking-c-float32")' in example["script"]
    assert example["command"] == "attnspec check mine:f --case masking-c-float32"
    assert cells["MASK-8"]["reason"] == "mine:f has no argument window"
    assert "examples" not in cells["MASK-8"]


def test_a_deviation_shows_the_value_of_its_variant(build):
    nan = verdict("m:f", "masking-empty-head", "MASK-6", "deviation", variant="nan")
    pages = build({"backend": "m:f", "judged": [nan]})
    (example,) = pages.data("m-f-1.0-2026-01-01")["cells"]["MASK-6"]["examples"]
    assert (example["place"], example["expected"]) == ("output[1, 1, 0]", "0")
    assert example["got"] == "nan, within the allowed error of the variant nan"
    assert 'observe(backend, case)["output"][1, 1, 0]' in example["script"]


def test_a_deviation_is_named_and_counted(build):
    judged = [
        verdict("m:f", "masking-a", "MASK-6", "deviation", variant="nan"),
        verdict("m:f", "masking-b", "MASK-6", "deviation", variant="nan"),
        verdict("m:f", "masking-c", "MASK-6", "deviation", variant="uniform"),
        verdict("m:f", "masking-d", "MASK-6"),
        verdict("m:f", "scores-a", "SCORE-3", "deviation", reason=f"a scale of 0 is none{'.' * 90}"),
        verdict("m:f", "masking-e", "MASK-4", "fail"),
        verdict("m:f", "masking-f", "MASK-4", "deviation", variant="x"),
    ]
    pages = build({"backend": "m:f", "judged": judged})
    (column,) = pages.columns.values()
    # A rule that fails is not said to deviate.
    assert set(column["shown"]) == {"MASK-6", "SCORE-3"}
    assert column["shown"]["MASK-6"] == "nan: 2; uniform: 1"
    assert column["shown"]["SCORE-3"].startswith("a scale of 0 is none.")
    assert len(column["shown"]["SCORE-3"]) == 60
    assert "deviation 3 of 4: nan: 2; uniform: 1</a>" in pages.text("m-f.html")


def test_the_rules_stand_beside_the_results_and_are_found(folder):
    text = folder.text("rules.html")
    assert {rule.id for rule in rules()} <= set(_Page(text).ids)
    assert "the output and the weights MUST be 0" in text
    assert "<code>query</code>" in text
    addresses = {rule[0]: rule[4] for rule in folder.data("matrix")["rules"]}
    assert addresses == {rule.id: f"rules.html#{rule.id}" for rule in rules()}
    assert folder.data("rules") == {rule.id: rule.sentence for rule in rules()}
    text = folder.text("_static/names.js")
    names = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    addresses = {(kind, name): address for kind, name, _, address, *_ in names}
    assert addresses["rule", "MASK-6"] == "rules.html#MASK-6"
    assert addresses["library", "mine:f"] == "mine-f.html"
    assert all('role="search"' in text for text in folder.pages().values())


@pytest.mark.parametrize(("part", "letter"), [("whole", "p"), ("quick", "n")])
def test_a_part_of_the_suite_reaches_no_level(build, part, letter):
    (column,) = build({"judged": every_rule("mine:f"), "part": part}).columns.values()
    assert set(column["letters"]) == {"p"}
    assert set(column["levels"]) == {letter}


def test_a_case_of_the_plan_without_a_verdict_is_no_pass(tmp_path):
    path = write_run(tmp_path / "a-2026-01-01.jsonl", judged=every_rule("mine:f"))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    left = [line for line in lines if "case-mask-1-" not in line or "header" in line]
    left[-1] = json.dumps({"footer": {"verdicts": len(left) - 3}}) + "\n"
    path.write_text("".join(left), encoding="utf-8")
    write([path], tmp_path / "out")
    pages = Folder(tmp_path / "out")
    ((slug, column),) = pages.columns.items()
    assert pages.letters(slug)["MASK-1"] == "n"
    assert set(column["levels"]) == {"n"}
    assert "not run" in pages.text("mine-f.html")


def test_the_newest_version_has_the_page_of_the_backend(folder):
    columns = folder.columns
    assert columns["mine-f-1.1-2026-02-05"]["page"] == "mine-f.html"
    assert columns[MINE]["page"] == f"runs/{MINE}.html"
    assert [column["newest"] for column in columns.values()].count(True) == 3
    assert "numpy 1.1" in folder.text("mine-f.html")
    text = folder.text("runs/mine-f-1.1-2026-02-05.html")
    assert '<a href="../mine-f.html">' in text
    assert "does not conform" in text
    assert len(text) < 5_000
    assert 'id="levels"' in folder.text(f"runs/{MINE}.html")
    text = folder.text("index.html").partition('id="libraries"')[2].partition('id="rules"')[0]
    assert ">good:f</a>" in text
    assert '<abbr title="Attention with no option except the scale. Every function' in text
    assert f"{len(rules())} of {len(rules())}" in text
    assert "ERR-1 (error)" in text


def test_versions_are_ordered_as_numbers_not_as_text(build):
    columns = build({"version": "1.10"}, {"version": "1.9", "day": "2026-03-01"}).columns.values()
    assert [column["version"] for column in columns if column["newest"]] == ["1.10"]


def test_portable_code_is_last_and_is_not_called_like_the_library(tmp_path):
    names = ("jax-portable", "mine:f", "torch-sdpa", "numpy-portable")
    paths = [write_run(tmp_path / f"{n}-2026-01-01.jsonl", name) for n, name in enumerate(names)]
    links = Links(rule=lambda rule: f"../rules/{rule}", library=lambda name: f"../libraries/{name}.html")
    columns = read_columns(paths)
    order = ["torch-sdpa", "mine:f", "numpy-portable", "jax-portable"]
    assert [column.backend for column in columns] == order
    assert columns[0].label == "torch-sdpa"
    pages = {name: page.body for name, page in files(columns, links) if name.endswith(".html")}
    assert "say nothing about the attention functions of the library" in pages["index.html"]
    not_run = pages["index.html"].partition("Not run: ")[2].partition("</p>")[0]
    assert '<a href="../libraries/jax-nn.html">jax-nn</a>' in not_run
    assert "torch-sdpa" not in not_run
    assert "portable" not in not_run
    assert "<h1>portable code on JAX</h1>" in pages["jax-portable.html"]
    assert "say nothing about the attention" in pages["jax-portable.html"]


def test_names_that_give_one_address_get_addresses_of_their_own(build, tmp_path):
    names = ("m:f", "m-f", "M/f", "index", "..")
    pages = build(*({"backend": name} for name in names))
    assert len({column["page"].lower() for column in pages.columns.values()}) == len(names)
    assert "Results by rule" in pages.text("index.html")
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"out"}


def test_the_matrix_is_there_as_csv_and_json(folder):
    def column(name, head):
        heads, *rows = csv.reader(folder.text(name).splitlines())
        return {row[0]: row[heads.index(head)] for row in rows}

    mine = column("matrix.csv", "mine:f 1.0 2026-01-05")
    assert len(mine) == len(rules())
    assert (mine["MASK-1"], mine["MASK-4"], mine["MASK-2"]) == ("pass 2", "FAIL 1 of 1", "not run")
    assert (mine["MASK-8"], mine["INV-4"]) == ("unsupported", "not shown 1 of 1")
    assert {*column("levels.csv", "good:f 2.0 2026-02-07").values()} == {"reached"}
    run = next(run for run in json.loads(folder.text("matrix.json"))["runs"] if run["version"] == "1.0")
    assert run["rules"]["MASK-4"] == {"result": "fail", "cases": {"fail": 1}}
    assert run["levels"]["masked"]["lacks"]["MASK-4"] == "fail"


def test_there_are_badges_of_levels_and_drawings_of_shares(folder):
    badges = {path.name: path.read_text(encoding="utf-8") for path in (folder.path / "badges").iterdir()}
    assert len(badges) == 3 * len(levels())
    assert "reached" in badges["good-f-core.svg"]
    assert "not reached" in badges["mine-f-masked.svg"]
    for text in badges.values():
        ET.fromstring(text)
    text = folder.text(f"runs/{MINE}.html")
    assert text.count("<svg") == 1
    assert "float32, 16 to 63 numbers: 2 calls, median 1.4, largest 2.5 in masking-c-float32, 1 over" in text
    assert "float32, 256 to 1023 numbers: 1 call, median 0.5, largest 0.5" in text
    assert text.count('class="over"') == 1


def test_the_feed_says_what_a_version_changed(folder):
    name = "{http://www.w3.org/2005/Atom}"
    entries = ET.fromstring(folder.text("feed.xml")).findall(f"{name}entry")
    days = [entry.findtext(f"{name}updated")[:10] for entry in entries]
    assert days == ["2026-02-07", "2026-02-06", "2026-02-05", "2026-01-05"]
    assert len({entry.findtext(f"{name}id") for entry in entries}) == 4
    changed = entries[2].findtext(f"{name}content")
    assert "MASK-4" in changed
    assert "fail \u2192 pass" in changed
    assert "MASK-6" not in changed
    for entry in entries:
        assert (folder.path / entry.find(f"{name}link").get("href")).is_file()


def test_small_files_whatever_is_judged(build):
    def failing(name):
        return [verdict(name, f"{rule.chapter}-{rule.id}", rule.id, "fail") for rule in rules()]

    pages = build(*({"backend": name, "judged": failing(name)} for name in (f"m{n}:f" for n in range(30))))
    assert len([*pages.path.rglob("*.html")]) > 60
    assert pages.large(".html", ".js", ".css") == []
    several = [(rule.id, number) for rule in rules() for number in range(3)]
    long = [verdict("m:f", f"c{number}", rule, "fail", reason="x" * 50_000) for rule, number in several]
    assert build({"backend": "m:f", "judged": long}).large(".html", ".js", ".css", ".csv", ".xml") == []


def test_a_folder_of_an_installation_is_not_shown(build):
    reason = "at /home/me/env/lib/python3.11/site-packages/torch/a.py"
    failing = verdict("m:f", "c", "MASK-1", "fail", reason=reason)
    pages = build({"backend": "m:f", "judged": [failing]})
    (example,) = pages.data("m-f-1.0-2026-01-01")["cells"]["MASK-1"]["examples"]
    assert example["notes"][0] == "at site-packages/torch/a.py"


def test_no_results_are_an_error(tmp_path):
    with pytest.raises(SpecError, match="expected the results of a backend, got none"):
        write([], tmp_path)


def _run(*words):
    return command(*[str(word) for word in words])


def test_the_command_writes_the_pages(tmp_path, monkeypatch):
    path = write_run(tmp_path / "run.jsonl")
    out, summary, markdown = tmp_path / "out", tmp_path / "summary.md", tmp_path / "report.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for name, text in (("SERVER_URL", "https://github.com"), ("REPOSITORY", "a/b"), ("RUN_ID", "7")):
        monkeypatch.setenv(f"GITHUB_{name}", text)
    ran = _run("report", path, "--html", out)
    assert ran.exit_code == 0, ran.output
    assert (out / "index.html").is_file()
    text = summary.read_text(encoding="utf-8")
    assert "`mine:f`" in text
    assert "[artifacts of this run](https://github.com/a/b/actions/runs/7#artifacts)" in text
    summary.unlink()
    assert _run("report", path, "--html", out, "--markdown", markdown).exit_code == 0
    assert "out/index.html" in markdown.read_text(encoding="utf-8")
    assert not summary.exists()


def test_the_report_of_one_backend_begins_with_the_verdict_and_the_causes(build, folder):
    text = build({"part": "whole"}).text("index.html")
    verdict, causes, levels_, table = (
        text.index(part) for part in ('class="verdict"', 'id="causes"', 'id="libraries"', 'id="matrix"')
    )
    assert verdict < causes < levels_ < table
    assert "does not conform" in text[verdict:causes]
    shown = text[causes:levels_]
    assert shown.index("MASK-4") < shown.index("MASK-6") < shown.index("MASK-13")
    assert "got <b>1.5</b>, expected <b>0.25</b>, allowed error 0.5" in shown
    assert "from attnspec.backends import load" in shown
    assert "img src=x" not in text.replace("&lt;img src=x", "")
    assert 'class="verdict"' not in folder.text("index.html")
