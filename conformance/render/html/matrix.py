"""The matrix of rules by backend and version: its page, its data for the scripts, as CSV and as JSON."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, pairwise, takewhile
from typing import Any

from attnspec import __version__, levels, rules
from attnspec.backends.names import PORTABLE
from attnspec.conformance.render.counts import cell
from attnspec.conformance.render.html.column import NOTE, Column, newest, page_of, without_run
from attnspec.conformance.render.html.marks import MARK, MARKS
from attnspec.conformance.render.html.page import Links, Page, render
from attnspec.schema import VECTORS

#: What every file of results says about a column.
_FACTS = ("backend", "library", "version", "date", "attnspec", "part", "headline")
_NAMES = {mark.letter: mark.name for mark in MARKS}
#: The largest number of characters of one part of the names of cases.
_PART = 200_000
#: The most rules of a level that a row names as lacking.
_FEW = 3
#: The most rules that the report of a single backend explains.
_CAUSES = 20
#: One character for each length from 0 to 61.
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def matrix_page(columns: Sequence[Column], links: Links) -> Page:
    """Return the page of the matrix. The table is made by its script; without it, links remain."""
    title = "Results by rule and library"
    backends = {column.backend for column in columns}
    overviews = [_overview(column, columns) for column in newest(columns) if column.standings]
    libraries = [row for row in overviews if row["column"].backend not in PORTABLE]
    by_lack = sorted(libraries, key=_lack)
    body = render(
        "matrix.html",
        texts=level_texts(),
        own=_own(newest(columns)[0], columns) if len(newest(columns)) == 1 else None,
        overviews=libraries,
        standings=[(number, [*rows]) for number, rows in groupby(by_lack, key=_lack)],
        portable_overviews=[row for row in overviews if row["column"].backend in PORTABLE],
        links=links,
        rules=len(rules()),
        runs=len(columns),
        newest=[(column, page_of(column, columns)) for column in newest(columns)],
        portable=NOTE if backends & PORTABLE.keys() else "",
        absent=without_run(backends) if links.library else (),
        marks=MARKS[::-1],
    )
    return Page("index.html", title, body)


@cache
def level_texts() -> Mapping[str, str]:
    """Return what each level is, in a sentence: the first of its section in the chapter."""
    text = (VECTORS.parent / "levels.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## ([\w-]+)\n\n(.+?)(?:\n\n|$)", text, re.MULTILINE | re.DOTALL)
    return {name: " ".join(words.split()).replace("`", "") for name, words in sections}


def _overview(column: Column, columns: Sequence[Column]) -> dict[str, Any]:
    """Return a row of the first table: the levels that a function reaches, and what it lacks of the first."""
    missing = column.standings["core"].missing
    # What was got says more than that nothing was.
    first = sorted(missing.items(), key=lambda item: item[1] in ("not judged", "unsupported"))
    some = [f"{rule} ({what})" for rule, what in first[:_FEW]]
    judged = [letter for letter in column.letters.values() if letter not in "un"]
    return {
        "column": column,
        "address": page_of(column, columns),
        "reached": [level.name for level in levels() if column.letter_of_level(level.name) == "p"],
        "lacks": ", ".join(some) + (f" and {len(missing) - _FEW} more" if len(missing) > _FEW else ""),
        "kept": judged.count("p"),
        "judged": len(judged),
    }


def _lack(row: Mapping[str, Any]) -> int:
    """Return how many rules of core a row of the first table lacks."""
    return len(_missing_cells(row["column"], "core"))


def _own(column: Column, columns: Sequence[Column]) -> dict[str, Any]:
    """Return what the report of a single backend begins with: the verdict, then what does not hold."""
    by_letter = {letter: [rule for rule in rules() if column.letters[rule.id] == letter] for letter in "fds"}
    broken = [(rule, letter) for letter, own in by_letter.items() for rule in own]
    return {
        "column": column,
        "address": page_of(column, columns),
        "mark": MARK["f" if by_letter["f"] else "d" if by_letter["d"] else "p"],
        "causes": [
            (rule, MARK[letter], examples[:_FEW], max(0, len(examples) - _FEW))
            for rule, letter in broken[:_CAUSES]
            for examples in [column.cells.get(rule.id, {}).get("examples", [])]
        ],
        "rest": max(0, len(broken) - _CAUSES),
    }


def matrix_data(columns: Sequence[Column], links: Links) -> dict[str, Any]:
    """Return the rules, the levels and the letters of all columns, as JSON."""
    known = rules()
    number = {rule.id: index for index, rule in enumerate(known)}
    latest = {column.slug for column in newest(columns)}
    return {
        "standard": __version__,
        "marks": [[mark.letter, mark.symbol, mark.name, mark.text] for mark in MARKS],
        "rules": [[rule.id, rule.level, rule.chapter, rule.title, links.rule(rule.id)] for rule in known],
        "levels": [
            {
                "name": level.name,
                "rules": [number[rule] for rule in level.rules],
                "offered": [number[rule] for rule in level.where_offered],
                "on": level.builds_on,
                "accuracy": level.accuracy,
            }
            for level in levels()
        ],
        "columns": [
            {
                **{name: getattr(column, name) for name in ("slug", "label", *_FACTS)},
                "newest": column.slug in latest,
                "page": page_of(column, columns),
                "portable": column.backend in PORTABLE,
                "lacks": [len(_missing_cells(column, level.name)) for level in levels()],
                "letters": "".join(column.letters[rule.id] for rule in known),
                "levels": "".join(column.letter_of_level(level.name) for level in levels()),
                "bad": [_number(column, rule.id, without=("pass", "unsupported")) for rule in known],
                "judged": [_number(column, rule.id, without=("unsupported",)) for rule in known],
                "shown": {
                    rule: text
                    for rule in column.ways
                    if column.letters[rule] == "d" and (text := column.deviations(rule))
                },
            }
            for column in columns
        ],
    }


def column_data(column: Column, names: Sequence[str], links: Links) -> dict[str, Any]:
    """Return the cells of one column and the letters of its cases, as JSON."""
    about: dict[str, list[int]] = {}
    declared = {
        text.rpartition(" ")[2]
        for each in column.cells.values()
        for example in each.get("examples", ())
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
        "cells": {
            rule: each
            | {
                "counts": (counts := column.results_of(rule)),
                "others": max(0, each["counts"].get("deviation", 0) - counts["deviation"]),
            }
            for rule, each in column.cells.items()
        },
        "levels": {name: dict(standing.missing) for name, standing in column.standings.items()},
        "cases": _run_length(letters),
        "about": {
            rule: [after - before for before, after in pairwise((0, *places))]
            for rule, places in about.items()
        },
        "notes": column.notes,
        "findings": {name: links.finding(name) for name in sorted(declared)} if links.finding else {},
    }


def case_names(columns: Iterable[Column]) -> list[str]:
    """Return the names of all cases, sorted, so that neighbours have much in common."""
    return sorted({name for column in columns for name in column.cases})


def pack_names(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names in parts. Of each, the length of what the one before it shares is followed by the rest.

    There are some ten thousand for a backend. The length is one character of `_DIGITS`.
    """
    part: list[str] = []
    size, before = 0, ""
    for name in names:
        pairs = zip(before[: len(_DIGITS) - 1], name, strict=False) if part else ()
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        part.append(f"{_DIGITS[shared]}{name[shared:]}")
        size, before = size + len(part[-1]) + 3, name
        if size > _PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def rules_csv(columns: Sequence[Column]) -> str:
    """Return a row for each rule, with the result in each column."""
    rows = [["rule", "level", "chapter", "title", *_heads(columns)]]
    for rule in rules():
        texts = [_text(column.results_of(rule.id)) for column in columns]
        rows.append([rule.id, rule.level, rule.chapter, rule.title, *texts])
    return _csv(rows)


def levels_csv(columns: Sequence[Column]) -> str:
    """Return a row for each level, with the result in each column."""
    rows = (
        [level.name, *(_level_text(column.letter_of_level(level.name)) for column in columns)]
        for level in levels()
    )
    return _csv([["level", *_heads(columns)], *rows])


def all_json(columns: Sequence[Column]) -> str:
    """Return everything that the matrix shows as one JSON."""
    runs = [
        {
            **{name: getattr(column, name) for name in _FACTS},
            "notes": column.notes,
            "cases": column.totals,
            "levels": {
                level.name: {"result": _level_text(letter)}
                | ({"lacks": dict(column.standings[level.name].missing)} if letter not in "pn" else {})
                for level in levels()
                for letter in (column.letter_of_level(level.name),)
            },
            "rules": {
                rule.id: {"result": _NAMES[column.letters[rule.id]], "cases": column.results_of(rule.id)}
                for rule in rules()
            },
        }
        for column in columns
    ]
    return json.dumps({"attnspec": __version__, "runs": runs}, separators=(",", ":")) + "\n"


def _missing_cells(column: Column, level: str) -> Mapping[str, str]:
    standing = column.standings.get(level)
    return standing.missing if standing else {}


def _number(column: Column, rule: str, *, without: tuple[str, ...]) -> int:
    """Count the results of a rule, without those of some statuses."""
    counts = column.results_of(rule)
    return counts.total() - sum(counts[status] for status in without)


def _run_length(letters: Iterable[str]) -> str:
    """Return letters with repetitions counted: `p3f` for `pppf`."""
    counted = ((letter, len(list(same))) for letter, same in groupby(letters))
    return "".join(f"{letter}{number if number > 1 else ''}" for letter, number in counted)


def _heads(columns: Iterable[Column]) -> list[str]:
    return [f"{column.backend} {column.version} {column.date}" for column in columns]


def _text(counts: Mapping[str, int] | None) -> str:
    return cell(counts)[0] if counts else _NAMES["n"]


def _level_text(letter: str) -> str:
    return "reached" if letter == "p" else _NAMES[letter]


def _csv(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_inert(value) for value in row] for row in rows)
    return text.getvalue()


def _inert(text: str) -> str:
    """Return a text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
