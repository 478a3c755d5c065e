"""What the suite of attnspec itself lets through."""

from collections.abc import Iterable

from attnspec.backends import DTYPES, Backend, load_library
from attnspec.conformance.gallery.kills import read_kills
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import items
from tools.rivals.subjects import cheats


def lets_through(names: Iterable[str]) -> set[str]:
    """Return the wrong entries that no case of the ordinary run kills, from the stored kill matrix.

    Examples
    --------
    >>> from tools.rivals.own import lets_through
    >>> lets_through(["inverted_polarity", "no_shift"])
    set()
    """
    kills = read_kills()
    return {name for name in names if not kills[name].ordinary}


def own_cheats() -> set[str]:
    """Return the cheats that fail no case of the quick part of the suite."""
    suite = items(quick=True)
    library = load_library("numpy")
    backends = {one.name: Backend(one.name, library, one.make(), DTYPES) for one in cheats()}
    return {
        name
        for name, backend in backends.items()
        if not any(judge(backend, item).status in ("fail", "error") for item in suite)
    }
