"""The progress of a run: one line on a terminal that is cleared, and few lines in a log."""

import io
import os
import shutil
import sys

import pytest

from attnspec.conformance.run import run as progress
from attnspec.conformance.run.run import Progress


@pytest.fixture
def told(monkeypatch):
    """What is written while 1000 cases are judged, one each tenth of a second."""

    def judge(*, terminal, name="m:f", columns=60):
        written = io.StringIO()
        written.isatty = lambda: terminal
        clock = iter(number / 10 for number in range(10_000))
        monkeypatch.setattr(sys, "stderr", written)
        monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
        monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
        # What stands in a default is looked up when the class is made.
        one = Progress(name, 1000, _started=0.0, _said=0.0)
        for number in range(1000):
            one.add(failing=number % 100 == 99)
        one.end()
        return written.getvalue()

    return judge


def test_one_line_of_a_terminal_is_written_over_and_cleared(told):
    text = told(terminal=True)
    assert "\n" not in text
    lines = text.split("\r")
    assert max(map(len, lines)) <= 60
    assert any("100 of 1000 cases judged" in line for line in lines)
    assert any("5 failing" in line and line.rstrip().endswith(", after 50 s") for line in lines)
    assert lines[-1] == ""
    assert lines[-2].strip() == ""
    assert len(lines[-2]) == len(lines[-3])


def test_a_log_has_few_lines_and_no_control_characters(told):
    text = told(terminal=False)
    assert "\r" not in text
    assert 2 <= len(text.splitlines()) <= 5


def test_a_long_name_leaves_room_for_the_numbers(told):
    text = told(
        terminal=True, name="my_project.kernels.attention:forward?array=torch&device=cuda", columns=80
    )
    assert ", after 2 s" in text
    assert "my_project.kernels.attentio..." in text


def test_no_time_is_promised(told):
    """The last cases take a hundred times as long as the first, and most may be unsupported."""
    for terminal in (True, False):
        assert "left" not in told(terminal=terminal)


def test_a_run_that_is_over_at_once_clears_nothing(monkeypatch):
    written = io.StringIO()
    written.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", written)
    one = Progress("m:f", 1)
    one.add(failing=False)
    one.end()
    assert written.getvalue() == ""
