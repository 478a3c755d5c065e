"""The chapter `gradients`: the gradients of attention for random cotangents."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnspec import Case
from attnspec.backends import DTYPES, Backend
from attnspec.conformance.judge.call import call
from attnspec.conformance.judge.comparison import same_bits
from attnspec.conformance.judge.dtypes import lse_dtype
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.relations.relation import Found
from attnspec.conformance.relations.rounding_bias import signed_sum
from attnspec.conformance.suite.group import Call, Calls, Chapter, Draw, Yielded
from attnspec.conformance.suite.options import OPTIONS, draw_option
from attnspec.conformance.suite.problem import GROUPED, MASKED, SHAPES, Problem, Shape
from attnspec.dtypes import SHORT
from attnspec.reference.budget.budget import budget

chapter = Chapter("gradients")

_VJP = "attention_vjp"
#: Longer than tiles of 16 and 32, and no multiple of them; with one query too. Then one more than tiles
#: of 128, on either side, with depths that are longer than tiles of 16 and 64.
_TILED = (
    Shape((1, 2), 19, 35, 4, 3),
    Shape((2,), 1, 37, 4, 4),
    Shape((1,), 2, 257, 20, 13),
    Shape((1,), 257, 2, 40, 72),
)


def cotangents(problem: Problem, *, lse: bool = False) -> dict[str, NDArray[Any]]:
    """Draw cotangents of both signs for the output, and for the lse if requested."""
    found = {"d_output": problem.array(*problem.shape[:-1], problem.value.shape[-1])}
    if lse:
        h = problem.array(*problem.shape[:-1])
        found["d_lse"] = h.astype(lse_dtype(h.dtype.name))
    return found


@chapter.group("GRAD-1", "GRAD-2", operation=_VJP)
def random_cotangents(draw: Draw) -> Iterator[Yielded]:
    """Cotangents are random, because a sum of all outputs as the loss would hide most mistakes."""
    for problem in draw.problems():
        yield problem.arguments | cotangents(problem)


@chapter.group("GRAD-1", "SCORE-2", operation=_VJP, each=("scale", "is_causal"))
def random_cotangents_beside(draw: Draw, option: str) -> Iterator[Yielded]:
    """Cotangents are random beside a scale or a causal mask, which most implementations have."""
    for problem in draw.problems(MASKED):
        own = {"scale": problem.choice(1.5, -1.0, 0.0)} if option == "scale" else {"is_causal": True}
        rules = ("GRAD-1", "SCORE-3" if option == "scale" else "MASK-3")
        yield Call(problem.arguments | cotangents(problem) | own, rules)


@chapter.group("GRAD-1", operation=_VJP)
def one_allowed_key(draw: Draw) -> Iterator[Yielded]:
    """With one key only its value has a gradient, and query and key have gradients of 0."""
    for problem in draw.problems((SHAPES[0],)):
        given = problem.arguments | cotangents(problem)
        nothing = {f"d_{name}": np.zeros(given[name].shape) for name in ("query", "key")}
        yield Call(given, expected={**nothing, "d_value": given["d_output"].astype(np.float64)})


@chapter.group("GRAD-1", operation=_VJP)
def query_of_zeros(draw: Draw) -> Iterator[Yielded]:
    """With a query of 0 all values have the same gradient, and the keys have gradients of 0."""
    for problem in draw.problems(MASKED):
        given = problem.arguments | cotangents(problem) | {"query": np.zeros_like(problem.query)}
        share = given["d_output"].astype(np.float64).sum(axis=-2, keepdims=True) / problem.shape[-1]
        expected = {
            "d_key": np.zeros(problem.key.shape),
            "d_value": np.broadcast_to(share, problem.value.shape),
        }
        yield Call(given, expected=expected)


@chapter.group("GRAD-3", "HEAD-1", operation=_VJP)
def shared_heads(draw: Draw) -> Iterator[Yielded]:
    """The gradient of a key head is the sum over its two, three or five query heads."""
    for problem in draw.problems(GROUPED, 2):
        yield problem.arguments | cotangents(problem)


@chapter.group("GRAD-6", operation=_VJP, each=("alone", "beside"))
def cotangent_of_the_lse(draw: Draw, beside: str) -> Iterator[Yielded]:
    """The cotangent of the lse changes the gradients of queries and keys, but not those of values."""
    for problem in draw.problems((*MASKED, *GROUPED)):
        found = cotangents(problem, lse=True)
        if beside == "alone":
            found["d_output"] = np.zeros_like(found["d_output"])
        yield Call(problem.arguments | found, ("GRAD-6",) if beside == "beside" else ("GRAD-6", "GRAD-14"))


@chapter.group("GRAD-14", "GRAD-6", operation=_VJP)
def loss_on_the_lse_alone(draw: Draw) -> Iterator[Yielded]:
    """The values have gradients of 0 if the cotangents of the output are 0."""
    for problem in draw.problems(MASKED):
        found = cotangents(problem, lse=True)
        found["d_output"] = np.zeros_like(found["d_output"])
        yield Call(problem.arguments | found, outputs=("d_value",))


@chapter.group("GRAD-13", operation=_VJP, each=("some", "all"))
def cotangents_of_zero(draw: Draw, rows: str) -> Iterator[Yielded]:
    """A query with cotangents of 0 has a gradient of 0, and contributes 0 to other gradients."""
    for problem in draw.problems(MASKED):
        found = cotangents(problem)
        found["d_output"][..., 1 if rows == "some" else slice(None), :] = 0
        yield problem.arguments | found


@chapter.group("GRAD-15", "NUM-8", operation=_VJP, each=("transposed", "positions first", "within", "sliced"))
def strides_of_the_cotangent(draw: Draw, layout: str) -> Iterator[Yielded]:
    """The cotangent of the output is read with its strides."""
    for problem in draw.in_each_dtype(SHAPES[4]):
        yield Call(problem.arguments | cotangents(problem), layout={"d_output": layout})


@chapter.group("GRAD-15", "NUM-8", operation=_VJP)
def cotangent_with_strides_of_zero(draw: Draw) -> Iterator[Yielded]:
    """The cotangent has a stride of 0 over heads, like the derivative of a mean over heads."""
    for problem in draw.in_each_dtype(SHAPES[4]):
        found = cotangents(problem)["d_output"]
        found = np.array(np.broadcast_to(found[..., :1, :, :], found.shape))
        yield Call(problem.arguments | {"d_output": found}, layout={"d_output": "repeated"})


@chapter.group("GRAD-15", "NUM-4", operation=_VJP)
def cotangents_left_alone(draw: Draw) -> Iterator[Yielded]:
    """Inputs and cotangents have the same bytes after the call."""
    for problem in draw.in_each_dtype(MASKED[0]):
        yield Calls((problem.arguments | cotangents(problem),), _only_called, live=True, beside=True)


def _only_called(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Make the calls only. The inputs are compared in every call of the suite."""
    call(backend, calls[0].operation, calls[0].arguments)
    return None


@chapter.group("NUM-9", operation=_VJP, each=("plain", "is_causal"))
def gradients_repeated(draw: Draw, option: str) -> Iterator[Yielded]:
    """The same call gives the same gradients three times, on more than one tile."""
    for problem in draw.in_each_dtype(_TILED[0]):
        own = {"is_causal": True} if option == "is_causal" else {}
        yield Calls((problem.arguments | cotangents(problem) | own,), _repeats, live=True, beside=True)


def _repeats(backend: Backend, calls: tuple[Case, ...]) -> Found:
    first, *others = [call(backend, calls[0].operation, calls[0].arguments) for _ in range(3)]
    return next(
        (found for other in others for name in first if (found := same_bits(name, other[name], first[name]))),
        None,
    )


@chapter.group("GRAD-19", "NUM-2", "NUM-5", operation=_VJP, each=("flat", "peaked", "large", "shifted"))
def every_gradient_in_its_budget(draw: Draw, kind: str) -> Iterator[Yielded]:
    """Gradients are within their budgets for weights nearly equal or near 0 and 1, and other amplitudes."""
    for index, dtype in enumerate(DTYPES):
        problem = draw.problem(
            Shape((2,), 9, 24, 8, 6), dtype, index, {"flat": 0.1, "peaked": 4.0}.get(kind, 1)
        )
        found = problem.arguments | cotangents(problem)
        if kind == "large":
            found |= {"value": found["value"] * 16, "d_output": found["d_output"] / 8}
        if kind == "shifted":  # further than exponentials reach in float32
            signs = np.where(np.arange(problem.shape[-2]) % 2, -1, 1)[:, None]
            found["bias"] = (128 * signs).astype(dtype)
        yield found


@chapter.group("GRAD-19", operation=_VJP, each=("plain", *OPTIONS))
def gradients_past_every_tile(draw: Draw, option: str) -> Iterator[Yielded]:
    """The last query and the last key count as the first do, alone and with each option."""
    for shape in _TILED:
        for problem in draw.in_each_dtype(shape, dtypes=("float32",)):
            needs, own = (
                draw_option(problem, option) if option in OPTIONS and shape is _TILED[0] else ({}, {})
            )
            if shape is _TILED[0] or option == "plain":
                yield problem.arguments | needs | own | cotangents(problem, lse=option == "sinks")


@chapter.group("GRAD-20", operation=_VJP)
def gradients_have_no_bias(draw: Draw) -> Iterator[Yielded]:
    """With cotangents and values of one sign, rounding errors add up if they are biased."""
    for dtype in SHORT:
        random = np.random.default_rng(draw.number())
        shapes = draw.shapes(Shape((), 32, 24, 16, 16))
        arguments = {name: random.normal(size=shapes[name]).astype(dtype) for name in ("query", "key")}
        arguments["value"] = (1 + random.random(shapes["value"])).astype(dtype)
        rows = (*shapes["query"][:-1], shapes["value"][-1])
        arguments["d_output"] = (1 + random.random(rows)).astype(dtype)
        forward = {name: arguments[name] for name in ("query", "key", "value")}
        yield Calls((arguments, Call(forward, operation="attention")), _is_unbiased)


def _is_unbiased(backend: Backend, calls: tuple[Case, ...]) -> Found:
    """Compare the summed errors of the values' gradient with the bound for unbiased rounding."""
    case, forward = calls
    weights = np.swapaxes(expected(forward)["weights"], -1, -2)
    allowed = budget(case.operation, case.arguments, case.dtype, profile=backend.profile)["d_value"]
    share = signed_sum(
        call(backend, case.operation, case.arguments)["d_value"].astype(np.float64),
        expected(case)["d_value"],
        allowed,
        dtype=case.dtype,
        cast=(weights, case.arguments["d_output"].astype(np.float64)),
    )
    return (
        f"d_value: errors of one sign add up to {share:.3g} times what chance leaves" if share > 1 else None
    )
