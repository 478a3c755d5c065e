"""The plan for an implementation that is not trusted: no call, and no order of calls, can be known before.

To the drawn cases come copies with one changed number, and problems of which a few rows are judged that
are chosen after the result is delivered.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from random import Random
from secrets import randbelow
from typing import Any
from zlib import crc32

import numpy as np

from attnspec import Case
from attnspec.conformance.judge.dtypes import is_real
from attnspec.conformance.judge.layout import OF_ANY_NUMBERS
from attnspec.conformance.run.cases import CHANGED, ROWS
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.suite.group import Item
from attnspec.formula import Formula
from attnspec.reference.rational.scores import SHOWN

#: One in so many cases is judged once more with a changed number.
_ONE_IN = 4
#: The most scores of such a case, whose exact values are computed in the run.
_MOST_SCORES = 2000


def draw_seed() -> int:
    """Draw a seed that nobody knows before the run."""
    return randbelow(2**31)


def plan(found: Sequence[Item | SizedCase], seed: int, names: Collection[str] = ()) -> list[Item | SizedCase]:
    """Add copies with a changed number, and problems of which some rows are judged; then shuffle."""
    made: list[Item | SizedCase] = list(found)
    made += [
        change(item, seed)
        for item in found
        if isinstance(item, Case) and _can_change(item) and (names or _is_chosen(item, seed))
    ]
    if names:
        return [item for item in made if {item.id, item.name} & {*names}]
    made += rows(seed)
    Random(seed).shuffle(made)  # noqa: S311 - anybody may know the order after the run
    return made


def change(case: Case, seed: int) -> Case:
    """Copy a case, with another number in one element of the values or of the keys."""
    draw = np.random.default_rng([abs(seed), crc32(case.name.encode())])
    name = ("value", "key")[int(draw.integers(2))]
    array = np.array(case.arguments[name])
    place = tuple(int(draw.integers(size)) for size in array.shape)
    array[place] = _other(array[place])
    array.flags.writeable = False
    return replace(
        case,
        id=case.id + CHANGED,
        title=f"{case.title} With one other number.",
        arguments={**case.arguments, name: array},
        expected={},
        alternatives=(),
        figures=(),
    )


def rows(seed: int) -> Iterator[SizedCase]:
    """Make problems of which some rows are judged, chosen after the result is delivered."""
    draw = Random(seed)  # noqa: S311 - anybody may know the problems after the run
    options: tuple[dict[str, Any], ...] = ({}, {"is_causal": True}, {"mask": ("L", "S")}, {})
    for number, given in enumerate(options, start=1):
        heads = draw.choice(((1, 1), (2, 1), (4, 2))) if number == len(options) else (2, 2)
        queries, keys = draw.randint(65, 160), draw.randint(129, 400)
        formula = Formula(
            queries, keys, 32, 32, (1,), *heads, words=0, seed=draw.randrange(2**31), options=given
        )
        rules = ("MASK-3",) if "is_causal" in given else ("MASK-1",) if given else ("SOFT-3", "NUM-3")
        title = "Some rows of a longer problem, chosen after the result is delivered."
        yield SizedCase(f"untrusted-rows-{number}", title, rules, ROWS, formula, "float32")


def _is_chosen(case: Case, seed: int) -> bool:
    return int(np.random.default_rng([abs(seed), crc32(case.name.encode()), 1]).integers(_ONE_IN)) == 0


def _can_change(case: Case) -> bool:
    """Whether the exact values of a copy with another number can be computed in the run."""
    if case.operation != "attention" or case.misuse is not None:
        return False
    query, key, value = (case.arguments[name] for name in ("query", "key", "value"))
    if not all(array.size and is_real(array) and np.isfinite(array).all() for array in (query, key, value)):
        return False
    layouts = {*case.layout.values()} <= {*OF_ANY_NUMBERS}
    variants = all(other.variant in SHOWN.get(other.rule, ()) for other in case.alternatives)
    return layouts and variants and query.size // query.shape[-1] * key.shape[-2] <= _MOST_SCORES


def _other(number: Any) -> Any:
    """Return another number of a similar size in the same dtype."""
    kind = type(number)
    candidates = (kind(1 - float(number)), kind(-float(number)), kind(1.0))
    return next(candidate for candidate in candidates if candidate != number and np.isfinite(candidate))
