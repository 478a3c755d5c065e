"""The chapter `dropout`: what a given choice of dropped weights does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.suite.options import dropout
from attnspec.conformance.suite.problem import MASKED, SETTINGS, SHAPES, problems
from attnspec.conformance.suite import Record, check, check_golden, exact, golden, require, rule


@golden("dropout")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@rule("DROP-1", "DROP-2")
@SETTINGS
@given(data=st.data())
def test_dropped_and_kept(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Masks of every shape that broadcasts, and rates that are not the share of what they drop."""
    problem = data.draw(problems(backend))
    check(backend, "DROP-1", problem.arguments | dropout(problem), record_property)


@rule("DROP-1")
@SETTINGS
@given(data=st.data())
def test_dropping_at_a_rate_of_zero(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """What is left does not grow: the output loses just the dropped weights' part."""
    problem = data.draw(problems(backend, SHAPES[1:]))
    mask = problem.mask()
    check(backend, "DROP-1", problem.arguments | {"dropout_mask": mask}, record_property)


@rule("DROP-2")
@pytest.mark.parametrize("rate", [0.0, 0.25, 0.9])
@SETTINGS
@given(data=st.data())
def test_kept_weights_are_divided(
    rate: float, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Equal scores, nothing dropped: each weight is 1 / n over 1 - rate."""
    problem = data.draw(problems(backend, MASKED))
    arguments = problem.arguments | {
        "query": np.zeros_like(problem.query),
        "dropout_mask": np.ones(problem.shape, dtype=bool),
        "dropout_rate": rate,
    }
    expected = {"weights": np.full(problem.shape, 1 / problem.shape[-1] / (1 - rate))}
    check(backend, "DROP-2", arguments, record_property, expected=expected)


@rule("DROP-1", "SOFT-1")
@SETTINGS
@given(data=st.data())
def test_a_row_whose_weights_are_all_dropped(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Its output is 0, and it is no row with nothing to attend to: it has an lse."""
    problem = data.draw(problems(backend, MASKED))
    mask = np.ones(problem.shape, dtype=bool)
    mask[..., 1, :] = False
    arguments = problem.arguments | {"dropout_mask": mask, "dropout_rate": 0.5}
    check(backend, "DROP-1", arguments, record_property)


@rule("DROP-3")
@SETTINGS
@given(data=st.data())
def test_the_lse_knows_nothing_of_dropout(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """It is that of the same call without."""
    require(backend, "return_lse", "dropout_mask")
    if "SOFT-6" in backend.dialect:
        pytest.skip(f"{backend.name} declares another logarithm")
    problem = data.draw(problems(backend))
    expected = {"lse": exact(problem.arguments)["lse"]}
    arguments = problem.arguments | dropout(problem)
    check(backend, "DROP-3", arguments, record_property, expected=expected)
