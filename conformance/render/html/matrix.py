"""The matrix of rules by backend and version: its page, and its data for the scripts."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from attnspec import __version__, levels, rules
from attnspec.backends.names import PORTABLE
from attnspec.conformance.render.html.cases import run_length
from attnspec.conformance.render.html.column import Column
from attnspec.conformance.render.html.folder import newest, page_of
from attnspec.conformance.render.html.marks import MARKS
from attnspec.conformance.render.html.page import Links, frame, link
from attnspec.conformance.render.html.portable import NOTE, without_run

SCRIPTS = ("shared.js", "detail.js")


def matrix_data(columns: Sequence[Column], links: Links) -> dict[str, Any]:
    """Return the rules, the levels and the letters of all columns, as JSON."""
    known = rules()
    number = {rule.id: index for index, rule in enumerate(known)}
    latest = {one.slug for one in newest(columns)}
    return {
        "standard": __version__,
        "marks": [[mark.letter, mark.symbol, mark.name, mark.text] for mark in MARKS],
        "rules": [[one.id, one.level, one.chapter, one.title, links.rule(one.id)] for one in known],
        "levels": [
            {
                "name": one.name,
                "rules": [number[rule] for rule in one.rules],
                "offered": [number[rule] for rule in one.where_offered],
                "on": one.builds_on,
                "accuracy": one.accuracy,
            }
            for one in levels()
        ],
        "columns": [
            {
                "slug": one.slug,
                "backend": one.backend,
                "label": one.label,
                "library": one.library,
                "version": one.version,
                "date": one.date,
                "attnspec": one.attnspec,
                "part": one.part,
                "headline": one.headline,
                "newest": one.slug in latest,
                "page": page_of(one, columns),
                "letters": "".join(one.letters[rule.id] for rule in known),
                "levels": "".join(one.letter_of_level(level.name) for level in levels()),
                "bad": [_not_holding(one, rule.id) for rule in known],
                "judged": [_judged(one, rule.id) for rule in known],
                "shown": {rule: text for rule, text in one.shown.items() if one.letters[rule] == "d"},
            }
            for one in columns
        ],
    }


def column_data(column: Column, names: Sequence[str], links: Links) -> dict[str, Any]:
    """Return the cells of one column and the letters of its cases, as JSON."""
    about: dict[str, list[int]] = {}
    found = links.finding
    declared = {
        text.rpartition(" ")[2]
        for detail in column.details.values()
        for example in detail.get("examples", ())
        for text in example.get("declared", ())
        if "/" in text
    }
    letters = []
    for index, name in enumerate(names):
        letter, _, rule = column.cases.get(name, ".").partition(" ")
        letters.append(letter)
        if rule:
            about.setdefault(rule, []).append(index)
    return {
        "cells": column.details,
        "levels": {name: dict(one.missing) for name, one in column.standings.items()},
        "cases": run_length(letters),
        "about": {rule: _steps(found) for rule, found in about.items()},
        "notes": column.notes,
        "findings": {name: found(name) for name in sorted(declared)} if found else {},
    }


def matrix_page(columns: Sequence[Column], links: Links) -> str:
    """Return the page of the matrix. The table is made by its script; without it, links remain."""
    legend = "".join(
        f'<li><span class="k {mark.letter}" aria-hidden="true">{mark.symbol}</span> '
        f"<b>{escape(mark.name)}</b> {escape(mark.text)}</li>"
        for mark in reversed(MARKS)
    )
    signs = "".join(
        f'<li><span class="k {mark.letter}" aria-hidden="true">{mark.symbol}</span> '
        f"<b>{escape(mark.name)}</b>: {escape(mark.short)}</li>"
        for mark in reversed(MARKS)
    )
    pages = "".join(
        f'<li><a href="{escape(page_of(one, columns))}">{escape(one.title)}</a>: {escape(one.headline)}</li>'
        for one in newest(columns)
    )
    backends = len(newest(columns))
    return frame(
        "Results by rule and library",
        f"""<h1>Results by rule and library</h1>
<p class="lead">{len(rules())} rules, {backends} backend{"s" * (backends != 1)},
{len(columns)} run{"s" * (len(columns) != 1)}. A cell shows what was got, expected and allowed, and a script.
As data: <a href="matrix.csv">rules</a> and <a href="levels.csv">levels</a> as CSV,
<a href="matrix.json">all as JSON</a>.</p>
{_notes(columns, links)}
<ul class="signs" aria-label="Signs">{signs}</ul>
<form id="filters" class="filters" aria-label="Filters" hidden></form>
<p id="count" class="count" role="status"></p>
<div id="matrix" class="scroll"></div>
<aside id="detail" class="detail" aria-labelledby="detail-title" tabindex="-1" hidden></aside>
<h2 id="legend">Legend</h2>
<ul class="legend">{legend}</ul>
<p>Only judged cases count: a pass means that every judged case of the rule passed. A level that is reached
has the mark of a pass. Otherwise its mark is that of the gravest result among the rules that it lacks, or
<i>not offered</i> if its own rules are not offered.</p>
<p>Move in the table with the arrow keys, open a cell with Enter and close it with Escape. The address of the
page contains the filters and the open cell.</p>
<h2 id="backends">Backends</h2>
<ul class="backends">{pages}</ul>
""",
        home=links.home,
        scripts=(*SCRIPTS, "matrix.js", "data/matrix.js"),
    )


def _notes(columns: Sequence[Column], links: Links) -> str:
    """Say what portable code is, and on pages with libraries, which backends of theirs were not run."""
    run = {one.backend for one in columns}
    found = []
    if run & PORTABLE.keys():
        found.append(f"{escape(NOTE)} These columns are the last.")
    if links.library is not None and (missing := without_run(run)):
        names = ", ".join(link(links.library(name), name) for name in missing)
        found.append(
            f"Not run: {names}. No results of these backends are stored: neither a pass nor a failure."
        )
    return "".join(f'<p class="note">{one}</p>' for one in found)


def _not_holding(column: Column, rule: str) -> int:
    """Count the results of a rule that are not a pass."""
    counts = column.counts.get(rule, Counter())
    return counts.total() - counts["pass"] - counts["unsupported"]


def _judged(column: Column, rule: str) -> int:
    counts = column.counts.get(rule, Counter())
    return counts.total() - counts["unsupported"]


def _steps(found: Sequence[int]) -> list[int]:
    """Return the first of some growing numbers, and the steps between them."""
    return [after - before for before, after in zip((0, *found), found, strict=False)]
