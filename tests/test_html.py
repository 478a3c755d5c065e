"""The pages of results, without a browser."""

import csv
import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from html_results import HOSTILE, data_of, every_rule, verdict, write_run

from attnspec import SpecError, levels, rules
from attnspec.backends.names import PORTABLE
from attnspec.conformance.cli.main import main
from attnspec.conformance.render.html import write
from attnspec.conformance.render.html.folder import files, read_columns
from attnspec.conformance.render.html.marks import MARKS
from attnspec.conformance.render.html.page import Links
from attnspec.conformance.results import read

#: The largest number of bytes of a page, and of a script with data.
MOST = 300_000


@pytest.fixture(scope="module")
def folder(results_folder):
    return results_folder


class _Page(HTMLParser):
    """The addresses, ids and elements of a page."""

    def __init__(self, path):
        super().__init__()
        self.addresses, self.ids, self.tags = [], [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.addresses += [found[name] for name in ("href", "src") if name in found]


def test_every_link_of_every_page_leads_somewhere(folder):
    pages = {path.resolve(): _Page(path) for path in folder.rglob("*.html")}
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


def test_pages_load_nothing_from_elsewhere(folder):
    for path in folder.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "connect-src 'none'" in unescape(text)
        assert not re.search(r"https?://", text), path
    for path in (folder / "_static").iterdir():
        if path.name != "names.js":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"https?:|fetch\(|XMLHttp|WebSocket|sendBeacon|@import|url\(", text), path


def test_text_from_outside_is_never_markup(folder):
    assert any(HOSTILE in read([path]).subjects[0].name for path in [*folder.parent.rglob("bad-*.jsonl")])
    for path in folder.rglob("*.html"):
        assert "img" not in _Page(path).tags, path
    for path in (folder / "data").iterdir():
        assert "</script" not in path.read_text(encoding="utf-8")


def _columns(folder):
    return {one["slug"]: one for one in data_of(folder / "data" / "matrix.js")["columns"]}


def test_each_kind_of_verdict_has_its_mark(folder):
    numbers = {rule.id: index for index, rule in enumerate(rules())}
    letters = _columns(folder)["mine-f-1.0-2026-01-05"]["letters"]
    found = {rule: letters[numbers[rule]] for rule in ("MASK-1", "MASK-4", "MASK-6", "MASK-13", "MASK-8")}
    assert found == {"MASK-1": "p", "MASK-4": "f", "MASK-6": "d", "MASK-13": "s", "MASK-8": "u"}
    assert letters[numbers["ERR-1"]] == "f"
    assert letters[numbers["INV-4"]] == "m"
    assert letters[numbers["MASK-2"]] == "n"
    assert letters.count("p") == 1


def test_marks_differ_without_colour():
    assert len({mark.symbol for mark in MARKS}) == len(MARKS)
    assert len({mark.letter for mark in MARKS}) == len({mark.name for mark in MARKS}) == len(MARKS) == 7


def test_a_cell_says_what_was_got_expected_and_allowed_and_how_to_see_it(folder):
    cell = data_of(folder / "data" / "mine-f-1.0-2026-01-05.js")["cells"]["MASK-4"]
    (example,) = cell["examples"]
    assert (example["place"], example["got"], example["expected"]) == ("output[2, 0]", "1.5", "0.25")
    assert example["allowed"] == "0.5"
    assert example["off"] == "off by 1.25, 2.5 times the allowed error; 2 of 6 elements are off"
    assert 'find("masking-c-float32")' in example["script"]
    assert example["command"] == "attnspec check mine:f --case masking-c-float32"


def test_a_deviation_shows_the_value_of_its_variant(tmp_path):
    said = replace(
        verdict("m:f", "masking-empty-head", "MASK-6", "deviation", variant="nan"), dtype="float32"
    )
    write([write_run(tmp_path / "m-2026-01-01.jsonl", "m:f", judged=[said])], tmp_path / "out")
    (example,) = data_of(tmp_path / "out" / "data" / "m-f-1.0-2026-01-01.js")["cells"]["MASK-6"]["examples"]
    assert (example["place"], example["expected"]) == ("output[1, 1, 0]", "0")
    assert example["got"] == "nan, within the allowed error of the variant nan"
    assert 'observe(load("m:f"), case)["output"][1, 1, 0]' in example["script"]


def test_a_cell_that_is_not_offered_says_why(folder):
    cell = data_of(folder / "data" / "mine-f-1.0-2026-01-05.js")["cells"]["MASK-8"]
    assert cell["reason"] == "mine:f has no argument window"
    assert "examples" not in cell


def test_a_deviation_is_named_and_counted(tmp_path):
    judged = [
        verdict("m:f", "masking-a", "MASK-6", "deviation", variant="nan"),
        verdict("m:f", "masking-b", "MASK-6", "deviation", variant="nan"),
        verdict("m:f", "masking-c", "MASK-6", "deviation", variant="uniform"),
        verdict("m:f", "masking-d", "MASK-6"),
        verdict("m:f", "scores-a", "SCORE-3", "deviation", reason=f"a scale of 0 is none{'.' * 90}"),
        verdict("m:f", "masking-e", "MASK-4", "fail"),
        verdict("m:f", "masking-f", "MASK-4", "deviation", variant="x"),
    ]
    write([write_run(tmp_path / "m-2026-01-01.jsonl", "m:f", judged=judged)], tmp_path / "out")
    (column,) = _columns(tmp_path / "out").values()
    # A rule that fails is not said to deviate.
    assert set(column["shown"]) == {"MASK-6", "SCORE-3"}
    assert column["shown"]["MASK-6"] == "nan: 2; uniform: 1"
    assert column["shown"]["SCORE-3"].startswith("a scale of 0 is none.")
    assert len(column["shown"]["SCORE-3"]) == 60
    page = (tmp_path / "out" / "m-f.html").read_text(encoding="utf-8")
    assert "deviation 3 of 4: nan: 2; uniform: 1</a>" in page


def test_the_rules_stand_beside_the_results(folder):
    text = (folder / "rules.html").read_text(encoding="utf-8")
    assert {rule.id for rule in rules()} <= set(_Page(folder / "rules.html").ids)
    assert "the output and the weights MUST be 0" in text
    assert "<code>query</code>" in text
    addresses = {rule[0]: rule[4] for rule in data_of(folder / "data" / "matrix.js")["rules"]}
    assert addresses == {rule.id: f"rules.html#{rule.id}" for rule in rules()}
    for path in folder.rglob("*.html"):
        assert "file:///" not in path.read_text(encoding="utf-8")
    assert (folder / "rules.html").stat().st_size < MOST
    assert data_of(folder / "data" / "rules.js") == {rule.id: rule.sentence for rule in rules()}


def test_the_search_of_a_folder_knows_its_rules_and_backends(folder):
    text = (folder / "_static" / "names.js").read_text(encoding="utf-8")
    names = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    found = {(kind, name): address for kind, name, _, address, *_ in names}
    assert found["rule", "MASK-6"] == "rules.html#MASK-6"
    assert found["library", "mine:f"] == "mine-f.html"
    for path in folder.rglob("*.html"):
        assert 'role="search"' in path.read_text(encoding="utf-8"), path


def test_the_page_of_a_part_of_the_suite_has_its_levels_last(tmp_path):
    path = write_run(tmp_path / "part.jsonl", part="quick")
    write([path, write_run(tmp_path / "whole.jsonl", "all:f")], tmp_path / "out")
    part = (tmp_path / "out" / "mine-f.html").read_text(encoding="utf-8")
    assert part.index('id="rules"') < part.index('id="levels"') < part.index("levels and their badges")
    assert "not reached" not in part
    assert "not determined" in part
    whole = (tmp_path / "out" / "all-f.html").read_text(encoding="utf-8")
    assert whole.index('id="levels"') < whole.index('id="rules"')
    assert "not reached" in whole


def test_a_part_of_the_suite_reaches_no_level(tmp_path):
    for part, reached in (("whole", True), ("quick", False)):
        path = write_run(tmp_path / f"{part}.jsonl", "good:f", judged=every_rule("good:f"), part=part)
        write([path], tmp_path / part)
        (column,) = _columns(tmp_path / part).values()
        assert set(column["letters"]) == {"p"}
        assert set(column["levels"]) == ({"p"} if reached else {"n"})


def test_a_case_of_the_plan_without_a_verdict_is_no_pass(tmp_path):
    path = write_run(tmp_path / "a.jsonl", judged=every_rule("mine:f"))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    left = [one for one in lines if "case-mask-1-" not in one or "header" in one]
    left[-1] = json.dumps({"footer": {"verdicts": len(left) - 3}}) + "\n"
    path.write_text("".join(left), encoding="utf-8")
    write([path], tmp_path / "out")
    (column,) = _columns(tmp_path / "out").values()
    assert column["letters"][[rule.id for rule in rules()].index("MASK-1")] == "n"
    assert set(column["levels"]) == {"n"}
    assert "not run" in (tmp_path / "out" / "mine-f.html").read_text(encoding="utf-8")


def test_the_newest_version_has_the_page_of_the_backend(folder):
    columns = _columns(folder)
    assert columns["mine-f-1.1-2026-02-05"]["page"] == "mine-f.html"
    assert columns["mine-f-1.0-2026-01-05"]["page"] == "runs/mine-f-1.0-2026-01-05.html"
    assert [one["newest"] for one in columns.values()].count(True) == 3
    assert "1.1" in _Page(folder / "mine-f.html").rawdata or "1.1" in (folder / "mine-f.html").read_text()


def test_versions_are_ordered_as_numbers_not_as_text(tmp_path):
    paths = [
        write_run(tmp_path / f"m-{version}-{day}.jsonl", version=version)
        for version, day in (("1.10", "2026-01-01"), ("1.9", "2026-03-01"))
    ]
    write(paths, tmp_path / "out")
    newest = [one["version"] for one in _columns(tmp_path / "out").values() if one["newest"]]
    assert newest == ["1.10"]


def test_portable_code_is_last_and_is_not_called_like_the_library(tmp_path):
    names = ("jax-portable", "mine:f", "torch-sdpa", "numpy-portable")
    paths = [write_run(tmp_path / f"{n}-2026-01-01.jsonl", name) for n, name in enumerate(names)]
    links = Links(rule=lambda rule: f"../rules/{rule}", library=lambda name: f"../libraries/{name}.html")
    columns = read_columns(paths)
    assert [one.backend for one in columns] == ["torch-sdpa", "mine:f", "numpy-portable", "jax-portable"]
    assert columns[-1].label == "portable code on JAX"
    assert columns[0].label == "torch-sdpa"
    pages = {name: page.body for name, page in files(columns, links) if name.endswith(".html")}
    front = pages["index.html"]
    assert "say nothing about the attention functions of the library" in front
    not_run = front[front.index("Not run: ") : front.index("No results of these backends")]
    assert '<a href="../libraries/jax-nn.html">jax-nn</a>' in not_run
    assert "torch-sdpa" not in not_run
    assert "portable" not in not_run
    page = pages["jax-portable.html"]
    assert "<h1>portable code on JAX</h1>" in page
    assert "say nothing about the attention" in page


def test_own_pages_do_not_list_the_backends_of_libraries(tmp_path):
    write([write_run(tmp_path / "m.jsonl")], tmp_path / "out")
    front = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "Not run" not in front
    assert "Portable code" not in front


def test_every_portable_backend_has_the_name_of_its_library(tmp_path):
    named = {"numpy": "NumPy", "strict": "array-api-strict", "dask": "Dask", "torch": "PyTorch", "jax": "JAX"}
    paths = [write_run(tmp_path / f"{n}-2026-01-01.jsonl", name) for n, name in enumerate(PORTABLE)]
    expected = {f"{library}-portable": f"portable code on {name}" for library, name in named.items()}
    assert {column.backend: column.label for column in read_columns(paths)} == expected


def test_names_that_give_one_address_get_addresses_of_their_own(tmp_path):
    names = ("m:f", "m-f", "M/f", "index", "..")
    paths = [write_run(tmp_path / f"{n}-2026-01-01.jsonl", name) for n, name in enumerate(names)]
    write(paths, tmp_path / "out")
    pages = [one["page"].lower() for one in _columns(tmp_path / "out").values()]
    assert len(set(pages)) == len(names)
    assert "Results by rule" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"out"}


def test_the_matrix_is_there_as_csv_and_json(folder):
    rows = list(csv.reader((folder / "matrix.csv").read_text(encoding="utf-8").splitlines()))
    at = rows[0].index("mine:f 1.0 2026-01-05")
    said = {row[0]: row[at] for row in rows[1:]}
    assert len(said) == len(rules())
    assert (said["MASK-1"], said["MASK-4"], said["MASK-2"]) == ("pass 2", "FAIL 1 of 1", "not run")
    assert (said["MASK-8"], said["INV-4"]) == ("unsupported", "not shown 1 of 1")
    by_level = list(csv.reader((folder / "levels.csv").read_text(encoding="utf-8").splitlines()))
    at = by_level[0].index("good:f 2.0 2026-02-07")
    assert {row[at] for row in by_level[1:]} == {"reached"}
    runs = json.loads((folder / "matrix.json").read_text(encoding="utf-8"))["runs"]
    mine = next(one for one in runs if one["version"] == "1.0")
    assert mine["rules"]["MASK-4"] == {"result": "fail", "cases": {"fail": 1}}
    assert mine["levels"]["masked"]["lacks"]["MASK-4"] == "fail"


def test_there_is_a_badge_for_each_backend_and_level(folder):
    badges = {path.name: path.read_text(encoding="utf-8") for path in (folder / "badges").iterdir()}
    assert len(badges) == 3 * len(levels())
    assert "reached" in badges["good-f-core.svg"]
    assert "not reached" in badges["mine-f-masked.svg"]
    for text in badges.values():
        ET.fromstring(text)


def test_the_feed_says_what_a_version_changed(folder):
    name = "{http://www.w3.org/2005/Atom}"
    text = (folder / "feed.xml").read_text(encoding="utf-8")
    entries = ET.fromstring(text).findall(f"{name}entry")
    assert [one.findtext(f"{name}updated")[:10] for one in entries] == [
        "2026-02-07",
        "2026-02-06",
        "2026-02-05",
        "2026-01-05",
    ]
    assert len({one.findtext(f"{name}id") for one in entries}) == 4
    changed = entries[2].findtext(f"{name}content")
    assert "MASK-4" in changed
    assert "fail \u2192 pass" in changed
    assert "MASK-6" not in changed
    for one in entries:
        assert (folder / one.find(f"{name}link").get("href")).is_file()


def test_shares_of_the_budget_are_drawn_by_dtype_and_size(folder):
    text = (folder / "runs" / "mine-f-1.0-2026-01-05.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 1
    assert "float32, 16 to 63 numbers: 2 calls, median 1.4, largest 2.5 in masking-c-float32, 1 over" in text
    assert "float32, 256 to 1023 numbers: 1 call, median 0.5, largest 0.5" in text
    assert text.count('class="over"') == 1


def test_thirty_backends_fit_into_small_files(tmp_path):
    paths = []
    for number in range(30):
        judged = [
            one
            for rule in rules()
            for one in (verdict(f"m{number}:f", f"{rule.chapter}-{rule.id}", rule.id, "fail"),)
        ]
        paths.append(write_run(tmp_path / f"m{number}-2026-01-01.jsonl", f"m{number}:f", judged=judged))
    write(paths, tmp_path / "out")
    files = [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".html", ".js", ".css")]
    assert len(files) > 90
    assert {path.name: path.stat().st_size for path in files if path.stat().st_size > MOST} == {}


def test_long_texts_do_not_make_large_pages(tmp_path):
    judged = [
        verdict("m:f", f"c{number}", rule.id, "fail", reason="x" * 50_000)
        for rule in rules()
        for number in range(3)
    ]
    write([write_run(tmp_path / "m.jsonl", "m:f", judged=judged)], tmp_path / "out")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {name: size for name, size in sizes.items() if size > MOST and name != "matrix.json"} == {}


def test_a_folder_of_an_installation_is_not_shown(tmp_path):
    said = verdict(
        "m:f", "c", "MASK-1", "fail", reason="at /home/me/env/lib/python3.11/site-packages/torch/a.py"
    )
    write([write_run(tmp_path / "m.jsonl", "m:f", judged=[said])], tmp_path / "out")
    (data,) = [path for path in (tmp_path / "out" / "data").iterdir() if path.name.startswith("m-f")]
    (example,) = data_of(data)["cells"]["MASK-1"]["examples"]
    assert example["said"][0] == "at site-packages/torch/a.py"


def test_no_results_are_an_error(tmp_path):
    with pytest.raises(SpecError, match="expected the results of a backend, got none"):
        write([], tmp_path)


def test_the_command_writes_the_pages(tmp_path, monkeypatch):
    path = write_run(tmp_path / "run.jsonl")
    summary, told = tmp_path / "summary.md", tmp_path / "report.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for name, text in (("SERVER_URL", "https://github.com"), ("REPOSITORY", "a/b"), ("RUN_ID", "7")):
        monkeypatch.setenv(f"GITHUB_{name}", text)
    ran = CliRunner().invoke(main, ["report", str(path), "--html", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "out" / "index.html").is_file()
    text = summary.read_text(encoding="utf-8")
    assert "`mine:f`" in text
    assert "[artifacts of this run](https://github.com/a/b/actions/runs/7#artifacts)" in text
    summary.unlink()
    asked = ["report", str(path), "--html", str(tmp_path / "out"), "--markdown", str(told)]
    assert CliRunner().invoke(main, asked).exit_code == 0
    assert "out/index.html" in told.read_text(encoding="utf-8")
    assert not summary.exists()


def test_check_writes_the_pages_too(tmp_path):
    out, told = tmp_path / "out", tmp_path / "told.md"
    asked = [
        "check",
        "numpy",
        "--case",
        "masking-empty-last-float32",
        "--html",
        str(out),
        "--markdown",
        str(told),
    ]
    ran = CliRunner().invoke(main, asked)
    assert ran.exit_code == 0, ran.output
    (column,) = data_of(out / "data" / "matrix.js")["columns"]
    assert column["backend"] == "numpy-portable"
    assert set(column["levels"]) == {"n"}
    assert f"{out.as_posix()}/index.html" in told.read_text(encoding="utf-8")


def test_a_wrong_file_is_one_line(tmp_path):
    path = tmp_path / "wrong.jsonl"
    path.write_text('{"verdict": {}}\n', encoding="utf-8")
    ran = CliRunner().invoke(main, ["report", str(path), "--html", str(tmp_path / "out")])
    assert ran.exit_code == 2
    assert "line 1" in ran.output
    assert not (tmp_path / "out").exists()
