"""The chapter `masking`: who may attend to what."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.strategies import SETTINGS, Problem, grid, problems
from attnspec.conformance.suite import Record, check, check_golden, exact, golden, rule

#: Which rows are left without a key. A rule may hold for the first row and fail for one in the middle.
_ROWS = {"first": slice(0, 1), "middle": slice(2, 3), "last": slice(-1, None), "all": slice(None)}


@golden("masking")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@rule("MASK-1")
@pytest.mark.parametrize("axes", ["full", "queries and keys", "keys"])
@SETTINGS
@given(data=st.data())
def test_boolean_mask_of_every_broadcast_shape(
    axes: str, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """False disallows, True allows."""
    problem = data.draw(problems(backend))
    mask = problem.mask()
    leading = (0,) * (mask.ndim - 2)
    mask = {"full": mask, "queries and keys": mask[leading], "keys": mask[(*leading, -1)]}[axes]
    check(backend, "MASK-1", problem.arguments | {"mask": mask}, record_property)


@rule("MASK-2")
@SETTINGS
@given(data=st.data())
def test_minus_infinity_in_the_bias(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Minus infinity disallows, while other numbers of the same bias are added."""
    problem = data.draw(problems(backend))
    bias = np.where(problem.mask(), problem.array(*problem.shape), -np.inf).astype(problem.query.dtype)
    check(backend, "MASK-2", problem.arguments | {"bias": bias}, record_property)


@rule("MASK-2")
@SETTINGS
@given(data=st.data())
def test_a_large_negative_bias_is_a_number(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Where every key has it, it cancels."""
    problem = data.draw(problems(backend))
    bias = np.full(problem.shape, -30000.0, dtype=problem.query.dtype)
    check(backend, "MASK-2", problem.arguments | {"bias": bias, "scale": 0.25}, record_property)


@rule("MASK-3")
@SETTINGS
@given(data=st.data())
def test_causal(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """The lower triangle with its diagonal, counted from the top left, for L below, at and above S."""
    problem = data.draw(problems(backend))
    check(backend, "MASK-3", problem.arguments | {"is_causal": True}, record_property)


@rule("MASK-4")
@pytest.mark.parametrize("sources", ["mask and bias", "mask and causal", "bias and causal", "all"])
@SETTINGS
@given(data=st.data())
def test_every_source_must_allow(
    sources: str, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Mask, bias and causal given together each take keys away."""
    problem = data.draw(problems(backend))
    options: dict[str, Any] = {}
    if "mask" in sources or sources == "all":
        options["mask"] = problem.mask()
    if "bias" in sources or sources == "all":
        options["bias"] = np.where(problem.mask(), problem.array(*problem.shape), -np.inf).astype(
            problem.query.dtype
        )
    if "causal" in sources or sources == "all":
        options["is_causal"] = True
    check(backend, "MASK-4", problem.arguments | options, record_property)


@rule("MASK-5")
@SETTINGS
@given(data=st.data())
def test_what_stands_in_disallowed_keys_cannot_be_seen(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Large numbers in keys and values that nobody may attend to, against the same problem without them."""
    problem = data.draw(problems(backend, (((), 3, 5, 4, 4), ((2, 3), 5, 7, 4, 4))))
    keys = problem.key.shape[-2]
    gone = np.zeros(keys, dtype=bool)
    gone[problem.random.permutation(keys)[: keys // 2]] = True
    left = {"query": problem.query, "key": problem.key[..., ~gone, :], "value": problem.value[..., ~gone, :]}
    values, weights = exact(left), np.zeros(problem.shape)
    weights[..., ~gone] = values["weights"]
    key, value = problem.key.copy(), problem.value.copy()
    key[..., gone, :] *= 1000  # at most some 16000: float16 ends at 65504
    value[..., gone, :] = -10000
    arguments = {"query": problem.query, "key": key, "value": value, "mask": ~gone}
    expected = {"output": values["output"], "weights": weights}
    check(backend, "MASK-5", arguments, record_property, expected=expected)


@rule("MASK-5")
@SETTINGS
@given(data=st.data())
def test_a_score_below_any_sentinel_is_still_a_score(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Allowed keys with scores around -20000 outweigh disallowed ones with scores around 0."""
    problem = data.draw(problems(backend, (((), 3, 5, 4, 4), ((2,), 4, 4, 3, 3))))
    mask = problem.mask()
    bias = np.where(mask, problem.array(*problem.shape) - 20000, 0).astype(problem.query.dtype)
    check(backend, "MASK-5", problem.arguments | {"mask": mask, "bias": bias}, record_property)


@rule("MASK-6")
@pytest.mark.parametrize("place", ["first", "middle", "last", "all"])
def test_a_row_with_nothing_to_attend_to(place: str, backend: Backend, record_property: Record) -> None:
    """A row that the boolean mask leaves empty, or the declared variant of it."""
    for dtype in backend.dtypes:
        problem = _problem(dtype)
        mask = problem.mask()
        rows = _ROWS[place]
        mask[..., rows, :] = False
        _check_empty(backend, "MASK-6", problem, {"mask": mask}, rows, record_property)


@rule("MASK-6", "MASK-2")
@pytest.mark.parametrize("place", ["first", "middle", "last", "all"])
def test_a_row_of_minus_infinity(place: str, backend: Backend, record_property: Record) -> None:
    """The same, reached by the bias."""
    for dtype in backend.dtypes:
        problem = _problem(dtype)
        rows = _ROWS[place]
        bias = problem.array(*problem.shape)
        bias[..., rows, :] = -np.inf
        _check_empty(backend, "MASK-2", problem, {"bias": bias}, rows, record_property)


@rule("MASK-6")
def test_no_keys_at_all(backend: Backend, record_property: Record) -> None:
    """With S = 0 every row is empty, and there is nothing to take a mean of."""
    for dtype in backend.dtypes:
        arguments = {
            "query": np.ones((2, 3, 4), dtype),
            "key": np.ones((2, 0, 4), dtype),
            "value": np.ones((2, 0, 4), dtype),
        }
        check(backend, "MASK-6", arguments, record_property)


def _problem(dtype: str) -> Problem:
    random = np.random.default_rng(66)
    query, key, value = (grid(random, (n, 2), 1.0).astype(dtype) for n in (4, 5, 5))
    return Problem(query, key, value, random)


def _check_empty(
    backend: Backend,
    rule_id: str,
    problem: Problem,
    options: dict[str, NDArray[Any]],
    rows: slice,
    record: Record,
) -> None:
    """Check rows without an allowed key against 0, or against the variant that the backend declares."""
    arguments = problem.arguments | options
    values = exact(arguments)
    # A backend that turns -inf into False has the variant of MASK-6 by either route.
    variant = backend.dialect.get(rule_id) or backend.dialect.get("MASK-6")
    if variant in ("nan", "added"):
        values["output"][..., rows, :] = values["weights"][..., rows, :] = np.nan
    if variant == "uniform":
        values["output"][..., rows, :] = problem.value.astype(np.float64).mean(axis=-2, keepdims=True)
        values["weights"][..., rows, :] = 1 / problem.value.shape[-2]
    check(backend, rule_id, arguments, record, expected=values)
    if variant is not None:
        record("deviates", rule_id if rule_id in backend.dialect else "MASK-6")
