"""Deviations that a failing function shares with libraries: who has them, and how to declare them."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from math import isnan
from pathlib import Path

import attnspec
from attnspec.conformance.attribution.known_failures import quote
from attnspec.conformance.traits import FAR, NOTHING
from attnspec.conformance.verdict import Verdict
from attnspec.operations.operation import primal

#: A rule, what the names of its cases have, the end of the names of the findings, and the elements that are
#: NaN, by their name in `attnspec.backends.adapters.deviations`.
_SHARED = (
    ("MASK-12", "finite-garbage", "_overflow", "elements_with_overflow"),
    ("MASK-6", "query-that-is-none", "masked_nan_query", "elements_of_nan"),
)
#: The edges at which a function may raise: the rule that requires a result, and the reason of a deviation.
_RAISING = {
    NOTHING: ("SHAPE-7", "a call with an empty axis raises an error"),
    FAR: ("ERR-1", "a call with an integer that 32 bits hardly hold raises an error"),
}
_ROW = re.compile(r"\| \d+ \| \[([A-Z]+-\d+)\] \| ([^|]+) \| ([^|]+) \| \[([^\]]+)\]")


def declaration_lines(failures: Sequence[Verdict]) -> Iterator[str]:
    """Yield the declaration of failures that are, all of them, NaN where libraries have it too."""
    found = {_place(verdict) for verdict in failures}
    if None in found:
        return
    shared = [(entry, _known(entry[0], entry[2])) for entry in _SHARED if entry in found]
    for _, (reason, names) in shared:
        yield f"known: {names} have this deviation: {reason}"
    yield f"to declare it, {_add_to(failures[0])}"
    source = f"attnspec check {failures[0].backend} --case {failures[0].case}"
    for (rule, *_, elements), (reason, _) in shared:
        where = f"attnspec.backends.adapters.deviations:{elements}"
        yield "    [[backend.deviations]]"
        yield f'    rules = ["{rule}"]'
        yield f'    reason = "{reason}"'
        yield f"    source = {quote(source)}"
        yield f'    outcome = {{ kind = "Special", where = "{where}" }}'


def raising_lines(failures: Sequence[Verdict]) -> Iterator[str]:
    """Yield the declaration of failures that are, all of them, exceptions in calls at one edge."""
    edges = (edge for edge in _RAISING if all(x.raised and edge in x.traits for x in failures))
    edge, raised = next(edges, ""), [x.raised for x in failures if x.raised]
    if not edge or any(x.valid or x.conversion or not x.type for x in raised):
        return
    texts = [re.split(r"[\d\n]", x.message)[0] for x in raised]
    message = texts[0] if len({*texts}) == 1 else ""
    outcome = {"type": " or ".join(dict.fromkeys(x.type for x in raised)), "message": message}
    fields = ", ".join(f"{key} = {quote(x)}" for key, x in outcome.items())
    # Another part of the suite has such calls under other rules.
    rules = dict.fromkeys(verdict.main_rule for verdict in failures) | _rules_at(edge, failures[0].operation)
    named = ", ".join(map(quote, rules))
    rule, reason = _RAISING[edge]
    yield f"{rule} requires a result; to declare that there is none, {_add_to(failures[0])}"
    yield "    [[backend.deviations]]"
    yield f"    rules = [{named}]"
    yield f'    reason = "{reason}"'
    yield f"    source = {quote(f'{Path(raised[0].file).name}:{raised[0].line}')}"
    yield f'    outcome = {{ kind = "Raises", {fields} }}'


@cache
def _rules_at(edge: str, operation: str) -> dict[str, None]:
    """Return the rules of the calls at an edge, of an operation and its gradients."""
    from attnspec.conformance.run.plan import index  # which reads a file

    called = ((outline, outline.calls[0].operation) for outline in index() if edge in outline.traits)
    own = (outline for outline, its in called if primal(its) == primal(operation) and not outline.refusal)
    return dict.fromkeys(sorted({outline.rules[0] for outline in own}))


def dtype_lines(failures: Sequence[Verdict]) -> Iterator[str]:
    """Yield the declaration of failures that are, all of them, an output in one other dtype."""
    found = [x.difference for x in failures if x.difference and x.difference.kind == "dtype"]
    if len(found) < len(failures) or len({(off.output, off.got) for off in found}) > 1:
        return
    output, dtype = found[0].output, found[0].got
    # The weights of a function that returns none are outputs of other calls.
    of_weights = ["weights"] if (output, failures[0].operation) == ("output", "attention") else []
    dtypes = ", ".join(map(quote, sorted({verdict.dtype for verdict in failures})))
    named = ", ".join(map(quote, dict.fromkeys(verdict.main_rule for verdict in failures)))
    yield f"if the function documents this dtype, {_add_to(failures[0])}"
    yield "    [[backend.deviations]]"
    yield f"    rules = [{named}]"
    yield f'    reason = "{output} has the dtype {dtype}"'
    yield f"    source = {quote(f'attnspec check {failures[0].backend} --case {failures[0].case}')}"
    yield f'    outcome = {{ kind = "InDtype", dtype = "{dtype}" }}'
    yield f"    outputs = [{', '.join(map(quote, [output, *of_weights]))}]"
    yield f"    dtypes = [{dtypes}]"


def variant_lines(failures: Sequence[Verdict]) -> Iterator[str]:
    """Yield the declaration of failures that equal, all of them, one variant of their rule."""
    variants = {(verdict.main_rule, verdict.variant) for verdict in failures}
    if len(variants) == 1 and (variant := variants.pop())[1]:
        rule, name = variant
        yield f'if it is documented, declare it: {rule} = "{name}" in attnspec.toml, under [backend.dialect]'


def _add_to(verdict: Verdict) -> str:
    place = verdict.backend.partition("?")[0]
    return f'add to attnspec.toml (a new one begins with [backend] and function = "{place}"):'


def _place(verdict: Verdict) -> tuple[str, str, str, str] | None:
    """Return the entry of a failure, if it is NaN in place of a number in a case of a shared deviation."""
    off = verdict.difference
    if verdict.operation != "attention" or verdict.dtype == "float16":  # its scores overflow elsewhere
        return None
    if off is None or not isinstance(off.got, float) or not isnan(off.got):
        return None
    return next((x for x in _SHARED if x[0] == verdict.main_rule and x[1] in verdict.case), None)


@cache
def _known(rule: str, end: str) -> tuple[str, str]:
    """Return the reason and the libraries of a deviation, from the table of the dialects."""
    text = Path(attnspec.__file__).with_name("dialects.md").read_text(encoding="utf-8")
    rows = [row for row in _ROW.findall(text) if row[0] == rule and row[3].endswith(end)]
    return rows[0][1], ", ".join(dict.fromkeys(name for row in rows for name in row[2].split(", ")))
