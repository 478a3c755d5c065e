"""Notebooks for Jupyter, made of the examples of pages of the standard: their text, code and output."""

import doctest
import re
from pathlib import Path
from typing import Any

#: The notebooks: name, page, and the heading of the section. The first example of the page comes before.
_SECTIONS = (
    ("000", "notebooks", "## 000:"),
    ("001", "notebooks", "## 001:"),
    ("002", "notebooks", "## 002:"),
    ("003", "notebooks", "## 003:"),
    ("004", "notebooks", "## 004:"),
    ("merging", "recipes", "### Two chunks"),
)
_BLOCK = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[((?:[^][`]|`[^`]*`)+)\](?:\([^()\s]*\)|\[[^][]*\])?")


def notebooks(root: Path) -> dict[str, dict[str, Any]]:
    """Return the notebooks by their names."""
    made = {}
    for name, page, heading in _SECTIONS:
        text = (root / "spec" / f"{page}.md").read_text(encoding="utf-8")
        level = heading.partition(" ")[0]
        begin = text.index(f"\n{heading}") + 1
        end = re.compile(rf"^#{{2,{len(level)}}} ", re.MULTILINE).search(text, begin + len(heading))
        section = text[begin : end.start() if end else len(text)]
        first = _BLOCK.search(text)
        cells = [*_code(first[1] if first else ""), *_cells(section)]
        made[name] = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "cells": [{"id": f"{name}-{place}", **cell} for place, cell in enumerate(cells)],
        }
    return made


def _cells(section: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = []
    last = 0
    for match in _BLOCK.finditer(section):
        cells += [*_prose(section[last : match.start()]), *_code(match[1])]
        last = match.end()
    return [*cells, *_prose(section[last:])]


def _prose(text: str) -> list[dict[str, Any]]:
    """Return a text without links, whose targets a notebook does not have."""
    text = re.sub(r"^\[[^][\n]+\]: \S+$", "", text, flags=re.MULTILINE)
    text = _LINK.sub(r"\1", text).strip()
    return [{"cell_type": "markdown", "metadata": {}, "source": text}] if text else []


def _code(text: str) -> list[dict[str, Any]]:
    """Return the examples of a block. A cell ends where something is shown."""
    cells = []
    lines: list[str] = []
    for example in doctest.DocTestParser().get_examples(text):
        lines.append(example.source.rstrip("\n"))
        if example.want:
            cells.append(_cell(lines, example))
            lines = []
    return [*cells, *([_cell(lines)] if lines else [])]


def _cell(lines: list[str], example: doctest.Example | None = None) -> dict[str, Any]:
    source = re.sub(r"  # doctest:.*", "", "\n".join(lines))
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "source": source, "outputs": []}
    if example and example.exc_msg:
        name, _, value = example.exc_msg.strip().partition(": ")
        error = {"output_type": "error", "ename": name.rpartition(".")[2], "evalue": value, "traceback": []}
        return cell | {"metadata": {"tags": ["raises-exception"]}, "outputs": [error]}
    if example:
        data = {"text/plain": example.want.rstrip("\n")}
        shown = {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}
        return cell | {"outputs": [shown]}
    return cell
