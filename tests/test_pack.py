"""The pack: it is what the command writes, catches what it says, and is read in four languages."""

import json
import shutil
import subprocess
import sys
from functools import wraps
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from attnspec import reference
from attnspec.conformance.export.pack import MOST_OCTETS, catches_of, read_selection, write_pack
from attnspec.conformance.gallery import entry
from attnspec.conformance.gallery.kills import read_kills
from tools.pack import kills_of, reader

PACK = Path(__file__).parent.parent / "spec" / "pack"
MANIFEST = json.loads((PACK / "manifest.json").read_text())
SELECTION = read_selection()
ORDINARY = [name for name, kill in read_kills().items() if kill.ordinary]
SOURCES = Path(__file__).parent / "sources"
KERNEL = (SOURCES / "kernel.mjs").read_text(encoding="utf-8")


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def test_the_pack_is_what_the_command_writes(tmp_path):
    write_pack(tmp_path)
    stale = "the pack is stale: attnspec vectors pack spec/pack"
    names = {path.name for path in tmp_path.iterdir()}
    assert names - {"cases.txt", "manifest.json"} <= {path.name for path in PACK.iterdir()}, stale
    for name in names - {"cases.txt", "manifest.json"}:
        assert (tmp_path / name).read_bytes() == (PACK / name).read_bytes(), f"{name}: {stale}"
    # The first line has the version at which the pack was written.
    mine, stored = ((folder / "cases.txt").read_text().splitlines()[1:] for folder in (tmp_path, PACK))
    assert mine == stored, stale


def test_the_manifest_describes_the_files():
    files = MANIFEST["files"]
    texts = {"cases.txt", "rules.txt", "operations.txt", "bugs.txt"}
    assert {*files} == {path.name for path in PACK.glob("*.bin")} | texts
    for name, file in files.items():
        data = (PACK / name).read_bytes()
        assert file == {"octets": len(data), "sha256": sha256(data).hexdigest()}
    assert sum(path.stat().st_size for path in PACK.iterdir()) <= MOST_OCTETS


def test_the_pack_catches_nearly_all_that_the_ordinary_run_kills():
    caught = catches_of(SELECTION)
    assert caught <= set(ORDINARY)
    assert not caught & {*SELECTION.left}
    assert len(caught) >= 0.95 * len(ORDINARY)
    related = [name for name, reason in SELECTION.left.items() if reason == "repeated or related calls"]
    assert len(caught) >= 0.98 * (len(ORDINARY) - len(related)), "those that single calls can show"
    assert {line.split()[0] for line in (PACK / "bugs.txt").read_text().splitlines()} == caught


@pytest.mark.parametrize("part", range(8))
@pytest.mark.sample(2)
def test_each_bug_is_caught_by_the_case_that_says_so(part):
    judge = reader()
    for number, case in enumerate(judge.read(PACK)):
        if number % 8 == part:
            names = [name for name in case["catches"] if sum(map(ord, name)) % 4 == 0]  # a fourth of them
            assert {*kills_of(case, map(entry, names), judge)} == {*names}, case["name"]


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
def test_a_kernel_in_c_judges_itself(tmp_path):
    for words, status in (((), 0), (("-DLATE",), 1)):
        made = tmp_path / "made"
        build = ["cc", "-std=c99", "-O1", "-I", PACK, *words, "-o", made, PACK / "judge.c", "-lm"]
        subprocess.run(build, check=True)
        ended = run(str(made), str(PACK))
        assert ended.returncode == status, ended.stdout
        assert ("MASK-3" in ended.stdout) == bool(words)
    failing = [line.split(": ")[1].partition("[")[0] for line in ended.stdout.splitlines()[:-1]]
    (tmp_path / "known.txt").write_text("".join(f"{name} # late\n" for name in failing))
    again = run(str(made), str(PACK), str(tmp_path / "known.txt"))
    assert (again.returncode, " 0 fail, " in again.stdout) == (0, True), again.stdout


@pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler")
def test_the_header_is_read_in_cpp(tmp_path):
    strict = ("-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wno-unused-function")
    build = ["c++", *strict, "-I", str(PACK), "-o", str(tmp_path / "read"), str(SOURCES / "read.cpp")]
    subprocess.run(build, check=True)
    assert run(str(tmp_path / "read"), str(PACK)).stdout == str(MANIFEST["cases"])


@pytest.mark.skipif(not shutil.which("node"), reason="there is no node")
def test_a_kernel_in_javascript_is_judged(tmp_path):
    for late, status in (("0", 0), ("1", 1)):
        (tmp_path / "kernel.mjs").write_text(KERNEL.replace("LATE", late))
        ended = run("node", str(PACK / "judge.mjs"), "./kernel.mjs", "float64", cwd=tmp_path)
        assert ended.returncode == status, ended.stdout + ended.stderr
        assert ("MASK-3" in ended.stdout) == bool(status)


def test_the_reader_in_python_needs_numpy_alone(tmp_path):
    text = (
        "import numpy as np\n"
        "def attention(query, key, value, *, is_causal=False):\n"
        "    fits = query.shape[:-2] == key.shape[:-2] and query.shape[-1:] == key.shape[-1:]\n"
        "    fits = fits and key.shape[:-1] == value.shape[:-1] and key.size and query.dtype == 'float64'\n"
        "    if not fits: raise NotImplementedError\n"
        "    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])\n"
        "    open_keys = np.tri(*scores.shape[-2:], k=LATE, dtype=bool)\n"
        "    if is_causal: scores = np.where(open_keys, scores, -np.inf)\n"
        "    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))\n"
        "    return weights / weights.sum(axis=-1, keepdims=True) @ value\n"
    )
    script = "import sys, runpy; sys.modules['attnspec'] = None; "
    script += "runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    for late, fails in (("0", False), ("1", True)):
        (tmp_path / "mine.py").write_text(text.replace("LATE", late))
        # Without -B, a file that is written twice in a second would be read from the cache.
        words = ("-B", "-W", "ignore", "-c", script, str(PACK / "judge.py"), "mine", "float64")
        ended = run(sys.executable, *words, cwd=tmp_path)
        assert ended.stdout, ended.stderr
        assert ("MASK-3" in ended.stdout) == fails, ended.stdout


@pytest.mark.parametrize(("error", "status"), [
    (ValueError("no"), "SHOULD not met"),
    (ValueError("scale"), "pass"),
    (NotImplementedError(), "pass"),
])  # fmt: skip
def test_a_rejection_without_a_name_breaks_a_should_alone(monkeypatch, capsys, error, status):
    """An error that declines the call counts as a rejection."""

    def attention(query, key, value, *, scale=None):
        raise error

    judge = reader()
    case = next(x for x in judge.read(PACK) if x["rejection"] == "must" and x["at_fault"] == ["scale"])
    assert case["rules"][0][1] == "MUST"
    monkeypatch.setattr(judge, "read", lambda: [case])
    monkeypatch.setitem(sys.modules, "rejecting_kernel", SimpleNamespace(attention=attention))
    judge.main("rejecting_kernel", case["dtypes"][0])
    assert f"{status!r}: 1" in capsys.readouterr().out


def test_a_result_may_be_an_argument_which_the_next_call_overwrites(monkeypatch, capsys):
    """A function may return an array that it does not change (NUM-4), and no result that it has returned."""
    judge, returned = reader(), []
    cases = [x for x in judge.read(PACK) if x["operation"] == "rotary" and "float32" in x["dtypes"]]
    monkeypatch.setattr(judge, "read", lambda: cases)

    @wraps(reference.rotary)
    def rotary(features, **options):
        result = reference.rotary(features, **options, dtype=features.dtype)
        if np.array_equal(result, features):
            returned.append(features)
            return features
        return result

    monkeypatch.setitem(sys.modules, "sharing_kernel", SimpleNamespace(rotary=rotary))
    assert judge.main("sharing_kernel", "float32") == 0, capsys.readouterr().out
    assert returned

    kept = {}

    @wraps(reference.rotary)
    def of_one_buffer(features, **options):
        result = kept.setdefault(features.shape, np.empty_like(features))
        result[...] = reference.rotary(features, **options, dtype=features.dtype)
        return result

    monkeypatch.setitem(sys.modules, "keeping_kernel", SimpleNamespace(rotary=of_one_buffer))
    assert judge.main("keeping_kernel", "float32") == 1
    assert "expected the results of the call before to be unchanged" in capsys.readouterr().out


#: Lists of the two best of five keys for two queries, with the places of the best as `a` to `d`.
RIGHT, WRONG_LISTS = "b a d c", ("a a c c", "a -1 c d", "a 5 c d", "a b -1 c d -1")


@pytest.mark.skipif(not shutil.which("cc") or not shutil.which("node"), reason="no C compiler or node")
def test_every_reader_judges_lists_of_keys(tmp_path):
    judge = reader()
    case = next(case for case in judge.read(PACK) if case["name"] == "selection-plain-float16")
    best = np.argsort(-case["arrays"]["scores"][1], axis=-1)[:, :2].ravel()
    places = dict(zip("abcd", map(str, best), strict=True))
    build = ("cc", "-std=c99", "-I", PACK, "-o", tmp_path / "listed", SOURCES / "listed.c", "-lm")
    subprocess.run([*map(str, build)], check=True)
    script = f"import {{ judge, read }} from {json.dumps((PACK / 'judge.mjs').as_uri())};\n"
    script += """
const item = [...read()].find(({ name }) => name === "selection-plain-float16");
const data = process.argv.slice(2).map(Number), shape = [2, data.length / 2];
process.exitCode = Number(judge(item, () => ({ key_indices: { shape, data } }), "float32") !== "");
"""
    (tmp_path / "listed.mjs").write_text(script)
    for text in (RIGHT, *WRONG_LISTS):
        words = [places.get(word, word) for word in text.split()]
        lists = np.array(words, dtype="int64").reshape(2, -1)
        problem = judge.judge(case, lambda scores, *, top_k, lists=lists: lists, "float32")  # noqa: ARG005 - the call
        right = text == RIGHT
        assert (problem == "") == right, text
        assert (run(str(tmp_path / "listed"), str(PACK), *words).returncode == 0) == right, text
        assert (run("node", str(tmp_path / "listed.mjs"), *words).returncode == 0) == right, text
