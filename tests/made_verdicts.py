"""Verdicts made by hand from a few words, and their findings."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnspec.backends import load
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.verdict import Difference, Raise, Verdict

PORTABLE = load("numpy-portable")
#: A difference that says nothing of its size; a large one, one of a few budgets, one of a rounding, a trace.
OFF = Difference("value", "output", share=1e6)
WRONG = Difference("value", "output", (0,), 1.5, 1.0, share=4e5)
SLIGHT = Difference("value", "output", (0,), 1.01, 1.0, share=1.2)
ROUNDED = Difference("value", "output", got=1.0, expected=1.0 + 1e-7, share=2.0)
TRACE = Difference("value", "weights", (0,), 1.6e-28, 0.0)
NAN = Difference("pattern", "output", (0,), float("nan"), 0.0)
RAISED = Raise("ValueError", "no", "/m.py", 3, "f")
DIFFERENCES = {
    "wrong": WRONG,
    "slight": SLIGHT,
    "as-slight": replace(SLIGHT, share=1e5),
    "slighter": replace(SLIGHT, share=1e5, got=1.0001),
    "rounded": ROUNDED,
    "half": replace(OFF, share=900.0),
    "few-budgets": replace(OFF, share=15.0),
    "trace": TRACE,
    "trace-of-allowed": replace(TRACE, expected=1e-40),
    "tiny": replace(TRACE, got=6e-29, expected=1e-30, share=9.0),
    "last-rows": replace(WRONG, starts=("rows 57", "rows -8")),
    "other-rows": replace(WRONG, starts=("rows 11", "rows -8")),
    "nan": NAN,
    "bits": replace(OFF, kind="bits"),
    "d_key": replace(OFF, output="d_key", outputs=("d_key",), right=("d_query", "d_value")),
    "shape": Difference("shape", "output", got="(2, 4)", expected="(2, 5)"),
    "dtype": Difference("dtype", "output", got="float64"),
    "lse": Difference("pattern", "lse", (), 1.0, 2.0),
    "output-alone": replace(OFF, outputs=("output",), right=("lse",)),
    "weights-alone": replace(OFF, output="weights", right=("output", "lse")),
    "lse-alone": replace(OFF, output="lse", outputs=("lse",), right=("output",)),
    "all-gradients": replace(OFF, output="d_query", outputs=("d_query", "d_key", "d_value")),
    "lse-of-nothing": Difference("pattern", "lse", (), 1.0, -np.inf),
}
#: The values of fields that are no text.
VALUES = {"no": False, "yes": True, "many": 99} | {
    rules: tuple(rules.split(",")) for rules in ("MASK-1,ERR-3", "GRAD-9,MASK-1")
}


def fail(number, rule, *having, name="", dtype="float32", **fields):
    """Failures under a rule, of calls with some traits. They differ in their case alone."""
    fields = {"status": "fail", "rule": rule, "rules": (rule,), "difference": OFF, "group": "g"} | fields
    cases = [f"{name or rule}-{n}-{dtype}" for n in range(number)]
    return [Verdict("b", case, dtype=dtype, traits=having, **fields) for case in cases]


def ok(number, *having, rule="SOFT-1", **fields):
    """Passing calls with some traits."""
    return fail(number, rule, *having, name=f"ok {having}", status="pass", difference=None, **fields)


def error(number, message, *having, rule="SHAPE-5", name="", **fields):
    """Calls that raise."""
    fields = {"status": "error", "raised": replace(RAISED, message=message)} | fields
    return fail(number, rule, *having, name=name or message, difference=None, **fields)


def ended(number, reason="was killed"):
    """Calls in which the process ended."""
    return error(number, "", rule="NUM-3", name=reason, reason=reason, raised=Raise("", "", "/m.py", 9))


def refused(number, rule, **fields):
    """Calls that must be rejected and are not."""
    return fail(number, rule, "refused", difference=None, reason="expected an error, got output", **fields)


def half(number, *having, dtype="float16", **fields):
    """Calls whose short result is slightly beyond its budget."""
    fields = {"name": "MASK-3", "difference": SLIGHT, "precision": dtype} | fields
    return fail(number, "NUM-5", *having, dtype=dtype, **fields)


def changed(number):
    """Calls that change an input."""
    return fail(number, "NUM-4", difference=None, reason="query: expected to be unchanged")


def sizes_of(text):
    """The sizes of a call from its queries and keys, such as ``3x5``."""
    queries, keys = map(int, text.split("x"))
    return 1, 2, 2, queries, keys, 4, 4


KINDS = {"ok": ok, "half": half, "raise": error, "ended": ended, "refused": refused, "changed": changed}
SIGNS = {"~": "difference", "@": "dtype", "#": "name"}


def verdicts(text):
    """Verdicts from text: ``9 MASK-1 (traits) ~difference @dtype #name field=value; raise 2 "message"``."""
    for group in text.split("; "):
        words = re.findall(r"\([^)]*\)|\"[^\"]*\"|\S+", group)
        kind = KINDS[words.pop(0)] if words[0].isalpha() else fail
        arguments, having, fields = [int(words.pop(0))], [], {}
        for word in words:
            if word[0] == "(":
                having = word[1:-1].split(", ")
            elif word[0] in SIGNS:
                fields[SIGNS[word[0]]] = DIFFERENCES.get(word[1:], word[1:])
            elif "=" in word:
                name, _, value = word.partition("=")
                fields[name] = sizes_of(value) if name == "sizes" else VALUES.get(value, value)
            elif kind in (ok, error) and word[0] != '"':
                fields["rule"] = word
            else:
                arguments.append(word.strip('"'))
        yield from kind(*arguments, *having, **fields)


def found(*groups):
    """The findings of groups of verdicts, some of them as text."""
    lists = [verdicts(group) if isinstance(group, str) else group for group in groups]
    every = [verdict for group in lists for verdict in group]
    return findings([verdict for verdict in every if verdict.bad], every)


def table(name):
    """Rows of a table: a title, verdicts in lines, and lines that begin with a sign."""
    text, rows = (Path(__file__).parent / "tables" / f"{name}.txt").read_text(encoding="utf-8"), []
    for row in text.strip().split("\n\n"):
        title, *lines = row.splitlines()
        judged = "; ".join(line.strip() for line in lines if line.startswith("    ") and line[4] not in "=+-")
        signs = {sign: [line[6:] for line in lines if line[4] == sign] for sign in "=+-"}
        rows.append(pytest.param(judged, signs, id=title.strip()))
    return rows
