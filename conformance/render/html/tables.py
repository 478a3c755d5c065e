"""The matrix as CSV and JSON, under addresses that do not change."""

import csv
import io
import json
from collections.abc import Iterable, Sequence

from attnspec import __version__, levels, rules
from attnspec.conformance.render.html.column import Column
from attnspec.conformance.render.html.marks import MARKS
from attnspec.conformance.render.screen import cell

_NAMES = {mark.letter: mark.name for mark in MARKS}


def rules_csv(columns: Sequence[Column]) -> str:
    """Return a row for each rule, with the result in each column.

    Examples
    --------
    >>> from attnspec.conformance.render.html.tables import rules_csv
    >>> rules_csv([]).splitlines()[0]
    'rule,level,chapter,title'
    """
    rows = [["rule", "level", "chapter", "title", *_heads(columns)]]
    for rule in rules():
        said = [_said(column, rule.id) for column in columns]
        rows.append([rule.id, rule.level, rule.chapter, rule.title, *said])
    return _csv(rows)


def levels_csv(columns: Sequence[Column]) -> str:
    """Return a row for each level, with the result in each column.

    Examples
    --------
    >>> from attnspec.conformance.render.html.tables import levels_csv
    >>> levels_csv([]).splitlines()[:2]
    ['level', 'core']
    """
    rows = [["level", *_heads(columns)]]
    for level in levels():
        letters = [column.letter_of_level(level.name) for column in columns]
        rows.append([level.name, *("reached" if one == "p" else _NAMES[one] for one in letters)])
    return _csv(rows)


def all_json(columns: Sequence[Column]) -> str:
    """Return everything that the matrix shows as one JSON."""
    found = [
        {
            "backend": one.backend,
            "library": one.library,
            "version": one.version,
            "date": one.date,
            "attnspec": one.attnspec,
            "part": one.part,
            "headline": one.headline,
            "notes": one.notes,
            "cases": one.totals,
            "levels": {
                level.name: {"result": "reached" if letter == "p" else _NAMES[letter]}
                | ({"lacks": dict(one.standings[level.name].missing)} if letter not in "pn" else {})
                for level in levels()
                for letter in (one.letter_of_level(level.name),)
            },
            "rules": {
                rule.id: {"result": _NAMES[one.letters[rule.id]], "cases": one.counts.get(rule.id, {})}
                for rule in rules()
            },
        }
        for one in columns
    ]
    return json.dumps({"attnspec": __version__, "runs": found}, separators=(",", ":")) + "\n"


def _heads(columns: Iterable[Column]) -> list[str]:
    return [f"{one.backend} {one.version} {one.date}" for one in columns]


def _said(column: Column, rule: str) -> str:
    """Return the text of a cell. A text in it never begins a formula of a spreadsheet."""
    counts = column.counts.get(rule)
    return cell(counts)[0] if counts else _NAMES["n"]


def _csv(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_inert(value) for value in row] for row in rows)
    return text.getvalue()


def _inert(text: str) -> str:
    """Return a text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
