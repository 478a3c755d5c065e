"""The page of each library: its backends, declared deviations, and findings."""

import re
from collections.abc import Sequence
from typing import Any

from pages.findings import row
from pages.known import Known
from pages.page import Name, Page, Part, make_page
from pages.rules import variants_of

from attnspec.backends.names import LIBRARY_NAMES, PORTABLE, backends_of
from attnspec.conformance.render.html.column import NOTE, Column, label_of

#: The statuses in the order in which they are counted.
_STATUSES = ("pass", "deviation", "should not met", "fail", "error", "unsupported")

#: What ran, of libraries whose versions do not name the device and whose users run another.
_DEVICE = {
    "mlx": (
        "`mlx-fast` calls `mlx.core.fast.scaled_dot_product_attention` on the CPU, where MLX composes it of "
        "other operations. The Metal kernels are other code, which these results do not cover."
    ),
}


def libraries(known: Known) -> Part:
    """Return the page of each library, and their list."""
    pages = []
    names = []
    for library, name in LIBRARY_NAMES.items():
        pages.append(_page(library, known))
        title = f"{name}: levels, deviations, findings"
        names.append(Name("library", library, f"libraries/{library}.html", title))
    index = make_page(
        "libraries/index",
        "libraries.md",
        own=[each for library in LIBRARY_NAMES if (each := _row(library, known, portable=False))],
        portable_rows=[each for library in LIBRARY_NAMES if (each := _row(library, known, portable=True))],
        portable=PORTABLE,
        label_of=label_of,
        note=NOTE,
    )
    return Part((index, *pages), tuple(names))


def _row(library: str, known: Known, *, portable: bool) -> dict[str, Any]:
    """Return a row of the list: the backends, and the levels that one of them reaches. Empty without any."""
    backends = [name for name in backends_of(library) if (name in PORTABLE) == portable]
    columns = [column for column in known.columns if column.backend in backends]
    run = {column.backend for column in columns}
    levels = dict.fromkeys(level for column in columns for level in _levels(column))
    if not backends:
        return {}
    return {
        "library": library,
        "name": LIBRARY_NAMES[library],
        "backends": [{"name": name, "run": name in run} for name in backends],
        "levels": " ".join(levels) or ("none" if columns else "not run"),
        "findings": len({finding.name for finding in known.findings if finding.library == library}),
    }


def _page(library: str, known: Known) -> Page:
    backends = backends_of(library)
    columns = [column for column in known.columns if column.backend in backends]
    return make_page(
        f"libraries/{library}",
        "library.md",
        library=library,
        name=LIBRARY_NAMES[library],
        calls=_calls(library, known),
        backends=backends,
        columns=columns,
        rows=_results(backends, columns),
        device=_DEVICE.get(library, ""),
        note=NOTE if any(column.backend in PORTABLE for column in columns) else "",
        declared=_deviations(columns, known),
        alone=len({each.name for each in known.findings if each.library == library and not each.family}),
        findings=[
            row(finding, known)
            for finding in {each.name: each for each in reversed(known.findings)}.values()
            if finding.library == library
        ][::-1],
        portable=PORTABLE,
        label_of=label_of,
    )


def _calls(library: str, known: Known) -> list[tuple[str, str]]:
    """Return the sections that translate the calls of a library: addresses and calls."""
    text = (known.root / "spec" / "frameworks.md").read_text(encoding="utf-8")
    calls = re.findall(rf"^## `({library}\.[\w.]+)`$", text, re.MULTILINE)
    return [(f"spec/frameworks.html#{re.sub('[^a-z0-9]+', '-', call.lower())}", call) for call in calls]


def _levels(column: Column) -> tuple[str, ...]:
    return tuple(level for level, standing in column.standings.items() if standing.reached)


def _results(backends: Sequence[str], columns: Sequence[Column]) -> list[tuple[str, dict[str, Any] | None]]:
    """Return the runs of the backends of a library, portable code last, and None for one without a run."""
    rows: list[tuple[str, dict[str, Any] | None]] = []
    for backend in sorted(backends, key=lambda name: name in PORTABLE):
        runs = [column for column in columns if column.backend == backend]
        rows += [
            (
                backend,
                {
                    "stem": column.stem,
                    "library": column.library,
                    "version": column.version,
                    "reached": _levels(column),
                    "totals_by_status": [
                        (status, column.totals[status]) for status in _STATUSES if column.totals.get(status)
                    ],
                },
            )
            for column in runs
        ]
        if not runs:
            rows.append((backend, None))
    return rows


def _deviations(columns: Sequence[Column], known: Known) -> list[dict[str, Any]]:
    """Return what the backends declare and the suite has verified, in the order of the rules."""
    backends: dict[tuple[str, str, str], dict[str, None]] = {}
    for column in columns:
        for rule, ways in column.ways.items():
            for way in ways.values():
                backends.setdefault((rule, *way), {})[column.backend] = None
    order = list(known.rules)
    deviations = []
    for (rule, variant, reason), names in sorted(
        backends.items(), key=lambda item: (order.index(item[0][0]), item[0][1:])
    ):
        variants = variants_of(known.rules[rule], variant)
        deviations.append({"rule": rule, "variants": variants, "text": reason, "backends": [*names]})
    return deviations
