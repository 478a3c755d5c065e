"""The page of each library: its backends, declared deviations, and findings."""

import json
import lzma
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnspec.backends.names import LIBRARY_NAMES, PORTABLE, backends_of
from attnspec.conformance.attribution.levels import standings
from attnspec.conformance.render.html.portable import NOTE, label_of
from attnspec.conformance.verdict import Verdict, from_json
from pages.findings import row
from pages.known import Known
from pages.page import (
    ORPHAN,
    Name,
    Page,
    Part,
    code,
    crumbs,
    escaped,
    inline,
    link,
    plural,
    raw,
    rule_link,
    table,
)
from pages.who import Outcome, outcomes


@dataclass(frozen=True)
class Standing:
    """What the stored results say of one version of a backend.

    Attributes
    ----------
    backend, version : str
    reached : tuple of str
        The levels that it reaches.
    statuses : mapping of str to int
        The number of verdicts of each status.
    declared : mapping of (rule, text) to int
        The number of cases that show each declared deviation.
    outcomes : mapping of str to Outcome
        By rule.
    """

    backend: str
    version: str
    reached: tuple[str, ...]
    statuses: Mapping[str, int]
    declared: Mapping[tuple[str, str, str], int]
    outcomes: Mapping[str, Outcome]


def stored(folder: Path) -> tuple[Standing, ...]:
    """Read the stored results. Their format was checked when they were stored."""
    return tuple(one for path in sorted(folder.glob("*.jsonl.xz")) for one in _standings(path))


def libraries(known: Known, standing: tuple[Standing, ...], *, results: bool) -> Part:
    """Return the page of each library, and their list."""
    pages = []
    names = []
    rows: list[tuple[str, ...]] = []
    last: list[tuple[str, ...]] = []
    for library, name in LIBRARY_NAMES.items():
        own = [one for one in standing if one.backend in backends_of(library)]
        pages.append(Page(f"libraries/{library}", _page(library, own, known, results=results)))
        count = sum(one.library == library for one in known.findings)
        names.append(
            Name("library", library, f"libraries/{library}.html", f"{name}: levels, deviations, findings")
        )
        found = link(f"../findings/{library}.html", plural(count, "finding")) if count else ""
        page = link(f"{library}.html", escaped(name))
        if functions := [one for one in backends_of(library) if one not in PORTABLE]:
            rows.append((page, *_of_backends(functions, own), found))
        if portable := [one for one in backends_of(library) if one in PORTABLE]:
            last.append((page, *_of_backends(portable, own)))
    text = (
        "# Libraries\n\nThe libraries that the suite has been run on, each through one or more backends. "
        "FlashAttention, cuDNN, vLLM and FlashInfer were read and not run, because their kernels need GPUs: "
        "[calls of kernel libraries](../spec/calls.md) translates their arguments and "
        "says where they differ. [Dialects](../spec/dialects.md) does so for ONNX, PyTorch and JAX.\n\n"
    )
    head = ("library", "backends", "levels that a backend reaches", "findings")
    text += raw(table(head, rows, label="Libraries", kind="libraries stack"))
    portable = table(head[:3], last, label="Portable code", kind="libraries stack")
    text += f"\n## Portable code\n\n{NOTE}\n\n" + raw(portable)
    index = Page("libraries/index", text)
    return Part((index, *pages), tuple(names))


def _page(library: str, own: list[Standing], known: Known, *, results: bool) -> str:
    name = LIBRARY_NAMES[library]
    findings = [one for one in known.findings if one.library == library]
    parts = [
        ORPHAN + raw(crumbs(("../index.html", "attnspec"), ("index.html", "Libraries"))),
        f"# {name}\n",
        "## Results\n",
    ]
    if own:
        head = ("backend", "version", "levels reached", "verdicts")
        rows = _results(backends_of(library), own, results=results)
        parts.append(raw(table(head, rows, label=f"Results of {name}", kind="stack")))
        if any(one.backend in PORTABLE for one in own):
            parts.append(f"{NOTE}\n")
        if results:
            parts.append("[All libraries, rule by rule](page:../results/index.html)\n")
    else:
        backends = ", ".join(f"`{one}`" for one in backends_of(library))
        parts.append(f"No stored results. Backends: {backends}. `attnspec check {library}` runs them.\n")
    declared: dict[tuple[str, str, str], dict[str, None]] = {}
    for one in own:
        for key in one.declared:
            declared.setdefault(key, {})[one.backend] = None
    if declared:
        order = list(known.rules)
        rows = [
            (rule_link(rule), _what(rule, variant, reason, known), "<br>".join(code(one) for one in backends))
            for (rule, variant, reason), backends in sorted(
                declared.items(), key=lambda item: (order.index(item[0][0]), item[0][1:])
            )
        ]
        parts += [
            "## Dialect and deviations\n",
            "What the backends declare and the suite has verified. Variants have names of the standard.\n",
            raw(
                table(
                    ("rule", "what happens instead", "backends"),
                    rows,
                    label="Declared deviations",
                    kind="stack",
                )
            ),
        ]
    if findings:
        head = ("finding", "seen with", "rules", "thread")
        rows = [row(one, known) for one in findings]
        parts += [
            "## Findings\n",
            f"[{plural(len(findings), 'finding')} with scripts](page:../findings/{library}.html)\n",
            raw(table(head, rows, label="Findings", kind="stack")),
        ]
    parts.append(
        "How its arguments translate: [dialects](../spec/dialects.md) and [calls](../spec/calls.md).\n"
    )
    return "\n".join(parts)


def _of_backends(backends: Sequence[str], own: Sequence[Standing]) -> tuple[str, str]:
    """Return the cells of some backends of a library: their names, and the levels that one reaches."""
    run = {one.backend for one in own}
    names = [_called(one) + ("" if one in run else ": not run") for one in backends]
    levels = dict.fromkeys(level for one in own if one.backend in backends for level in one.reached)
    said = " ".join(levels) or ("none" if run & {*backends} else "not run")
    return "<br>".join(names), said


def _called(backend: str) -> str:
    return code(backend) if backend not in PORTABLE else f"{escaped(label_of(backend))}, {code(backend)}"


def _results(backends: Sequence[str], own: Sequence[Standing], *, results: bool) -> list[tuple[str, ...]]:
    """Return the rows of the backends of a library, portable code last, and those without a run as such."""
    rows: list[tuple[str, ...]] = []
    for backend in sorted(backends, key=lambda name: name in PORTABLE):
        found = [one for one in own if one.backend == backend]
        rows += [_result(one, results=results) for one in found]
        if not found:
            rows.append((_called(backend), "", "not run", "no stored results"))
    return rows


def _result(one: Standing, *, results: bool) -> tuple[str, ...]:
    words = ("pass", "deviation", "should not met", "fail", "error", "unsupported")
    counts = ", ".join(f"{one.statuses[word]:,} {word}" for word in words if one.statuses.get(word))
    called = _called(one.backend)
    backend = link(f"../results/{one.backend}.html", called) if results else called
    return (backend, escaped(one.version), ", ".join(one.reached) or "none", counts)


def _what(rule: str, variant: str, reason: str, known: Known) -> str:
    variants = {each.name: each for each in known.rules[rule].variants}
    if variant in variants:
        said = variants[variant].text.partition(". ")[0]
        return f"{link(f'../rules/{rule}.html#{variant}', code(variant))}: {inline(said, known=known.ids)}"
    return inline(reason, known=known.ids)


def _standings(path: Path) -> Iterator[Standing]:
    verdicts: dict[str, list[Verdict]] = {}
    versions: dict[str, str] = {}
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            ((kind, entry),) = json.loads(line).items()
            if kind == "subject":
                versions[entry["name"]] = f"{entry['library']} {entry['version']}"
            elif kind == "verdict":
                verdicts.setdefault(entry["backend"], []).append(from_json(entry))
    for backend, own in verdicts.items():
        declared: Counter[tuple[str, str, str]] = Counter()
        for one in own:
            if one.status == "deviation":
                declared[one.rule, one.variant, "" if one.variant else one.reason] += 1
        reached = tuple(each.level for each in standings(own) if each.reached)
        statuses: Mapping[str, Any] = Counter(one.status for one in own)
        yield Standing(backend, versions.get(backend, ""), reached, statuses, declared, outcomes(own))
