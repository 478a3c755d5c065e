"""The suite: chapters that yield cases and relations, in the order of the standard."""

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

from attnspec import CHAPTERS, Case, SpecError
from attnspec.backends.constraints import ANY, FITTED, Constraints
from attnspec.case import SIZES
from attnspec.conformance.judge.dtypes import in_each
from attnspec.conformance.suite.group import Chapter, Group, Item
from attnspec.dtypes import SHORT
from attnspec.golden import cases_of, read_cases

#: The modules with groups, by chapter. A chapter with many groups has several.
FILES = {
    "notation": ("notation", "fewer_results", "empty_beside_options"),
    "projection": ("projection",),
    "scores": ("scores", "slopes"),
    "masking": ("masking", "masking_garbage", "tiled_masks", "position_masks"),
    "softmax": ("softmax", "tiles"),
    "heads": ("heads",),
    "caching": ("caching",),
    "packing": ("packing",),
    "paging": ("paging",),
    "quantization": ("dequantization", "quantization", "low_precision"),
    "positions": ("positions", "frequencies", "positions_alone"),
    "sparsity": ("sparsity", "sparsity_of_lists"),
    "selection": ("selection",),
    "latent": ("latent", "gradients_of_latent"),
    "stacks": ("stacks", "stacks_at_sizes", "plain_values", "nan_beside_options"),
    "sharding": ("sharding", "sharding_of_heads", "gradients_of_shards"),
    "dropout": ("dropout",),
    "gradients": (
        "gradients",
        "gradients_of_options",
        "gradients_of_companions",
        "gradients_of_forms",
        "gradients_numerics",
    ),
    "numerics": (
        "numerics",
        "special_numbers",
        "numbers_of_operations",
        "sizes_of_operations",
        "special_numbers_beside_options",
        "far_numbers",
        "ranges_of_operations",
    ),
    "invariance": ("invariance",),
    "errors": (
        "errors",
        "paths",
        "memory",
        "errors_of_operations",
        "pairs",
        "pairs_of_companions",
        "large_integers",
        "kinds_of_numbers",
    ),
}
#: The preferred dtype of cases in the quick part.
QUICK_DTYPE = "float32"
#: A group with at most this many cases is small.
_FEW = 6


def groups() -> tuple[Group, ...]:
    """List every group of generated cases, chapter by chapter."""
    return tuple(group for chapter in CHAPTERS for group in groups_of(chapter))


@cache
def groups_of(chapter: str) -> tuple[Group, ...]:
    """List the groups of a chapter; empty if there is no such chapter."""
    found: list[Group] = []
    for file in FILES.get(chapter, ()):
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
        Only a fixed part that touches every rule: golden vectors in one dtype, except those of the
        chapter `numerics`; every second case of most groups in one dtype, and one case in another.
    rules : collection of str, optional
        Only cases and relations about one of these rules.
    names : collection of str, optional
        Only the cases and relations of these ids or names, or in these files of cases (``.json``).
    seed : int, optional
        Draw other problems than the fixed ones.
    constraints : Constraints, optional
        Draw generated cases of attention that fit these constraints, if possible. These cases differ
        from the standard ones. Their names contain the constraints, and constraints in `names` have
        precedence.

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
    drawn = constraints_in(names) or constraints or ANY
    for chapter in CHAPTERS:
        for item in _of_chapter(chapter, names, drawn, quick=quick, seed=seed):
            if rules and not set(rules) & set(item.rules):
                continue
            if not names or item.id in names or item.name in names:
                yield item


def constraints_in(names: Collection[str]) -> Constraints | None:
    """Read the constraints in the names of cases, if there are any."""
    # The dtype at the end of a name is any, such as that of integers which must be rejected.
    suffixes = {re.sub(r"-[a-z]{3}\w*$", "", name.partition(FITTED)[2]) for name in names if FITTED in name}
    if len(suffixes) > 1:
        raise SpecError(f"case: expected names with the same constraints, got {', '.join(sorted(suffixes))}")
    try:
        return Constraints.of_suffix(suffixes.pop()) if suffixes else None
    except ValueError as error:
        raise SpecError(str(error)) from error


def _of_chapter(
    chapter: str, names: Collection[str], constraints: Constraints, *, quick: bool, seed: int | None
) -> Iterator[Item]:
    if names and not any(name.startswith(f"{chapter}-") for name in names):
        return
    for case in cases_of(chapter):
        if _may_be_of(case.id, names):
            found = in_each(case)
            yield from found if not quick or chapter == "numerics" else _in_one_dtype(found)
    for group in groups_of(chapter):
        if _may_be_of(group.id, names):
            made = tuple(group.items(seed, constraints))
            yield from _quick_part(made, group.step) if quick else made


def _quick_part(made: tuple[Item, ...], step: int) -> tuple[Item, ...]:
    """Take one in some cases in one dtype, and in a large group also one case in another dtype.

    Of a group of half precision alone each dtype is taken: their errors differ by a factor of eight.
    """
    chosen = _in_one_dtype(made)[::step]
    if chosen[0].dtype in SHORT and {item.dtype for item in made} <= {*SHORT}:
        first = {item.dtype: item for item in reversed(made)}
        return tuple(item for item in made if item is first[item.dtype])
    others = [item for item in made if item.dtype != chosen[0].dtype] if len(made) > _FEW else []
    middle = len(others) // 2
    return (*chosen, *others[middle : middle + 1])


def _in_one_dtype(found: tuple[Item, ...]) -> tuple[Item, ...]:
    return tuple(item for item in found if item.dtype == QUICK_DTYPE) or found[:1]


def _may_be_of(beginning: str, names: Collection[str]) -> bool:
    """Whether one of some names may have this beginning. Other groups need not be generated."""
    return not names or any(name.startswith(beginning) for name in names)


def find(name: str, seed: int | None = None) -> Item:
    """Find a case or relation by its name.

    Raises
    ------
    SpecError
        If there is none.

    Examples
    --------
    >>> from attnspec.conformance.suite import find
    >>> find("masking-empty-last-float32").rules
    ('MASK-6', 'MASK-1')
    """
    if name.startswith(f"{SIZES}-"):
        return _of_sizes(name)
    require(name, seed)
    return next(items(names=[name], seed=seed))


def _of_sizes(name: str) -> Case:
    """Make the arrays of a sized case, and its expected values if all rows are judged."""
    from attnspec.conformance.sizes.cases import sized_cases
    from attnspec.conformance.sizes.judge import values_of

    for item in sized_cases():
        if name in (item.id, item.name):
            if item.sampled:
                return item.case
            return replace(item.case, expected=values_of(item.formula, of_gradients=item.gradients))
    raise SpecError(f"case: expected an id such as sizes-views-1, got {name!r}")


def require(name: str, seed: int | None = None) -> None:
    """Refuse an id or a name that the suite does not have."""
    if next(items(names=[name], seed=seed), None) is None:
        raise SpecError(f"case: expected an id such as masking-empty-last, got {name!r}")
