"""The order of columns, and the names of their pages in the folder."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from packaging.version import InvalidVersion, Version

from attnspec.backends.names import ADAPTERS, PORTABLE, SEPARATE
from attnspec.conformance.render.html.column import Column, slug_of

#: Names of other pages, which no backend may have.
_TAKEN = frozenset({"index", "compare", "matrix", "levels", "rules"})
_Key = TypeVar("_Key")
_ORDER = {name: index for index, name in enumerate((*ADAPTERS, *SEPARATE))}
#: The number of the backends of readers: after those of libraries, before the portable ones.
_OWN = len(_ORDER)
_ORDER |= {name: _OWN + 1 + index for index, name in enumerate(PORTABLE)}


def placed(columns: Iterable[Column]) -> list[Column]:
    """Return columns in the order of backends, versions and days, each with names for its pages.

    Portable code is last, because it is no attention of the library that it runs on.

    Examples
    --------
    >>> from attnspec.conformance.render.html.folder import placed
    >>> placed([])
    []
    """
    ordered = sorted(columns, key=_order)
    stems = _unique({one.backend: slug_of(one.backend) for one in ordered}, _TAKEN)
    slugs = _unique(
        {
            index: f"{stems[one.backend]}-{slug_of(one.version)}-{one.date}"
            for index, one in enumerate(ordered)
        }
    )
    return [replace(one, stem=stems[one.backend], slug=slugs[index]) for index, one in enumerate(ordered)]


def _order(column: Column) -> tuple[int, str, bool, Version | str, str]:
    number = _ORDER.get(column.backend, _OWN)
    try:
        return number, column.backend, True, Version(column.version), column.date
    except InvalidVersion:
        return number, column.backend, False, column.version, column.date


def _unique(names: Mapping[_Key, str], taken: Collection[str] = ()) -> dict[_Key, str]:
    """Make names unique by a number, where capital letters make no difference."""
    seen = Counter(taken)
    found = {}
    for key, name in names.items():
        seen[name.lower()] += 1
        number = seen[name.lower()]
        found[key] = name if number == 1 else f"{name}.{number}"
    return found


def runs_of_backend(backend: str, columns: Sequence[Column]) -> list[Column]:
    """Return the runs of one backend, the oldest first."""
    return [one for one in columns if one.backend == backend]


def newest(columns: Sequence[Column]) -> list[Column]:
    """Return the newest run of each backend."""
    return [*{one.backend: one for one in columns}.values()]


def page_of(column: Column, columns: Sequence[Column]) -> str:
    """Return the address of the page of a run. That of the newest run is the page of the backend."""
    if runs_of_backend(column.backend, columns)[-1] is column:
        return f"{column.stem}.html"
    return run_page(column)


def run_page(column: Column) -> str:
    """Return the permanent address of the page of a run."""
    return f"runs/{column.slug}.html"
