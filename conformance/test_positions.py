"""The chapter `positions`: rotary embedding, ALiBi."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.extent import tried
from attnspec.conformance.suite.problem import SETTINGS, grid
from attnspec.conformance.suite import Record, check, check_golden, exact, golden, require, rule


@golden("positions")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


def _features(backend: Backend, seed: int, data: st.DataObject) -> tuple[Any, np.random.Generator]:
    random, dtype = np.random.default_rng(seed), data.draw(st.sampled_from(backend.dtypes))
    return grid(random, (2, 3, 5, 8), 1.0).astype(dtype), random


@rule("POS-1", "POS-2", "POS-3", "POS-4")
@pytest.mark.parametrize("rotary_depth", [None, 2, 6, 8], ids=["default", "two", "six", "all"])
@pytest.mark.parametrize("interleaved", [False, True], ids=["half-split", "interleaved"])
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_both_layouts(
    interleaved: bool,
    rotary_depth: int | None,
    seed: int,
    data: st.DataObject,
    backend: Backend,
    record_property: Record,
) -> None:
    """Pairs half the rotary depth apart, or neighbours; what lies past it is left as it is."""
    require(backend, operation="rotary")
    features, random = _features(backend, seed, data)
    arguments: dict[str, Any] = {"features": features, "base": float(random.choice([10000.0, 2.0, 100.0]))}
    arguments |= {"interleaved": True} if interleaved else {}
    arguments |= {} if rotary_depth is None else {"rotary_depth": rotary_depth}
    layout = "POS-3" if interleaved else "POS-2"
    check(
        backend, "POS-4" if rotary_depth in (2, 6) else layout, arguments, record_property, operation="rotary"
    )


@rule("POS-5", "NUM-5")
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_the_offset_is_the_position_of_the_first_row(
    seed: int, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """One for all or one for each batch entry; far along, or before the beginning."""
    require(backend, "offset", operation="rotary")
    features, random = _features(backend, seed, data)
    low, high = ((-3, 4), (100, 1000))[int(random.integers(2))]
    offset = random.integers(low, high, 2) if random.random() < 0.5 else int(random.integers(low, high))
    check(backend, "POS-5", {"features": features, "offset": offset}, record_property, operation="rotary")


@rule("POS-5")
@SETTINGS
@given(seed=st.integers(0, 2**16), data=st.data())
def test_a_part_is_turned_as_in_the_whole(
    seed: int, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """The rows from n on, with the offset n, are those of all rows."""
    require(backend, "offset", operation="rotary")
    features, random = _features(backend, seed, data)
    whole = exact({"features": features}, "rotary")["rotated"]
    n = int(random.integers(1, 5))
    arguments = {"features": features[..., n:, :], "offset": n}
    expected = {"rotated": whole[..., n:, :]}
    check(backend, "POS-5", arguments, record_property, operation="rotary", expected=expected)


@rule("POS-8", "POS-7", variants=("signed",))
@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16])
def test_alibi(heads: int, backend: Backend, record_property: Record) -> None:
    """Slopes for numbers of heads that are powers of two and that are not, keys after the query too."""
    require(backend, operation="alibi_bias")
    for dtype in tried(backend.dtypes):
        arguments = {"query": np.ones((heads, 3, 2), dtype), "key": np.ones((heads, 4, 2), dtype)}
        check(backend, "POS-7", arguments, record_property, operation="alibi_bias")


@rule("POS-8")
@pytest.mark.parametrize("offset", [2, -1, np.array([3, 0])], ids=["two", "minus one", "each its own"])
def test_alibi_with_an_offset(offset: Any, backend: Backend, record_property: Record) -> None:
    """Distances are counted from the queries' positions; key heads may be fewer."""
    require(backend, "query_offset", operation="alibi_bias")
    for dtype in tried(backend.dtypes):
        arguments = {
            "query": np.ones((2, 6, 3, 2), dtype),
            "key": np.ones((2, 2, 5, 2), dtype),
            "query_offset": offset,
        }
        check(backend, "POS-8", arguments, record_property, operation="alibi_bias")
