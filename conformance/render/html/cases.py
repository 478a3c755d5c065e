"""The names and the letters of cases in little space: there are some ten thousand of each for a backend."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, takewhile

#: The largest number of characters of one part of the names.
_PART = 200_000


def names_of(columns: Iterable[Iterable[str]]) -> list[str]:
    """Return the names of all cases, sorted, so that neighbours have much in common.

    Examples
    --------
    >>> from attnspec.conformance.render.html.cases import names_of
    >>> names_of([["b", "c"], ["a", "b"]])
    ['a', 'b', 'c']
    """
    return sorted({name for names in columns for name in names})


def packed(names: Sequence[str]) -> Iterator[list[str]]:
    """Yield the names in parts. Of each, the length of what the one before it shares is followed by the rest.

    The length is one character of `DIGITS`.

    Examples
    --------
    >>> from attnspec.conformance.render.html.cases import packed
    >>> list(packed(["mask-1-float16", "mask-1-float32", "sinks-1-float16"]))
    [['0mask-1-float16', 'c32', '0sinks-1-float16']]
    """
    part: list[str] = []
    size, before = 0, ""
    for name in names:
        shared = _shared(before, name) if part else 0
        part.append(f"{DIGITS[shared]}{name[shared:]}")
        size, before = size + len(part[-1]) + 3, name
        if size > _PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _shared(before: str, name: str) -> int:
    """Return how many letters at the start of two names are the same, up to what a digit can say."""
    pairs = zip(before[: len(DIGITS) - 1], name, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


#: One character for each length from 0 to 61.
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def run_length(letters: Iterable[str]) -> str:
    """Return letters with repetitions counted.

    Examples
    --------
    >>> from attnspec.conformance.render.html.cases import run_length
    >>> run_length("pppfpp")
    'p3fp2'
    """
    found = ((letter, len(list(same))) for letter, same in groupby(letters))
    return "".join(f"{letter}{number if number > 1 else ''}" for letter, number in found)
