"""The chapter `numerics`: dtypes, precision, budgets, inputs left alone."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.suite.datasets import DATASETS, problem
from attnspec.conformance.extent import examples, tried
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.judge.rounding_bias import signed_mean
from attnspec.conformance.suite.options import OPTIONS, drawn, takes
from attnspec.conformance.suite.problem import MASKED, SETTINGS, SHAPES, problem_of, problems
from attnspec.conformance.suite import Record, check, check_golden, exact, golden, observed, require, rule
from attnspec.reference.budget.budget import budget

#: Those of the data sets' sizes whose exact values take milliseconds.
_SIZES = ((1, 1, 1), (3, 7, 4), (7, 16, 16), (4, 31, 8), (8, 32, 3))
#: Sizes past every tile, with depths that are no multiple of 8; (L, S, D).
_LARGE = ((5, 65, 13), (17, 33, 72), (2, 257, 40), (33, 9, 20))


@golden("numerics")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@rule("NUM-1")
def test_the_result_has_the_dtype_of_the_query(backend: Backend) -> None:
    """In every dtype, with and without options that bring numbers of their own."""
    for dtype in backend.dtypes:
        one = np.ones((2, 3, 4), dtype)
        every: tuple[dict[str, Any], ...] = ({}, {"scale": 0.5}, {"is_causal": True})
        for options in (them for them in every if takes(backend, them)):
            for name, array in observed(backend, {"query": one, "key": one, "value": one} | options).items():
                if name != "lse" and str(array.dtype) != dtype:
                    raise Failure("NUM-1", f"{name}: got dtype {array.dtype}, expected {dtype}")


@rule("NUM-2", variants=("float32",))
def test_float64_is_computed_in_float64(backend: Backend, record_property: Record) -> None:
    """On a problem where float32 shows; a backend that declares float32 must show it."""
    if "float64" not in backend.dtypes:
        pytest.skip(f"{backend.name} has no float64")
    random = np.random.default_rng(64)
    arguments = {name: random.normal(size=(2, 8, 4)) for name in ("query", "key", "value")}
    values = exact(arguments)
    judgement = judge(backend, "NUM-2", "attention", arguments, lambda: values)
    record_property("used", ("float64", judgement.share, judgement.accuracy))
    if "NUM-2" in backend.dialect:
        output = observed(backend, arguments)["output"]
        allowed = budget("attention", arguments, "float64")["output"]
        if compare("output", output, values["output"], allowed, "float64").share <= 1:
            raise Failure("NUM-2", "output: float64 throughout, although the variant `float32` is declared")
        record_property("deviates", "NUM-2")


@rule("NUM-3")
@SETTINGS
@given(data=st.data())
def test_every_element_within_its_budget(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Plain problems of every shape, from flat to sharply peaked rows."""
    check(backend, "NUM-3", data.draw(problems(backend)).arguments, record_property)


@rule("NUM-3")
@pytest.mark.parametrize("dataset", DATASETS)
@settings(SETTINGS, max_examples=examples(6))
@given(size=st.sampled_from(_SIZES), seed=st.integers(0, 2**16), data=st.data())
def test_named_data_sets(
    dataset: str,
    size: tuple[int, int, int],
    seed: int,
    data: st.DataObject,
    backend: Backend,
    record_property: Record,
) -> None:
    """Data on which rounding shows: flat, peaked, shifted, cancelling, tiny, around the edges of tiles."""
    drawn = problem(dataset, size, data.draw(st.sampled_from(backend.dtypes)), seed)
    check(backend, "NUM-3", drawn.arguments, record_property)


@rule("NUM-3", "SCORE-2")
@pytest.mark.parametrize("size", _LARGE)
def test_sizes_past_every_tile(size: tuple[int, int, int], backend: Backend, record_property: Record) -> None:
    """No key, query or feature is lost past a tile, and the scale is that of the depth as it is."""
    for dtype in ("float32", "float64"):
        if dtype in backend.dtypes:
            check(backend, "NUM-3", problem("plain", size, dtype, 1).arguments, record_property)


@rule("NUM-5", variants=("storage",))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(dtype: str, backend: Backend, record_property: Record) -> None:
    """On problems where half precision shows; a backend that declares `storage` must show it."""
    if dtype not in backend.dtypes:
        pytest.skip(f"{backend.name} has no {dtype}")
    declared = backend.dialect.get("NUM-5") == "storage"
    seen = False
    for seed in range(4):
        random = np.random.default_rng(seed)
        depth = (16, 24)[seed % 2]  # the one has a scale that every dtype holds, the other has not
        shapes = {"query": (2, 3, depth), "key": (2, 40, depth), "value": (2, 40, depth)}
        arguments = {name: (2 * random.normal(size=shape)).astype(dtype) for name, shape in shapes.items()}
        judgement = judge(backend, "NUM-5", "attention", arguments, partial(exact, arguments))
        record_property("used", (dtype, judgement.share, judgement.accuracy))
        seen |= judgement.accuracy == "storage"
    if declared:
        if not seen:
            raise Failure("NUM-5", "output: float32 throughout, although the variant `storage` is declared")
        record_property("deviates", "NUM-5")


@rule("NUM-6")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_has_no_bias(dtype: str, backend: Backend) -> None:
    """On values of one sign, where everything that is cut off adds up."""
    if dtype not in backend.dtypes:
        pytest.skip(f"{backend.name} has no {dtype}")
    random = np.random.default_rng(6)
    arguments = {name: random.normal(size=(48, 32)).astype(dtype) for name in ("query", "key")}
    arguments["value"] = (1 + random.random((48, 32))).astype(dtype)
    values = exact(arguments)
    cast = values["weights"], arguments["value"].astype(np.float64)
    allowed = budget("attention", arguments, dtype)["output"]
    output = observed(backend, arguments)["output"].astype(np.float64)
    share = signed_mean(output, values["output"], allowed, dtype=dtype, cast=cast)
    if share > 1:
        raise Failure("NUM-6", f"output: errors of one sign add up to {share:.3g} times what chance leaves")


@rule("NUM-4")
@pytest.mark.parametrize("option", OPTIONS)
def test_inputs_are_left_as_they_were(option: str, backend: Backend) -> None:
    """Every array given is compared, byte by byte, after each call of the suite; here with each option."""
    for dtype in backend.dtypes:
        problem = problem_of(MASKED[0], dtype, 4)
        needs, own = drawn(problem, option)
        observed(backend, problem.arguments | needs | own)


@rule("NUM-4")
def test_inputs_are_left_as_they_were_beside_each_other(backend: Backend) -> None:
    """Mask, bias and what else is of the scores' shape, in one call: one is not written into another."""
    for dtype in tried(backend.dtypes):
        problem = problem_of(MASKED[0], dtype, 4)
        every = ("mask", "bias", "dropout", "sinks", "is_causal")
        options = [drawn(problem, name)[1] for name in every]
        taken = {name: thing for own in options if takes(backend, own) for name, thing in own.items()}
        observed(backend, problem.arguments | taken)


@rule("NUM-7")
@pytest.mark.parametrize("level", [0.0, 300.0, -300.0])
def test_the_lse_is_held_in_float32(level: float, backend: Backend, record_property: Record) -> None:
    """A few hundred, where bfloat16 is off by one: scores that all stand at that level."""
    require(backend, "return_lse")
    for dtype in backend.dtypes:
        problem = problem_of(SHAPES[4], dtype, 7)
        query, key = problem.query.copy(), problem.key.copy()
        query[..., 0], key[..., 0] = level / 8, 8  # 300 / 8 is a number of bfloat16
        arguments = problem.arguments | {"query": query, "key": key}
        arguments |= {"scale": 1.0} if backend.has("attention", "scale") else {}
        check(backend, "NUM-7", arguments, record_property)


@rule("NUM-9")
@pytest.mark.parametrize("option", [None, "mask", "is_causal"], ids=["plain", "mask", "causal"])
def test_a_call_repeated(option: str | None, backend: Backend) -> None:
    """The same bits three times over, on more than one tile."""
    for dtype in backend.dtypes:
        large = problem("plain", (17, 33, 72), dtype, 9)
        arguments: dict[str, Any] = {"query": large.query, "key": large.key, "value": large.value}
        every = {"mask": np.random.default_rng(9).random((17, 33)) < 0.7, "is_causal": True}
        arguments |= {option: every[option]} if option else {}
        first, *others = [observed(backend, arguments) for _ in range(3)]
        for other in others:
            for name, array in other.items():
                if array.tobytes() != first[name].tobytes():
                    raise Failure("NUM-9", f"{name}, {dtype}: got other bits on a call repeated")


@rule("NUM-10")
def test_a_batch_entry_alone(backend: Backend) -> None:
    """Each entry by itself, against itself in its batch."""
    for dtype in backend.dtypes:
        batch = problem_of(SHAPES[4], dtype, 10).arguments
        whole = observed(backend, batch)
        for entry in range(2):
            alone = observed(backend, {name: array[entry : entry + 1] for name, array in batch.items()})
            for name, array in alone.items():
                if array.tobytes() != whole[name][entry : entry + 1].tobytes():
                    raise Failure("NUM-10", f"{name}, {dtype}: got other bits for an entry alone")
