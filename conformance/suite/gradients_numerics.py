"""The chapter `gradients`: rounding errors of gradients, also of long calls."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.budget import required_accuracy
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.relations.rounding_bias import signed_sum
from attnspec.conformance.sizes.sized import SizedCase
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.problem import Shape
from attnspec.dtypes import SHORT
from attnspec.formula import Formula
from attnspec.reference.budget.attention import APPROXIMATE
from attnspec.reference.budget.budget import budget

chapter = Chapter("gradients")

_VJP = "attention_vjp"


@chapter.group("NUM-5", operation=_VJP, each=("keys", "queries", "queries beside"))
def long_sums_of_one_sign(draw: Draw, over: str) -> Iterator[Yielded]:
    """Sums of hundreds of terms of one sign, also for bias and sinks, are not computed in half precision."""
    for dtype in SHORT:
        random = np.random.default_rng(draw.number())
        shapes = draw.shapes(Shape((), 2, 257, 4, 3) if over == "keys" else Shape((), 600, 2, 4, 3))
        shapes["d_output"] = (*shapes["query"][:-1], shapes["value"][-1])
        arrays = {name: 1 + random.random(shapes[name]) for name in ("query", "key", "value", "d_output")}
        if over == "keys":  # an error of a row's mean goes along the keys
            arrays |= {"query": arrays["query"] / 64, "key": arrays["key"] + 8}
        else:  # the first key has a gradient of one sign in every row
            arrays["value"][..., 0, :] += 4
            arrays["key"] = random.normal(size=shapes["key"]) / 8
        if over == "queries beside":
            arrays |= {"bias": np.zeros(arrays["key"].shape[-2]), "sinks": np.zeros(1)}
        yield {name: array.astype(dtype) for name, array in arrays.items()}


@chapter.group("GRAD-24", "NUM-5", operation=_VJP)
def scale_from_terms_of_one_sign(draw: Draw) -> Iterator[Yielded]:
    """The gradient of the scale is a sum over hundreds of queries, in which every pair adds to the others."""
    for arguments in long_sums_of_one_sign(draw, "queries"):
        assert isinstance(arguments, dict)  # noqa: S101 - for the type checker: it yields arguments
        signs = np.resize([0.5, -0.5], arguments["key"].shape[-2])[:, None]
        key = np.broadcast_to(signs, arguments["key"].shape)
        asked = {"key": key.astype(arguments["key"].dtype), "return_d_scale": True}
        yield Call(arguments | asked, outputs=("d_query", "d_scale"))


@chapter.group("NUM-5", "GRAD-19", operation=_VJP)
def cotangents_of_many_queries(draw: Draw) -> Iterator[Yielded]:
    """The gradient of the value of a single key is the sum of all cotangents, which is rounded once."""
    for dtype in SHORT:
        random = np.random.default_rng(draw.number())
        shapes = draw.shapes(Shape((1, 1), 600, 1, 4, 4))
        arrays = {name: random.normal(size=shape) for name, shape in shapes.items()}
        arrays["d_output"] = 1 + random.random((*shapes["query"][:-1], shapes["value"][-1]))
        yield {name: array.astype(dtype) for name, array in arrays.items()}


@chapter.group("GRAD-20", operation=_VJP, each=("query", "key"))
def last_rounding_has_no_bias(draw: Draw, of: str) -> Iterator[Yielded]:
    """If half precision holds all factors of a gradient exactly, the last rounding has no bias."""
    for dtype in SHORT:
        random = np.random.default_rng(draw.number())
        shapes = draw.shapes(Shape((32,), 1, 2, 64, 1))
        shapes["d_output"] = (*shapes["query"][:-1], shapes["value"][-1])
        arrays = {name: 1 + random.random(shapes[name]) for name in ("query", "key", "d_output")}
        arrays["query" if of == "query" else "key"][...] = 0  # so that all weights are equal
        # The weights are a power of 2, and the values -1 and 1: their mean is 0, and no number is rounded.
        signs = 1 - 2 * (np.arange(shapes["key"][-2]) % 2)[:, None]
        arrays["value"] = np.zeros(shapes["value"])
        arrays["value"][..., :1] = signs
        arrays["key"] = arrays["key"] * signs
        yield Calls(({name: array.astype(dtype) for name, array in arrays.items()},), _is_rounded_to_nearest)


def _is_rounded_to_nearest(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the summed errors of a gradient with the bound for unbiased last roundings."""
    (case,) = calls
    name = "d_key" if case.arguments["query"].any() else "d_query"
    exact = expected(case)[name]
    allowed = budget(case.operation, case.arguments, case.dtype, profile=backend.profile)[name]
    if (
        required_accuracy(backend, case.dtype) != "full"
    ):  # an approximate exponential, and the sum that it is divided by
        allowed = allowed + 2 * APPROXIMATE * np.abs(exact)
    got = call(backend, case.operation, case.arguments)[name].astype(np.float64)
    # The gradients of the other keys have the same digits.
    share = signed_sum(*(array[..., 0, :] for array in (got, exact, allowed)), dtype=case.dtype)
    return f"{name}: errors of one sign add up to {share:.3g} times what chance leaves" if share > 1 else None


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


@chapter.group("GRAD-19", "GRAD-1", operation=_VJP, step=1)  # each has another option
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
    return judge(
        backend, SizedCase(case.id, case.title, case.rules, case.group, formula, dtype, operation=_VJP)
    )
