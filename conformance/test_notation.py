"""The chapter `notation`: axes, shapes, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.suite.problem import GROUPED, SETTINGS, SHAPES, Shape, problems
from attnspec.conformance.suite import (
    Record,
    check,
    check_golden,
    check_refused,
    exact,
    golden,
    observed,
    require,
    rule,
)

_BATCHED = tuple(shape for shape in SHAPES if len(shape.outer) == 2)
#: As many queries as keys among them, where rows could be taken for heads.
_FLAT = (*(shape for shape in SHAPES if not shape.outer), Shape((), 4, 4, 3, 3))
_OBLONG = tuple(shape for shape in SHAPES if shape.queries != shape.keys)
#: (batch entries, heads, queries, keys)
_EMPTY = {
    "batch": (0, 2, 3, 5),
    "queries": (2, 2, 0, 5),
    "keys": (2, 2, 3, 0),
    "queries and keys": (2, 2, 0, 0),
}


@golden("notation")
def test_golden(case: Case, dtype: str, backend: Backend, record_property: Record) -> None:
    """Golden vectors of the chapter."""
    check_golden(backend, case, dtype, record_property)


@rule("SHAPE-1")
@SETTINGS
@given(data=st.data())
def test_each_head_of_each_batch_entry_stands_alone(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """A batch of heads gives, head by head, what each head gives by itself."""
    problem = data.draw(problems(backend, _BATCHED))
    heads = np.ndindex(*problem.query.shape[:-2])
    alone = [exact({name: array[index] for name, array in problem.arguments.items()}) for index in heads]
    outer = problem.query.shape[:-2]
    expected = {
        name: np.stack([one[name] for one in alone]).reshape(*outer, *alone[0][name].shape)
        for name in alone[0]
    }
    check(backend, "SHAPE-1", problem.arguments, record_property, expected=expected)


@rule("SHAPE-2")
@SETTINGS
@given(data=st.data())
def test_two_axes_are_one_head(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Inputs without batch and head axes give a result without them."""
    problem = data.draw(problems(backend, _FLAT))
    check(backend, "SHAPE-2", problem.arguments, record_property)


@rule("SHAPE-3", "SHAPE-5")
@SETTINGS
@given(data=st.data())
def test_more_queries_than_keys_and_fewer(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """The output has the queries' positions, however many keys there are."""
    problem = data.draw(problems(backend, _OBLONG))
    check(backend, "SHAPE-5", problem.arguments, record_property)


@rule("SHAPE-4")
@SETTINGS
@given(data=st.data())
def test_weights_have_a_row_for_each_query(data: st.DataObject, backend: Backend) -> None:
    """The shape of weights that are returned, where it tells rows from columns."""
    require(backend, "return_weights")
    problem = data.draw(problems(backend, _OBLONG))
    weights = observed(backend, problem.arguments)["weights"]
    if weights.shape != problem.shape:
        raise Failure("SHAPE-4", f"weights: got shape {weights.shape}, expected {problem.shape}")


@rule("SHAPE-4")
def test_weights_of_a_square_problem_are_not_transposed(backend: Backend) -> None:
    """With as many queries as keys no shape tells rows from columns; that rows sum to 1 does."""
    require(backend, "return_weights")
    random = np.random.default_rng(4)
    arrays = {name: random.normal(size=(2, 5, 5)).astype("float32") for name in ("query", "key", "value")}
    options = {"scale": 2.0} if backend.has("attention", "scale") else {}
    weights = observed(backend, arrays | options)["weights"]
    if not np.allclose(weights.sum(axis=-1), 1, atol=1e-5):
        raise Failure("SHAPE-4", "weights: got rows that do not sum to 1, expected a row for each query")


@rule("SHAPE-8")
@SETTINGS
@given(data=st.data())
def test_the_lse_has_one_number_for_each_query(data: st.DataObject, backend: Backend) -> None:
    """No axis of 1 at its end, and no keys."""
    require(backend, "return_lse")
    problem = data.draw(problems(backend, (*SHAPES, *GROUPED)))
    lse = observed(backend, problem.arguments)["lse"]
    if lse.shape != problem.shape[:-1]:
        raise Failure("SHAPE-8", f"lse: got shape {lse.shape}, expected {problem.shape[:-1]}")


@rule("SHAPE-7")
@pytest.mark.parametrize("is_causal", [False, True], ids=["plain", "causal"])
@pytest.mark.parametrize("empty", _EMPTY)
def test_nothing_to_compute(empty: str, is_causal: bool, backend: Backend, record_property: Record) -> None:
    """No batch entries, no queries, or no keys: results of the right shapes."""
    batch, heads, queries, keys = _EMPTY[empty]
    shapes: dict[str, tuple[int, ...]] = {"query": (batch, heads, queries, 4)}
    shapes |= dict.fromkeys(("key", "value"), (batch, heads, keys, 4))
    options: dict[str, Any] = {"is_causal": True} if is_causal else {}
    check(backend, "SHAPE-7", _ones(backend, shapes) | options, record_property)


_MISFITS: dict[str, dict[str, tuple[int, ...]]] = {
    "depth of key": {"query": (2, 3, 4), "key": (2, 5, 3), "value": (2, 5, 4)},
    "positions of value": {"query": (2, 3, 4), "key": (2, 5, 4), "value": (2, 6, 4)},
    # A fused kernel may look at four axes only, and read past the end of the shorter one.
    "more positions of value": {"query": (2, 2, 3, 4), "key": (2, 2, 5, 4), "value": (2, 2, 6, 4)},
    "fewer positions of value": {"query": (2, 2, 3, 4), "key": (2, 2, 5, 4), "value": (2, 2, 4, 4)},
    "no positions of value": {"query": (2, 2, 3, 4), "key": (2, 2, 5, 4), "value": (2, 2, 0, 4)},
    "no positions of key": {"query": (2, 2, 3, 4), "key": (2, 2, 0, 4), "value": (2, 2, 5, 4)},
    "batch of key and value": {"query": (2, 2, 3, 4), "key": (3, 2, 5, 4), "value": (3, 2, 5, 4)},
    "batch of value": {"query": (2, 2, 3, 4), "key": (2, 2, 5, 4), "value": (3, 2, 5, 4)},
}


@rule("SHAPE-6")
@pytest.mark.parametrize("misfit", _MISFITS)
def test_what_does_not_fit_is_refused(misfit: str, backend: Backend) -> None:
    """Each way in which the three arrays can disagree raises an error."""
    check_refused(backend, "SHAPE-6", _ones(backend, _MISFITS[misfit]))


@rule("MASK-1", "SCORE-4")
@pytest.mark.parametrize("name", ["mask", "bias"])
def test_what_does_not_broadcast_to_the_scores_is_refused(name: str, backend: Backend) -> None:
    """Axes that are swapped or of another size."""
    arguments = _ones(backend, {"query": (2, 3, 4), "key": (2, 5, 4), "value": (2, 5, 4)})
    for shape in ((5, 3), (4,), (2, 4, 5)):
        array = np.ones(shape, bool if name == "mask" else backend.dtypes[0])
        check_refused(backend, {"mask": "MASK-1", "bias": "SCORE-4"}[name], arguments | {name: array})


@rule("SHAPE-6", variants=("broadcast",))
@pytest.mark.parametrize("outer", [(1, 2), ()], ids=["of one", "missing"])
def test_batch_axes_are_not_repeated(
    outer: tuple[int, ...], backend: Backend, record_property: Record
) -> None:
    """Broadcasting over batch axes is refused, or is the declared variant and does what it says."""
    shapes: dict[str, tuple[int, ...]] = {
        "query": (2, 2, 3, 4),
        "key": (*outer, 5, 4),
        "value": (*outer, 5, 4),
    }
    if backend.dialect.get("SHAPE-6") != "broadcast":
        check_refused(backend, "SHAPE-6", _ones(backend, shapes))
        return
    random = np.random.default_rng(6)
    arguments = {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    whole = {"query": (2, 2, 3, 4), "key": (2, 2, 5, 4), "value": (2, 2, 5, 4)}
    repeated = {name: np.broadcast_to(array, whole[name]) for name, array in arguments.items()}
    values = exact(repeated)
    output = observed(backend, arguments)["output"]
    if output.shape != values["output"].shape or not np.allclose(output, values["output"], atol=1e-5, rtol=0):
        raise Failure(
            "SHAPE-6", "output: expected an error, or the declared variant `broadcast`; got neither"
        )
    record_property("deviates", "SHAPE-6")


def _ones(backend: Backend, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    return {name: np.ones(shape, backend.dtypes[0]) for name, shape in shapes.items()}
