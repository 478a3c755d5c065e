"""The commands that write the pages of results."""

from click.testing import CliRunner
from html_results import data_of, write_run

from attnspec.conformance.cli.main import main


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
