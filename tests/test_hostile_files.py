"""Each command ends a hostile file or argument with one line, and is never green without cases."""

import gzip
import json
import lzma
import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt
from reported import ERROR, FAIL, PASS, SUBJECT
from tests_support import attnspec, command, pairs

from attnspec import __version__, find_case
from attnspec.backends import BackendError
from attnspec.conformance import results_file
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.render.formats import FORMATS
from attnspec.conformance.results import Footer, Header, line
from attnspec.conformance.results_file import read
from attnspec.golden import write_cases

#: Levels of nesting, and digits of a number.
DEEP = 100_000
#: Memory in octets that a command may take beside what this process has.
MEMORY = 2**31
RESULTS = line("header", Header("1", "whole", cases=(PASS.case,)))
CHECK = "check numpy-portable --case softmax-000-float64"
#: A reader to the file that it reads, the words of its command, and the notation of the file.
READERS = {
    "table": ("r.jsonl", "table r.jsonl", "lines"),
    "report": ("r.jsonl", "report r.jsonl --html pages", "lines"),
    "compare": ("r.jsonl", "compare r.jsonl r.jsonl", "lines"),
    "resume": ("r.jsonl", f"{CHECK} --resume --results r.jsonl", "lines"),
    "known failures": ("known.toml", f"{CHECK} --known-failures known.toml", "toml"),
    "configuration": ("attnspec.toml", "check .", "toml"),
    "project": ("pyproject.toml", "check .", "toml"),
    "case": ("case.json", "check numpy-portable --case case.json", "json"),
    "manifest": ("manifest.json", "judge .", "json"),
    "answers": ("answers.jsonl", "judge .", "lines"),
    "hello": ("hello.json", "export calls --hello hello.json", "lines"),
}
#: A kind of content to the text in each notation.
TEXTS = {
    "another thing": {"lines": "3\n", "toml": "[x]\n", "json": "3"},
    "no text": {"lines": "\ud800\n", "toml": "\ud800", "json": "\ud800"},
    "a deep list": dict.fromkeys(("lines", "json"), "[" * DEEP + "]" * DEEP + "\n")
    | {"toml": "[tool.attnspec]\na = " + "[" * DEEP + "]" * DEEP},
    "a deep object": dict.fromkeys(("lines", "json"), '{"header":' * DEEP + "1" + "}" * DEEP + "\n")
    | {"toml": "[tool.attnspec]\na = " + "{a = " * DEEP + "1" + "}" * DEEP},
    "a key twice": {
        "lines": RESULTS.replace('{"header": {', '{"header": {"attnspec": "0", ', 1),
        "json": '{"cases": [], "cases": []}',
        "toml": "[tool.attnspec]\n[backend]\n[backend]\n",
    },
    "a number of many digits": dict.fromkeys(("lines", "json"), "9" * DEEP + "\n")
    | {"toml": "[tool.attnspec]\na = " + "9" * DEEP},
    "escape codes": {
        "lines": '{"\\u001b[31m\\u009b": {}}\n',
        "json": '{"cases": [{"id": "\\u001b[31m"}]}',
        "toml": '["tool.attnspec"."\\u001b[31m"]\n',
    },
}


def make_text(kind, notation):
    def make(path):
        path.write_bytes(TEXTS[kind][notation].encode(errors="surrogatepass"))

    return make


def make_large(path):
    with path.open("wb") as file:
        file.truncate(2**40)


#: What a file may be that is no text.
PLACES = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a hole of a tebibyte": make_large,
}


@pytest.fixture
def limited():
    """Limit the memory of this process and of those that it starts."""
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def refused(words, capfd):
    """Run a command that ends with one line on an error, and return what it prints."""
    run = command(*words)
    text = run.output + "".join(capfd.readouterr())
    assert isinstance(run.exception, SystemExit), run.exception
    assert run.exit_code != 0, text
    assert "Traceback" not in text
    assert "\x1b" not in text
    assert len(text) < 3000
    return text


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited on Linux only")
@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("kind", [*TEXTS, *PLACES])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.sample(25)
def test_a_hostile_file_is_refused_in_one_line(reader, kind, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    name, words, notation = READERS[reader]
    if reader == "answers":
        manifest = {"attnspec": __version__, "part": "chosen", "dtypes": ["float64"], "operations": {}}
        Path("manifest.json").write_text(json.dumps(manifest | {"cases": [], "calls": []}))
    (PLACES.get(kind) or make_text(kind, notation))(tmp_path / name)
    refused(words.split(), capfd)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited on Linux only")
@pytest.mark.usefixtures("limited")
@pytest.mark.exhaustive
@pytest.mark.parametrize(("suffix", "compressed"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_a_bomb_is_refused_in_one_line(suffix, compressed, tmp_path, capfd):
    path = tmp_path / f"r.jsonl{suffix}"
    path.write_bytes(compressed(b"\n" * (results_file.MOST + 1)))
    assert "expands to more than" in refused(["table", str(path)], capfd)


#: What a tensor of a case may say of itself that its numbers do not bear out.
LIES = {
    "a large shape": {"shape": [2**40, 2**20]},
    "a negative length": {"shape": [-1]},
    "other numbers": {"data": [1.0]},
    "no dtype": {"dtype": "float99"},
    "objects": {"dtype": "object"},
}


@pytest.mark.usefixtures("limited")
@pytest.mark.parametrize("lie", LIES)
def test_a_case_that_lies_about_an_array_is_refused_in_one_line(lie, tmp_path, capfd):
    path = tmp_path / "case.json"
    write_cases([find_case("softmax-000")], path)
    document = json.loads(path.read_text())
    document["cases"][0]["arguments"]["query"].update(LIES[lie])
    path.write_text(json.dumps(document))
    refused(["check", "numpy-portable", "--case", str(path)], capfd)


#: Names of a backend and a case, and a message, that act if they are not quoted.
NAMES = (
    "../../escaped",
    "/escaped",
    "..",
    "nul\0",
    "\x1b[31m\x9b31m\u202e",
    "<script>alert(1)</script>",
    "'\"><svg onload=alert(1)>",
    "]]><x/>&lol;",
    "![x](javascript:alert(1)) | `x`",
    "[red]x[/red]",
    "x" * 5000,
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sample(3)
def test_a_name_does_nothing_in_any_report(name, tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    path = inner / "r.jsonl"
    raised = replace(ERROR.raised, type=name, message=name, file=name, function=name)
    verdicts = [
        replace(FAIL, backend=name, case=name, group=name),
        replace(ERROR, backend=name, raised=raised),
    ]
    cases = tuple(verdict.case for verdict in verdicts)
    lines = [line("header", Header("1", "whole", cases=cases))]
    lines += [line("subject", replace(SUBJECT, name=name, library=name, version=name))]
    path.write_text("".join([*lines, *(line("verdict", x) for x in verdicts), line("footer", Footer(2))]))
    report = Report(read([path]))
    texts = {each.function: each.write(report) for each in FORMATS}
    for words in (["table", str(path)], ["compare", str(path), str(path)]):
        texts[words[0]] = command(*words).output
    command("report", path, "--html", inner / "pages", status=0)
    pages = {page.name: page.read_text() for page in (inner / "pages").rglob("*.html")}
    for place, text in (texts | pages).items():
        assert not {"\x1b", "\x9b", "\u202e", "\0"} & set(text), place
    markdown = MarkdownIt("commonmark").enable("table").render(texts["markdown:to_markdown"])
    for place, text in ({"markdown": markdown} | pages).items():
        assert not any(part in text for part in ("<script>alert", "<svg onload", "<x/>")), place
    assert "<img" not in markdown
    for place in ("junit:to_junit", "badge:to_svg"):
        tags = {each.tag.rpartition("}")[2] for each in ET.fromstring(texts[place]).iter()}
        assert not tags & {"script", "x"}, place
    outside = {each.name for each in tmp_path.rglob("*") if inner not in (each, *each.parents)}
    assert outside == {"a"}, "no name is a path"
    assert not Path("/escaped").exists()


CASE = "softmax-000-float64"

#: Words of the command, in a folder with a file and a module in it, to what is said.
COMMANDS = pairs("commands")


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.sample(8)
def test_what_a_command_may_be(words, here, capfd):
    (here / "file").write_text("no file of ours")
    os.mkfifo(here / "pipe.py")
    (here / "broken.json").write_text('{"verdict": ')
    (here / "kernel.py").write_text("def f(query, key, value):\n    return query\n")
    results = here / "kept.jsonl"
    results.write_text("of the run before")
    given = [word.strip("'") for word in words.split()] if "'" in words else words.split()
    if words.startswith("check ") and "--results" not in words:
        given += ["--results", str(results)]
    run = command(*given)
    told = run.output + "".join(capfd.readouterr())
    assert run.exit_code not in (0, None)
    assert isinstance(run.exception, SystemExit), run.exception
    assert COMMANDS[words] in told
    assert "Traceback" not in told
    if run.exit_code == 2:
        assert results.read_text() == "of the run before", "a wrong command costs nothing"


#: Surroundings in which a right implementation is judged right, and one whose message is odd is judged wrong.
SURROUNDINGS = {
    "warnings are errors": {"PYTHONWARNINGS": "error"},
    "no assertions": {"PYTHONOPTIMIZE": "2"},
    "no letters but those of English": {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    "a narrow terminal": {"COLUMNS": "10"},
    "no home": {"HOME": "/nowhere", "TMPDIR": "/nowhere"},
    "pytest's plugins": {"PYTEST_PLUGINS": "absent_plugin", "PYTEST_ADDOPTS": "-k nothing --trace"},
}


@pytest.mark.parametrize("kind", SURROUNDINGS)
@pytest.mark.sample(3)
def test_what_surroundings_may_be(kind, tmp_path):
    results = tmp_path / "r.jsonl"
    words = ["hostile:right", "hostile:raising_surrogates", "--case", CASE, "--results", results]
    run = attnspec("check", *words, status=1, **SURROUNDINGS[kind])
    assert "Traceback" not in run.stderr
    assert [verdict.status for verdict in read([results]).verdicts] == ["pass", "error"]


@pytest.mark.parametrize(("name", "status"), [("interrupting_the_parent", 130), ("ending_the_parent", 143)])
def test_a_call_that_ends_the_run_does_not_end_it_well(name, status, tmp_path):
    results, markdown = tmp_path / "r.jsonl", tmp_path / "m.md"
    words = [f"hostile:{name}", "--case", CASE, "--results", results, "--markdown", markdown]
    run = attnspec("check", *words, status=status)
    assert "the run was cut off" in run.stdout
    assert len(results.read_text().splitlines()) == 2, "the plan and the subject"
    assert "not" in markdown.read_text().splitlines()[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_results_that_cannot_be_written_cost_neither_the_run_nor_the_table():
    run = attnspec("check", "hostile:right", "--case", CASE, "--results", "/dev/full")
    assert run.returncode != 0
    assert "hostile:right: passes" in run.stdout
    assert "No space left" in run.stderr


def test_a_reader_that_goes_away_is_no_success_of_nothing(tmp_path):
    results, markdown = tmp_path / "r.jsonl", tmp_path / "m.md"
    reading, writing = os.pipe()
    os.close(reading)
    words = ["hostile:interrupting", "--case", CASE, "--results", results, "--markdown", markdown]
    run = attnspec("check", *words, stdout=writing)
    os.close(writing)
    assert run.returncode != 0
    assert "Traceback" not in run.stderr
    assert [verdict.status for verdict in read([results]).verdicts] == ["error"]
    assert markdown.read_text().startswith("## attnspec: does not conform")


def test_the_list_of_backends_eats_no_brackets(monkeypatch):
    def load(name):
        raise BackendError(f"backend {name}: expected it to be there; pip install 'attnspec[torch]'")

    monkeypatch.setattr("attnspec.backends.load", load)
    assert "attnspec[torch]" in command("backends").output
