"""External text in reports: it has no effect, and its length is limited."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from attnspec.backends import BackendError
from attnspec.conformance.cli.main import main
from attnspec.conformance.judge.failure import Raised
from attnspec.conformance.outside import cut, one_line, plain
from attnspec.conformance.results_file import read

KERNEL = """
import sys

MESSAGE = "\\x1b[31m\\x1b]8;;http://x\\x07 [red]x[/] [a](http://y) <script> \\udc80 \\u202e \\r"
MESSAGE += "long " * {times}

class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")

def attention(query, key, value, *, mask=None):
    print(MESSAGE[:100].encode(errors="replace"))
    raise {error}
"""


def check(folder, *words, times=1, error="ValueError(MESSAGE)", **environment):
    (folder / "odd_kernel.py").write_text(KERNEL.format(times=times, error=error))
    command = [sys.executable, "-m", "attnspec.conformance.cli.main", "check", "odd_kernel:attention"]
    command += ["--case", "masking-empty-last", "--case", "errors-named-in-the-error-attention-1-float32"]
    command += ["--results", "r.jsonl", *words]
    environment = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, check=False, cwd=folder, env=environment)


def test_a_message_of_50_megabytes_is_cut_before_it_is_kept(tmp_path):
    run = check(tmp_path, times=10_000_000)
    assert run.returncode == 1
    assert (tmp_path / "r.jsonl").stat().st_size < 60_000
    assert len(run.stdout) < 20_000
    assert b"characters more" in run.stdout


def test_an_exception_that_has_no_text_is_one_all_the_same(tmp_path):
    assert Raised(BackendError("x" * 5000)).data.message == "x" * 4000 + "... and 1000 characters more"

    class Odd(Exception):  # noqa: N818
        def __str__(self):
            raise RuntimeError

    assert Raised(Odd()).data.message == "a message that cannot be read"


def test_a_terminal_that_has_few_letters(tmp_path):
    run = check(tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert run.returncode == 1
    assert b"MASK-6" in run.stdout
    assert b"Traceback" not in run.stderr


def test_reports_are_written_though_nobody_reads_the_table(tmp_path):
    (tmp_path / "odd_kernel.py").write_text(KERNEL.format(times=1, error="ValueError('no')"))
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "attnspec.conformance.cli.main", "check", "odd_kernel:attention"]
    command += ["--case", "masking-empty-last", "--markdown", "m.md"]
    run = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False, cwd=tmp_path)
    os.close(write_end)
    assert run.returncode != 0
    assert (tmp_path / "m.md").read_text().startswith("## attnspec: does not conform")


def test_the_list_of_backends_eats_no_brackets(monkeypatch):
    import attnspec.backends as module

    def load(name):
        raise BackendError(f"backend {name}: expected it to be there; pip install 'attnspec[torch]'")

    monkeypatch.setattr(module, "load", load)
    assert "attnspec[torch]" in CliRunner().invoke(main, ["backends"]).output


WRONG = [b"", b"\xff\xfe", b"null", b"[1]", b"{", b"[" * 100_000, b'{"calls": 1}', b"\x00" * 64]


@pytest.mark.parametrize("content", WRONG)
@pytest.mark.parametrize(
    "words",
    [
        ["table", "f"],
        ["compare", "f", "f"],
        ["check", "numpy-portable", "--case", "softmax-000", "--known-failures", "f"],
        ["judge", "folder"],
    ],
    ids=lambda words: words[0],
)
def test_malformed_files_are_one_line(words, content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("f", "folder/hello.json", "folder/calls.jsonl", "folder/answers.jsonl"):
        (tmp_path / name).write_bytes(content)
    run = CliRunner().invoke(main, words)
    if words[0] == "check" and content == b"":
        assert run.exit_code == 0, "a file without entries is one"
        return
    assert run.exit_code in (2, 3), run.output
    assert isinstance(run.exception, SystemExit), run.exception
    assert len(run.output.splitlines()) == 1
    assert len(run.output) < 1000
    assert plain(run.output) == run.output


def test_one_line_of_many():
    assert one_line("a\n\x1b[1mb\tc") == "a \ufffd[1mb c"
    assert len(one_line("x" * 10**7)) < 2100
    assert cut("x" * 2000) == "x" * 2000


def test_results_keep_what_a_kernel_said(tmp_path):
    check(tmp_path)
    raised = [one.raised for one in read([tmp_path / "r.jsonl"]).verdicts if one.raised]
    assert raised
    assert all("[red]x[/]" in one.message for one in raised)
