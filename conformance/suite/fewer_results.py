"""The chapter `notation`: calls that ask for fewer results than an operation gives.

A kernel often has a path of its own for calls without an lse, such as those of inference.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend
from attnspec.conformance.judge.call import without
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.suite.drawn_stacks import OPTIONS, Sizes, draw_call
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.stacks import SERVED, TILES, UNEVEN
from attnspec.conformance.suite.whole_calls import ATTENDING, layers_of, of_operation, whole_calls
from attnspec.conformance.suite.words import draw_in_turn
from attnspec.operations.operation import primal
from attnspec.operations.stacks import STACKS

chapter = Chapter("notation")

#: The sizes of a call: several tiles, one query of each sequence, and rows without a key.
_SIZES: Mapping[str, Sizes] = {
    "tiles": replace(TILES["16"], encoding="int8"),
    "one query": Sizes(queries=(1, 1), keys=(17, 5)),
    "empty rows": UNEVEN,
}
#: The options of a call, by turns. Rows without a key have offsets below 0.
_OPTIONS = ("nothing", "causality", "all together", "window")


def results_to_ask(operation: str) -> tuple[tuple[str, ...], ...]:
    """List the results that calls of an operation ask for: none, each of several alone, and not all."""
    names = tuple(x.name for x in OPERATIONS[operation].results if x.option and not x.of)
    alone = tuple((name,) for name in names if len(names) > 1)
    return ((), *alone, *(combinations(names, 2) if len(names) > 2 and operation not in STACKS else ()))


#: The operations that may be asked for more. Gradients of a scale have groups of their own.
ASKED = tuple(name for name, form in OPERATIONS.items() if form.names("asks") and name == primal(name))


@chapter.group("SHAPE-10", each=ASKED, step=6)
def fewer_results(draw: Draw, operation: str) -> Iterator[Yielded]:
    """The output is the same if no other result is asked for, or not all."""
    if operation not in ATTENDING:
        for call in whole_calls(draw, operation, "float32"):
            yield _relation(Call(call, _rules(operation), operation), ())
        return
    turns = [
        (asked, size)
        for place, asked in enumerate(results_to_ask(operation))
        for size in _sizes(operation, asked, place)
    ]
    sizes = (replace(_SIZES[size], name=operation) for _, size in turns)
    for turn, ((asked, size), (random, dtype, fit)) in enumerate(
        zip(turns, draw_in_turn(draw, *sizes), strict=True)
    ):
        option = "offsets" if size == "empty rows" else _OPTIONS[turn % len(_OPTIONS)]
        call = of_operation(random, operation, draw_call(random, dtype, layers_of(operation), fit, option))
        call |= {"return_max": True} if "max" in asked else {}
        rules = (*_rules(operation), *(OPTIONS[option][0] if option != "nothing" else ()))
        yield _relation(Call(call, rules, operation, outputs=("output", *asked)), asked)


def _sizes(operation: str, asked: Sequence[str], place: int) -> tuple[str, ...]:
    """Choose the sizes of the calls of an operation: one, or all if it is no stack. Weights have few."""
    sizes = tuple(name for name in _SIZES if name != "tiles" or "weights" not in asked)
    if len(asked) < 2 and (operation not in STACKS or (operation in SERVED and not asked)):
        return sizes
    return (sizes[(place + len(operation)) % len(sizes)],)


def _rules(operation: str) -> tuple[str, str]:
    """Name the rule that a wrong output breaks, and that of a wrong number of results."""
    return "SOFT-4" if operation == "attention" else OPERATIONS[operation].results[0].rule, "SHAPE-10"


def _relation(call: Call, asked: Sequence[str]) -> Calls:
    return Calls((call,), partial(_judge_alone, asked), call.rules, live=True)


def _judge_alone(asked: Sequence[str], backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Judge a call that asks for some results alone, if it is right with all of them."""
    from attnspec.conformance.judge.judge import judge

    (case,) = calls
    results = OPERATIONS[case.operation].results
    hidden = [x.option for x in results if x.option and x.name not in asked]
    if not any(backend.has(case.operation, flag) for flag in hidden):
        raise Missing(
            f"{backend.name} returns no more than these results", *(f"argument {x}" for x in hidden)
        )
    # Under a rule that is also tested on a backend without weights and lse.
    plain = replace(case, rules=(results[0].rule,))
    if judge(backend, plain).status in ("fail", "error"):
        raise Missing(f"{backend.name} is wrong with all results too")
    verdict = judge(without(backend, *hidden, operation=case.operation), plain)
    rule = case.rules[0] if verdict.rule == results[0].rule else verdict.rule
    return None if verdict.status == "pass" else replace(verdict, rule=rule)
