"""The chapter `gradients`: calls by formula that are longer than the tiles of kernels."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.sizes.judge import judge_sized
from attnspec.conformance.sizes.sized import Sized
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import Shape
from attnspec.formula import Formula

chapter = Chapter("gradients")

_VJP = "attention_vjp"
#: Shapes, the options of their calls, and dtypes.
_CALLS: tuple[tuple[Shape, dict[str, Any], str], ...] = (
    (Shape((1, 1), 257, 257, 64, 64), {}, "float32"),
    (Shape((1, 2), 257, 257, 64, 64, groups=2), {"is_causal": True}, "bfloat16"),
    (Shape((1, 9), 65, 513, 40, 40, groups=9), {}, "float32"),
    (Shape((1, 1), 513, 513, 64, 64), {"is_causal": True}, "float32"),
    (Shape((1, 1), 513, 129, 128, 128), {}, "float16"),
    (Shape((1, 1), 1025, 1025, 32, 32), {"is_causal": True, "window": (127, None)}, "float32"),
    (Shape((1, 1), 1025, 1025, 32, 32), {"is_causal": True}, "float64"),
    (Shape((1, 4), 1, 1025, 64, 64, groups=2), {}, "float32"),
)


@chapter.group("GRAD-19", "GRAD-1", operation=_VJP)
def longer_than_tiles(draw: Draw) -> Iterator[Yielded]:
    """Gradients of 257 to 1025 queries or keys, each element of which is compared with a sum over words."""
    for number, (asked, options, dtype) in enumerate(_CALLS):
        shape = draw.fitted(asked)
        formula = Formula(
            shape.queries,
            shape.keys,
            shape.depth,
            shape.value_depth,
            shape.outer[:-1],
            shape.outer[-1],
            shape.key_outer[-1],
            seed=draw.number(number) % 2**32,
            options=options,
        )
        rules = ["GRAD-19", "GRAD-1"] + ["GRAD-9"] * bool(options) + ["GRAD-3"] * (shape.groups > 1)
        call = Call(formula.arguments_of_gradients(dtype), tuple(rules))
        yield Calls((call,), partial(_by_formula, formula, dtype), tuple(rules), live=True)


def _by_formula(formula: Formula, dtype: str, backend: Backend, cases: tuple[Case, ...]) -> Found:
    """Judge the call by the codebook oracle."""
    (case,) = cases
    return judge_sized(
        backend, Sized(case.id, case.title, case.rules, case.group, formula, dtype, operation=_VJP)
    )
