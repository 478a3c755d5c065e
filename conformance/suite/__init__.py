"""The suite: chapters that yield cases and relations, in the order of the standard."""

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from pathlib import Path

from attnspec import CHAPTERS, SpecError, cases
from attnspec.backends.constraints import ANY, Constraints
from attnspec.case_json import read_cases
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.suite.group import FITTED, Chapter, Group, Item
from attnspec.dtypes import DTYPES

#: The files of groups, by chapter; a chapter with many has several.
FILES = {
    "notation": ("notation",),
    "projection": ("projection",),
    "scores": ("scores",),
    "masking": ("masking", "empty_rows", "integers"),
    "softmax": ("softmax", "denominator"),
    "heads": ("heads",),
    "caching": ("caching", "merging"),
    "positions": ("positions",),
    "dropout": ("dropout",),
    "gradients": (
        "gradients",
        "gradients_of_nothing",
        "gradients_of_options",
        "gradients_of_companions",
        "gradients_of_multi_head",
    ),
    "numerics": ("numerics", "layouts", "special_numbers"),
    "errors": ("errors", "pairs"),
}
#: In the quick part, cases are put in this dtype where they can be.
QUICK_DTYPE = "float32"
#: So many cases of a group are few.
_FEW = 4


@cache
def groups() -> tuple[Group, ...]:
    """List every group of generated cases, chapter by chapter."""
    found: list[Group] = []
    for chapter in CHAPTERS:
        for file in FILES[chapter]:
            module = import_module(f"attnspec.conformance.suite.{file}")
            found += next(thing for thing in vars(module).values() if isinstance(thing, Chapter))
    return tuple(found)


def items(
    *,
    quick: bool = False,
    rules: Collection[str] = (),
    names: Collection[str] = (),
    seed: int | None = None,
    constraints: Constraints | None = None,
) -> Iterator[Item]:
    """Yield the golden vectors in each dtype that holds them, and the generated cases, by chapter.

    Parameters
    ----------
    quick : bool, optional
        Only a fixed part that touches every rule: golden vectors in one dtype, but those of the
        chapter `numerics` in all; of a group every second case in one dtype, and one in another.
    rules : collection of str, optional
        Only what bears on one of these rules.
    names : collection of str, optional
        Only the cases and relations of these ids or names, or in these files of cases (``.json``).
    seed : int, optional
        Draws other problems than the fixed ones.
    constraints : Constraints, optional
        Draws the generated cases of attention so that they fit, as far as that goes. They are other
        cases: their names say what they fit, and by such a name one is found without this.

    Examples
    --------
    >>> from attnspec.conformance.suite import items
    >>> [item.name for item in items(names=["masking-empty-last"], quick=True)]
    ['masking-empty-last-float32']
    """
    for name in names:
        if name.endswith(".json"):
            yield from read_cases(Path(name))
    names = frozenset(names)
    drawn = constraints or _said_in(names)
    for chapter in CHAPTERS:
        for item in _of_chapter(chapter, names, drawn, quick=quick, seed=seed):
            if rules and not set(rules) & set(item.rules):
                continue
            if not names or item.id in names or item.name in names:
                yield item


def _said_in(names: Collection[str]) -> Constraints:
    """Read what the names of some cases say that these are drawn to fit.

    Raises
    ------
    SpecError
        When the names say different things.
    """
    said = {name.partition(FITTED)[2] for name in names if FITTED in name}
    suffixes = {
        next((one.removesuffix(f"-{x}") for x in DTYPES if one.endswith(f"-{x}")), one) for one in said
    }
    if len(suffixes) > 1:
        raise SpecError(f"case: expected names that fit the same, got {', '.join(sorted(suffixes))}")
    try:
        return Constraints.of_suffix(suffixes.pop()) if suffixes else ANY
    except ValueError as error:
        raise SpecError(str(error)) from error


def _of_chapter(
    chapter: str, names: Collection[str], constraints: Constraints, *, quick: bool, seed: int | None
) -> Iterator[Item]:
    for case in cases():
        if case.chapter == chapter and _may_be_of(case.id, names):
            found = in_each(case)
            yield from found if not quick or chapter == "numerics" else _in_one_dtype(found)
    for group in groups():
        if group.chapter == chapter and _may_be_of(group.id, names):
            made = tuple(group.items(seed, constraints))
            yield from _quick_part(made) if quick else made


def _quick_part(made: tuple[Item, ...]) -> tuple[Item, ...]:
    """Take the first case of every two in one dtype; of a group of many, one in another dtype, too."""
    others = [item for item in made if item.dtype != QUICK_DTYPE] if len(made) > _FEW else []
    middle = len(others) // 2
    return (*_in_one_dtype(made)[::2], *others[middle : middle + 1])


def _in_one_dtype(found: tuple[Item, ...]) -> tuple[Item, ...]:
    return tuple(item for item in found if item.dtype == QUICK_DTYPE) or found[:1]


def _may_be_of(beginning: str, names: Collection[str]) -> bool:
    """Whether one of some names may begin so: what begins otherwise need not be made."""
    return not names or any(name.startswith(beginning) for name in names)


def matches(item: Item, text: str) -> bool:
    """Tell whether the name of a case, its group or a rule of it holds a text, or fits a pattern.

    Examples
    --------
    >>> from attnspec.conformance.suite import find, matches
    >>> case = find("masking-empty-last-float32")
    >>> matches(case, "empty"), matches(case, "masking-*-float32"), matches(case, "mask-6")
    (True, True, True)
    """
    wanted = text.lower()
    return any(
        wanted in name.lower() or fnmatchcase(name.lower(), wanted)
        for name in (item.name, item.group, *item.rules)
    )


def find(name: str, seed: int | None = None) -> Item:
    """Find a case or relation by its name.

    Raises
    ------
    SpecError
        When there is none.

    Examples
    --------
    >>> from attnspec.conformance.suite import find
    >>> find("masking-empty-last-float32").rules
    ('MASK-6', 'MASK-1')
    """
    require(name, seed)
    return next(items(names=[name], seed=seed))


def require(name: str, seed: int | None = None) -> None:
    """Refuse an id or a name that the suite does not have.

    Raises
    ------
    SpecError
        When there is no such case.
    """
    if next(items(names=[name], seed=seed), None) is None:
        raise SpecError(f"case: got {name!r}, expected an id such as masking-empty-last")
