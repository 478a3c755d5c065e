"""The chapter `errors`: pairs of options of each operation, several in a call, and each of them acts.

A function may have two options and ignore one of them beside the other. Any two options that do not exclude
each other meet in a call that has other results without either of them. The options of most kernels meet in
calls of three at most, so that a kernel with few options is judged on its pairs, too.
"""

from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import combinations

import numpy as np

from attnspec import OPERATIONS
from attnspec.backends.user.scales import codes_of
from attnspec.conformance.suite.alone import ALONE, acting, needs_of
from attnspec.conformance.suite.drawn_stacks import OPTIONS, Arguments, Sizes, draw_beside
from attnspec.conformance.suite.group import Call, Chapter, Draw, Yielded
from attnspec.conformance.suite.stacks import SERVED
from attnspec.conformance.suite.whole_calls import ATTENDING, layers_of, of_operation
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.operation import primal
from attnspec.operations.stacks import STACKS

chapter = Chapter("errors")

#: Some options, all of which act in one call.
Row = tuple[str, ...]
#: Pairs of options that exclude each other.
Apart = frozenset[frozenset[str]]
#: The options of most kernels, and how many of them are in a call at most.
_COMMON, _FEW = ("is_causal", "window", "scale", "softcap", "sinks", "query_offset", "key_lengths"), 3
#: How many options are in another call at most.
_MANY = 9
#: The gradient of the scale, which few kernels have, and which other options change.
_ASKED = "return_d_scale"
_SIZES = Sizes(queries=(6, 4), keys=(9, 7), heads=(2, 1), encoding="int8", listed=12)
#: How often a call is drawn.
_MOST_DRAWS = 36


def options_of(operation: str) -> tuple[str, ...]:
    """Name the options of an operation that attends."""
    known = OPERATIONS[operation].arguments
    names = (*ALONE, "latent_zero_points", "dropout_rate", "d_lse")
    return tuple(name for name in names if name in known and not known[name].required)


def rows_of(operation: str) -> tuple[Row, ...]:
    """Choose the options of each call of an operation, so that each pair meets in one of them."""
    few = operation in SERVED or operation not in STACKS
    asked = (_ASKED,) if _ASKED in OPERATIONS[operation].arguments else ()
    return _rows(options_of(operation), apart_in(operation), few, asked)


@cache
def _rows(names: Row, apart: Apart, few: bool, asked: Row) -> tuple[Row, ...]:  # noqa: FBT001  # for `cache`
    common = [name for name in names if few and name in _COMMON]
    rows = [*cover(combinations(common, 2), _FEW, apart)]
    met = {frozenset(pair) for row in rows for pair in combinations(row, 2)}
    rows += cover((pair for pair in combinations(names, 2) if frozenset(pair) not in met), _MANY, apart)
    rows += ((*row, *asked) for row in cover(zip(names), _MANY, apart) if asked)
    return tuple(rows)


def apart_in(operation: str) -> Apart:
    """Return the pairs of arguments of an operation that exclude each other."""
    known = OPERATIONS[operation].arguments
    return frozenset(frozenset({name, other}) for name in known for other in known[name].excludes)


def cover(wanted: Iterable[Row], most: int, apart: Apart) -> Iterator[Row]:
    """Choose few rows of options, so that those wanted together are in one, and those apart in none."""
    left = [row for row in wanted if not any(pair <= {*row} for pair in apart)]
    while left:
        row = left[0]
        while len(row) < most and (more := _best(row, left, apart)):
            row = (*row, more)
        yield row
        left = [own for own in left if not {*own} <= {*row}]


def _best(row: Row, left: Collection[Row], apart: Apart) -> str:
    """Return the option beside which a row has the most of those wanted, if there is one."""
    names = dict.fromkeys(name for own in left for name in own if name not in row)
    free = [name for name in names if not any(pair <= {*row, name} for pair in apart)]
    gain = {name: sum(name in own and {*own} <= {*row, name} for own in left) for name in free}
    best = max(gain, key=lambda name: gain[name], default="")
    return best if gain.get(best) else ""


def draw_row(draw: Draw, operation: str, row: Row, number: int) -> Arguments:
    """Draw a call of an operation with the options of a row, and what they need."""
    random = np.random.default_rng(draw.number(number))
    ((_, dtype, sizes), *_) = draw_in_turn(draw, _SIZES)
    needs = {need for name in row for need in needs_of(operation, name)}
    needs -= {"is_causal"} if "window" in row and "is_causal" not in row else set()
    options = [name for name in OPTIONS if name in {ALONE.get(need) for need in needs}]
    call = of_operation(random, operation, draw_beside(random, dtype, layers_of(operation), sizes, *options))
    for name in [name for name in call if name in needs and name.endswith("_zero_points")]:
        # One for all keys would change nothing.
        shape = (*call[codes_of(name, call)].shape[:-1], 1) if name[:3] == "key" else call[name].shape
        call[name] = random.integers(-40, 41, shape)
    without = {*options_of(operation), "key_segment_ids"} - needs
    call |= dict.fromkeys(needs & {_ASKED}, True)
    return {name: x for name, x in call.items() if name not in without}


def acts_in(operation: str, row: Row, call: Arguments) -> frozenset[str]:
    """Return the options of a row that act in a call, or on the gradient of the scale if it is asked for."""
    return acting(operation, call, row, first=-1 if _ASKED in row else 0)


def _draw_acting(draw: Draw, operation: str, place: int, row: Row) -> Arguments:
    """Draw the first call in which all options of a row act, or in which most of them do."""
    calls = (draw_row(draw, operation, row, _MOST_DRAWS * place + number) for number in range(_MOST_DRAWS))
    numbers = []
    for call in calls:
        numbers.append((len(acts_in(operation, row, call)), call))
        if numbers[-1][0] == len(row):
            return call
    return max(numbers, key=lambda pair: pair[0])[1]


@chapter.group("ERR-3", "STACK-2", each=ATTENDING, step=4)
def pairs_of_options(draw: Draw, operation: str) -> Iterator[Yielded]:
    """Several options act in one call, and any two options meet in one of the calls."""
    for place, row in enumerate(rows_of(operation)):
        call = _draw_acting(draw, operation, place, row)
        rules = ("ERR-3", *(("STACK-2",) if OPERATIONS[primal(operation)].layers else ()))
        rules += (OPERATIONS[operation].results[0].rule,) if operation.endswith("_vjp") else ()
        outputs = ("d_query", "d_scale") if _ASKED in row else ()
        yield Call(call, rules, operation=operation, outputs=outputs)
