"""The chapter `projection`: tokens to queries, keys and values, in two conventions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.extent import tried
from attnspec.conformance.suite.problem import SETTINGS, grid
from attnspec.conformance.suite import Record, check, check_golden, golden, rule

#: (tokens, depth in, features): square among them, where a transposed weight raises no error.
_SIZES = ((3, 5, 2), (4, 4, 4), (1, 3, 3), (3, 3, 5))


@golden("projection")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@rule("PROJ-1", "PROJ-2", "PROJ-3")
@pytest.mark.parametrize("convention", ["row", "column"])
@SETTINGS
@given(size=st.sampled_from(_SIZES), seed=st.integers(0, 2**16), data=st.data())
def test_both_conventions(
    size: tuple[int, int, int],
    seed: int,
    data: st.DataObject,
    convention: str,
    backend: Backend,
    record_property: Record,
) -> None:
    """Rows are multiplied from the right, columns from the left, and the bias goes to the features."""
    count, depth, features = size
    random, dtype = np.random.default_rng(seed), data.draw(st.sampled_from(backend.dtypes))
    arrays = {
        "tokens": grid(random, (count, depth), 1.0).astype(dtype),
        "weight": grid(random, (depth, features), 1.0).astype(dtype),
    }
    if convention == "column":
        arrays = {name: np.ascontiguousarray(array.T) for name, array in arrays.items()}
    bias = grid(random, (features,), 1.0).astype(dtype)
    arguments = {**arrays, "bias": bias, "convention": convention}
    name = {"row": "PROJ-1", "column": "PROJ-2"}[convention]
    check(backend, name, arguments, record_property, operation="projection")


@rule("PROJ-3")
@pytest.mark.parametrize("convention", ["row", "column"])
def test_the_bias_is_one_number_a_feature(convention: str, backend: Backend, record_property: Record) -> None:
    """With a weight of zeros the result is the bias; as many tokens as features, where both axes would do."""
    bias = np.array([1.0, -2.0, 4.0])
    for dtype in tried(backend.dtypes):
        arguments = {"tokens": np.ones((2, 3, 3), dtype), "weight": np.zeros((3, 3), dtype)}
        arguments["bias"] = bias.astype(dtype)
        expected = np.broadcast_to(bias if convention == "row" else bias[:, None], (2, 3, 3))
        check(
            backend,
            "PROJ-3",
            {**arguments, "convention": convention},
            record_property,
            operation="projection",
            expected={"projected": expected},
        )


@rule("PROJ-5")
@pytest.mark.parametrize("convention", ["row", "column"])
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_self_attention_is_attention_of_three_projections(
    seed: int, data: st.DataObject, convention: str, backend: Backend, record_property: Record
) -> None:
    """Each of the three has its own weight and bias, and the result is in the convention of the tokens."""
    random, dtype = np.random.default_rng(seed), data.draw(st.sampled_from(backend.dtypes))
    arrays = {"tokens": grid(random, (5, 3), 1.0)}
    for name, features in (("query", 4), ("key", 4), ("value", 2)):
        arrays[f"{name}_weight"] = grid(random, (3, features), 1.0)
        arrays[f"{name}_bias"] = grid(random, (features,), 1.0)
    if convention == "column":
        arrays = {name: array.T if array.ndim == 2 else array for name, array in arrays.items()}
    cast = {name: np.ascontiguousarray(array).astype(dtype) for name, array in arrays.items()}
    arguments = {**cast, "convention": convention}
    check(backend, "PROJ-5", arguments, record_property, operation="self_attention")
