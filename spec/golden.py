"""The golden vectors: the cases of `spec/vectors`, with their proven values."""

from difflib import get_close_matches
from functools import cache
from pathlib import Path

from attnspec.case import Case
from attnspec.case_json import case_of
from attnspec.errors import SpecError
from attnspec.rule import CHAPTERS
from attnspec.schema import SCHEMA, VECTORS, parsed, read


@cache
def cases(folder: Path = VECTORS) -> tuple[Case, ...]:
    """Return every golden vector, chapter by chapter.

    Parameters
    ----------
    folder : Path, optional
        The folder of the vector files, by default that of the standard.

    Raises
    ------
    SpecError
        If a file is malformed, does not belong to a chapter, or repeats an id.

    Examples
    --------
    >>> from attnspec import cases
    >>> case = cases()[0]
    >>> case.chapter, case.operation
    ('notation', 'attention')
    """
    results: list[Case] = []
    for path in sorted(folder.glob("*.json"), key=_reading_order):
        if path.name != SCHEMA:
            results.extend(cases_of(path.stem) if folder == VECTORS else load(path))
    if not results:
        raise SpecError(f"vectors: expected CHAPTER.json in {folder.name}/, got no vector file")
    ids = [case.id for case in results]
    for twice in sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        raise SpecError(f"case {twice}: expected one case of this id, got {ids.count(twice)}")
    return tuple(results)


@cache
def cases_of(chapter: str) -> tuple[Case, ...]:
    """Return the golden vectors of a chapter; empty if it has none."""
    path = VECTORS / f"{chapter}.json"
    # The linter and the tests validate our own files. Validating them here would take a second.
    return tuple(load(path, validated=True)) if path.exists() else ()


def find_case(case_id: str) -> Case:
    """Return the golden vector of an id.

    Raises
    ------
    SpecError
        If there is none.

    Examples
    --------
    >>> from attnspec import find_case
    >>> find_case("scores-000").expected["scores"].shape
    (3, 3)
    """
    for case in cases():
        if case.id == case_id:
            return case
    near = ", ".join(get_close_matches(case_id, [case.id for case in cases()], cutoff=0))
    raise SpecError(f"case: expected an id such as {near}, got {case_id!r}")


def load(path: Path, *, validated: bool = False) -> list[Case]:
    """Read the cases of one vector file.

    Parameters
    ----------
    path : Path
    validated : bool, optional
        Whether the file is known to fit the schema.

    Raises
    ------
    SpecError
        If the file cannot be read or does not fit the schema.
    """
    if path.stem not in CHAPTERS:
        raise SpecError(
            f"vectors: expected a file named after a chapter ({', '.join(CHAPTERS)}), got {path.name}"
        )
    document = parsed(path) if validated else read(path)
    return [case_of(path.stem, entry) for entry in document["cases"]]


def _reading_order(path: Path) -> tuple[int, str]:
    place = CHAPTERS.index(path.stem) if path.stem in CHAPTERS else len(CHAPTERS)
    return place, path.name
