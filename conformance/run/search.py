"""Search for failing calls of attention and its forms with random valid arguments, and shrink them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

from attnspec import OPERATIONS, Case
from attnspec.backends import Backend, BackendError
from attnspec.backends.constraints import fits
from attnspec.conformance.judge.expected import expected
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite.drawn_stacks import OPTIONS as OPTIONS_OF_FORMS
from attnspec.conformance.suite.drawn_stacks import Sizes, draw_call, options_of
from attnspec.conformance.suite.options import EXCLUSIVE, OPTIONS, draw_option
from attnspec.conformance.suite.problem import Problem, Shape, fitted, grid
from attnspec.conformance.verdict import Verdict
from attnspec.dialect import in_dtype
from attnspec.golden import write_cases
from attnspec.sizes import misfits, output_shapes

#: At most one axis is longer than a tile, because the oracle computes with exact fractions.
_LONG = (9, 17, 33, 65)
#: The resolution of the numbers. Integers come first, because examples shrink to simple numbers.
_GRAINS = (1, 4, 64)
_AMPLITUDES = (1.0, 0.125, 4.0, 16.0)
#: Arguments of codes, each of which has a default.
_OF_CODES = ("_scales", "_zero_points", "encoding")
#: Values are never infinite: times a weight that underflows to 0 they give NaN in correct code.
_SPECIAL = (*product(("query", "key"), (np.nan, np.inf, -np.inf)), ("value", np.nan))


@dataclass(frozen=True)
class Counterexample:
    """The smallest failing call that a search found."""

    case: Case
    verdict: Verdict


def search(backend: Backend, number: int, seed: int | None = None) -> Counterexample | None:
    """Make random calls of attention and of its forms, with all arguments that a backend takes.

    Raises
    ------
    BackendError
        If it offers no operation of which calls are drawn.
    """
    if not operations_to_search(backend):
        raise BackendError(
            f"backend {backend.name}: expected attention or a form of it but sharded_attention, "
            "got no operation that --search draws calls of"
        )
    found: list[Counterexample] = []

    @hypothesis.seed(seed or 0)
    @hypothesis.settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=False,
        report_multiple_bugs=False,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(calls(backend))
    def put(case: Case) -> None:
        try:
            expected(case, in_dtype(backend.dialect, case.dtype))
        except ValueError:  # the specification does not define the result
            hypothesis.reject()
        verdict = judge(backend, case)
        if verdict.bad:
            found[:] = [Counterexample(case, verdict)]
            raise _Found

    try:
        put()
    except _Found:
        return found[0]
    except hypothesis.errors.Unsatisfiable as error:
        raise BackendError(
            f"backend {backend.name}: expected a function that takes some drawn call, got none: "
            "its arguments and constraints leave no call"
        ) from error
    except hypothesis.errors.Flaky:  # the failure is not repeatable
        return replace(found[0], verdict=replace(found[0].verdict, repeatable=False))
    return None


def operations_to_search(backend: Backend) -> list[str]:
    """Return the operations of which calls are drawn: attention, and its forms but that over ranks."""
    drawn = [name for name, form in OPERATIONS.items() if form.layers and "sharded" not in form.layers]
    return [name for name in ("attention", *drawn) if backend.function(name) is not None]


class _Found(Exception):  # noqa: N818 - what Hypothesis shrinks
    """A call failed."""


def calls(backend: Backend) -> st.SearchStrategy[Case]:
    """Draw valid calls, with the operations, the dtypes and the arguments that a backend takes."""
    forms = [name for name in operations_to_search(backend) if OPERATIONS[name].layers]
    of_attention = [calls_of_attention(backend)] if "attention" in operations_to_search(backend) else []
    of_forms = [st.sampled_from(forms).flatmap(partial(calls_of_form, backend))] if forms else []
    return st.one_of(*of_attention, *of_forms)


@st.composite
def calls_of_form(draw: st.DrawFn, backend: Backend, operation: str) -> Case:
    """Draw a valid call of a form or of a stack of forms, or of its gradients."""
    layers = OPERATIONS[operation].layers
    count = draw(st.integers(1, 3))
    queries, keys = (draw(st.lists(st.integers(0, most), min_size=count, max_size=count)) for most in (5, 9))
    groups, shared = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    depths = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    fit = fitted(Shape((groups * shared,), 0, 0, *depths, groups), backend.constraints)
    queries = [1] * count if backend.constraints.one_query else queries
    sizes = Sizes(
        heads=(groups * shared, fit.key_outer[0]),
        depths=(fit.depth, fit.value_depth),
        queries=tuple(queries) if "packed" in layers else (queries[0],) * count,
        keys=tuple(keys),
        page=draw(st.integers(1, 4)),
        rest=(draw(st.integers(0, 2)), draw(st.integers(0, 2))),
        encoding=backend.constraints.encoding or ("" if backend.has(operation, "encoding") else "int8"),
    )
    names = [name for name in options_of(layers) if draw(st.integers(0, 3)) == 3]
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    dtype = draw(st.sampled_from(backend.dtypes))
    arguments = draw_call(random, dtype, layers, sizes, *names)
    lacking = [name for name in arguments if name.endswith(_OF_CODES) and not backend.has(operation, name)]
    arguments = {name: x for name, x in arguments.items() if name not in lacking}
    gradients = f"{operation}_vjp"
    if gradients in OPERATIONS and backend.function(gradients) is not None and draw(st.booleans()):
        shape = output_shapes(operation, arguments)["output"]
        operation, arguments["d_output"] = gradients, grid(random, shape, 1.0).astype(dtype)
    hypothesis.assume(all(backend.has(operation, name) for name in arguments))
    hypothesis.assume(not misfits(operation, arguments))
    hypothesis.assume(not fits(backend.constraints, arguments, operation))
    rules = dict.fromkeys(rule for name in names for rule in OPTIONS_OF_FORMS[name][0])
    rules |= {OPERATIONS[operation].results[0].rule: None}
    return _case(operation, names, tuple(rules), arguments)


@st.composite
def calls_of_attention(draw: st.DrawFn, backend: Backend) -> Case:
    """Draw a valid call of attention."""
    problem = _problem(draw, backend)
    arguments: dict[str, Any] = dict(problem.arguments)
    own: dict[str, Mapping[str, Any]] = {}
    # A quarter of the options, drawn independently, so that shrinking can remove each.
    names = [name for name in OPTIONS if draw(st.integers(0, 3)) == 3]
    for name in names:
        if name.endswith("lengths") and min(problem.shape[-2:]) == 1:
            continue  # no length is between none and all
        if any((other, name) in EXCLUSIVE for other in own):
            continue
        if name == "positions" and not {"is_causal", "window"} & own.keys():
            continue  # they would have no effect but for places without a key
        # Each option has its own numbers, so that removing one does not change another.
        needs, its = draw_option(replace(problem, random=np.random.default_rng([*map(ord, name)])), name)
        if all(backend.has("attention", argument) for argument in (*needs, *its)):
            arguments |= {**needs, **its}
            own[name] = its
    for name in ("mask", "bias", "dropout_mask"):
        if name in arguments and draw(st.booleans()):
            arguments[name] = problem.broadcastable(arguments[name])
    special = draw(st.lists(st.tuples(st.sampled_from(_SPECIAL), st.integers(0, 7)), max_size=2))
    for (name, value), place in special:
        arguments[name] = arguments[name].copy()
        arguments[name].flat[place % arguments[name].size] = value
    return _case("attention", names, _rules(own, {name for (name, _), _ in special}), arguments)


def _case(operation: str, names: list[str], rules: tuple[str, ...], arguments: Mapping[str, Any]) -> Case:
    title = f"found by a search: {', '.join(names) or 'no options'}"
    return Case("errors-search-1", title, "errors", operation, rules, arguments, group="search")


def _problem(draw: st.DrawFn, backend: Backend) -> Problem:
    short = st.integers(1, 3)
    groups = draw(short)
    outer = draw(st.one_of(st.just(()), st.tuples(short), st.tuples(short, short)))
    if outer:
        outer = (*outer[:-1], outer[-1] * groups)
    sizes = [draw(st.integers(1, 5)) for _ in range(4)]
    axis = draw(st.sampled_from((None, 0, 1, 2, 3)))
    if axis is not None:
        sizes[axis] = draw(st.sampled_from(_LONG))
    queries, keys, depth, value_depth = sizes
    shape = Shape(outer, queries, keys, depth, value_depth, groups if outer else 1)
    grain, amplitude = draw(st.sampled_from(_GRAINS)), draw(st.sampled_from(_AMPLITUDES))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    dtype = draw(st.sampled_from(backend.dtypes))

    def array(axes: tuple[int, ...], amplitude: float) -> Any:
        return (np.round(random.normal(size=axes) * amplitude * grain) / grain + 0.0).astype(dtype)

    return Problem(
        array((*shape.outer, shape.queries, shape.depth), amplitude),
        array((*shape.key_outer, shape.keys, shape.depth), amplitude),
        array((*shape.key_outer, shape.keys, shape.value_depth), 1.0),
        random,
    )


def _rules(own: Mapping[str, Mapping[str, Any]], special: set[str]) -> tuple[str, ...]:
    """List the rules that a call tests; NaN in a masked place is not subject to a MUST."""
    masks = any(OPTIONS[name].rule.startswith("MASK") or "bias" in its for name, its in own.items())
    rules = [OPTIONS[name].rule for name in own] or ["SOFT-1"]
    if special:
        return tuple(
            dict.fromkeys(["MASK-13" if masks else "NUM-12" if special == {"value"} else "NUM-11", *rules])
        )
    return tuple(dict.fromkeys([*rules, "ERR-3"] if own else rules))


def store(
    backend: Backend, found: Counterexample, folder: Path, source: str = "search"
) -> tuple[Verdict, list[str]]:
    """Store the call of a counterexample in a folder. Return the verdict, and the call in words."""
    name = "".join(letter if letter.isalnum() else "-" for letter in backend.name)
    path = folder / f"{name}-{source}.json"
    write_cases([found.case], path)
    # The case is named by its file, because it is not in the suite.
    verdict = replace(found.verdict, case=str(path))
    return verdict, [f"{name} = {_text(thing)}" for name, thing in found.case.arguments.items()]


def _text(thing: Any) -> str:
    if not isinstance(thing, np.ndarray):
        return repr(thing)
    if thing.size > 100:
        return f"{thing.dtype} of shape {thing.shape}"
    return f"{thing.tolist()} ({thing.dtype})"
