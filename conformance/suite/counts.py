"""The chapter `errors`: many heads, batch entries and features, and groups of any size (ERR-3)."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import FORMS, PER_ENTRY
from attnspec.conformance.suite.paths import OF_QUERIES
from attnspec.conformance.suite.problem import Shape
from attnspec.conformance.suite.words import in_two_dtypes

chapter = Chapter("errors")

#: One more than a number that a kernel may count to. The other axes are short, so that this costs little.
_COUNTS = (
    Shape((1, 33), 2, 7, 4, 3),
    Shape((33, 2), 2, 7, 4, 3),
    Shape((1, 2), 2, 5, 257, 264),
    Shape((1, 1), 2, 5, 520, 72),
    Shape((1, 1), 40, 70, 136, 8),
)
#: Groups whose size is not a power of two, with enough rows that a division by multiplication shows.
_GROUPS = (
    Shape((1, 6), 133, 20, 4, 4, groups=3),
    Shape((1, 12), 133, 20, 4, 4, groups=6),
    Shape((1, 14), 133, 20, 4, 4, groups=7),
    Shape((1, 24), 65, 20, 4, 4, groups=12),
    Shape((1, 21), 2, 20, 4, 4, groups=3),
)


@chapter.group("ERR-3", each=tuple(FORMS))
def option_past_every_count(draw: Draw, form: str) -> Iterator[Yielded]:
    """An option holds for 33 heads, 33 batch entries, and more than 128, 256 and 512 features."""
    option = FORMS[form]
    rules = OF_QUERIES if form == "mask of queries" else (option.rule, "ERR-3")
    for problem in in_two_dtypes(draw, _COUNTS):
        yield Call(problem.arguments | option.draw(problem), rules, outputs=("output", "lse"))


@chapter.group("ERR-3", each=tuple(PER_ENTRY))
def integers_of_many_entries(draw: Draw, name: str) -> Iterator[Yielded]:
    """Integers of each batch entry hold for 33 entries, also if only the last one is large."""
    option = PER_ENTRY[name]
    for problem in in_two_dtypes(draw, (Shape((33, 1), 20, 40, 4, 3),)):
        own, most = option.draw(problem), 19 if name == "query_lengths" else 38
        last = np.arange(33) == 32
        for integers in (own, own | {name: np.where(last, most, 3)}):
            yield Call(problem.arguments | integers, (option.rule, "ERR-3"), outputs=("output", "lse"))


@chapter.group("HEAD-1", each=tuple(product(("all keys", "is_causal"), range(len(_GROUPS)))))
def groups_of_any_size(draw: Draw, which: tuple[str, int]) -> Iterator[Yielded]:
    """Groups of 3, 6, 7 and 12 query heads share a key head, with many queries."""
    keys, number = which
    for problem in in_two_dtypes(draw, _GROUPS[number : number + 1]):
        options = {"is_causal": True} if keys == "is_causal" else {}
        yield Call(problem.arguments | options, outputs=("output", "lse"))
