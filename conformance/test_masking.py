"""The chapter `masking`: who may attend to what."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnspec import Case
from attnspec.backends import Backend
from attnspec.conformance.extent import examples, tried
from attnspec.conformance.suite.options import biased, offset, segments, window
from attnspec.conformance.suite.problem import MASKED, SETTINGS, SHAPES, problem_of, problems
from attnspec.conformance.suite import Record, check, check_golden, exact, golden, rule

_LONG = tuple(shape for shape in SHAPES if shape.queries < shape.keys and len(shape.outer) != 1)


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


@rule("MASK-1")
@SETTINGS
@given(data=st.data())
def test_a_mask_of_true_says_nothing(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """All keys allowed is no mask."""
    problem = data.draw(problems(backend))
    mask = np.ones(problem.shape, dtype=bool)
    expected = exact(problem.arguments)
    check(backend, "MASK-1", problem.arguments | {"mask": mask}, record_property, expected=expected)


@rule("MASK-2")
@SETTINGS
@given(data=st.data())
def test_minus_infinity_in_the_bias(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Minus infinity disallows, while other numbers of the same bias are added."""
    problem = data.draw(problems(backend))
    check(backend, "MASK-2", problem.arguments | {"bias": biased(problem)}, record_property)


@rule("MASK-1", "MASK-2")
@SETTINGS
@given(data=st.data())
def test_a_boolean_mask_and_its_additive_form(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """0 for True and minus infinity for False give what the boolean mask gives."""
    problem = data.draw(problems(backend))
    mask = problem.mask()
    bias = np.where(mask, 0, -np.inf).astype(problem.query.dtype)
    expected = exact(problem.arguments | {"mask": mask})
    check(backend, "MASK-2", problem.arguments | {"bias": bias}, record_property, expected=expected)


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


@rule("MASK-3", variants=("bottom-right",))
@SETTINGS
@given(data=st.data())
def test_causal(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """The lower triangle with its diagonal, counted from the top left, for L below, at and above S."""
    problem = data.draw(problems(backend))
    check(backend, "MASK-3", problem.arguments | {"is_causal": True}, record_property)


@rule("MASK-7")
@SETTINGS
@given(data=st.data())
def test_causal_with_an_offset(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """One for all or one for each batch entry, negative and past the last key among them."""
    problem = data.draw(problems(backend, MASKED))
    arguments = problem.arguments | {"is_causal": True} | offset(problem)
    check(backend, "MASK-7", arguments, record_property)


@rule("MASK-3", "MASK-7")
@SETTINGS
@given(data=st.data())
def test_the_last_query_on_the_last_key(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """The bottom-right alignment is the offset S - L, for L below, at and above S."""
    problem = data.draw(problems(backend, MASKED))
    queries, keys = problem.shape[-2:]
    arguments = problem.arguments | {"is_causal": True, "query_offset": keys - queries}
    check(backend, "MASK-7", arguments, record_property)


@rule("MASK-7")
@SETTINGS
@given(data=st.data())
def test_an_offset_alone_moves_nothing(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Without a causal mask or a window there is nothing for it to move."""
    problem = data.draw(problems(backend, MASKED))
    masked = problem.arguments | {"mask": problem.mask()}
    check(backend, "MASK-7", masked | offset(problem), record_property, expected=exact(masked))


@rule("MASK-8", variants=("exclusive-left",))
@pytest.mark.parametrize("beside", ["alone", "causal", "offset", "causal and offset"])
@settings(SETTINGS, max_examples=examples(16))
@given(data=st.data())
def test_windows(beside: str, data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Bounds of None, 0, 1, 2, S and S + 1 on either side."""
    problem = data.draw(problems(backend, MASKED))
    options = window(problem)
    if "causal" in beside:
        options["is_causal"] = True
    if "offset" in beside:
        options |= offset(problem)
    check(backend, "MASK-8", problem.arguments | options, record_property)


@rule("MASK-8")
@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_a_window_wider_than_any_sequence(side: str, backend: Backend, record_property: Record) -> None:
    """The largest integer of 32 bits, as some write an open side: with a position added it overflows."""
    widest = 2**31 - 1
    bounds = {"left": (widest, 0), "right": (0, widest), "both": (widest, widest)}
    for dtype in tried(backend.dtypes):
        problem = problem_of(MASKED[0], dtype, 8)
        check(backend, "MASK-8", problem.arguments | {"window": bounds[side]}, record_property)


@rule("MASK-9")
@SETTINGS
@given(data=st.data())
def test_key_lengths(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """From 0, which leaves nothing, to S, which leaves everything."""
    problem = data.draw(problems(backend, MASKED))
    lengths = problem.integers(0, problem.shape[-1])
    check(backend, "MASK-9", problem.arguments | {"key_lengths": lengths}, record_property)


@rule("MASK-10")
@SETTINGS
@given(data=st.data())
def test_query_lengths(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """From 0, which leaves nothing, to L, which leaves everything."""
    problem = data.draw(problems(backend, MASKED))
    lengths = problem.integers(0, problem.shape[-2])
    check(backend, "MASK-10", problem.arguments | {"query_lengths": lengths}, record_property)


@rule("MASK-9")
@SETTINGS
@given(data=st.data())
def test_key_lengths_do_not_move_the_causal_diagonal(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Positions are counted as ever, whatever part of the keys is used."""
    problem = data.draw(problems(backend, MASKED))
    options = {"is_causal": True, "key_lengths": problem.integers(1, problem.shape[-1])}
    check(backend, "MASK-9", problem.arguments | options, record_property)


@rule("MASK-9", "MASK-7")
@SETTINGS
@given(data=st.data())
def test_key_lengths_are_not_moved_by_an_offset(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """A length counts from the first key, wherever the queries stand."""
    problem = data.draw(problems(backend, MASKED))
    keys = problem.shape[-1]
    options = {"query_offset": problem.integers(1, keys), "key_lengths": problem.integers(1, keys - 1)}
    check(backend, "MASK-9", problem.arguments | options, record_property)


@rule("MASK-11")
@SETTINGS
@given(data=st.data())
def test_segments(data: st.DataObject, backend: Backend, record_property: Record) -> None:
    """Ids are compared and nothing else: unsorted, negative, zero and large."""
    problem = data.draw(problems(backend, MASKED))
    check(backend, "MASK-11", problem.arguments | segments(problem), record_property)


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
        options["bias"] = biased(problem)
    if "causal" in sources or sources == "all":
        options["is_causal"] = True
    check(backend, "MASK-4", problem.arguments | options, record_property)


@rule("MASK-5")
@pytest.mark.parametrize("route", ["mask", "key_lengths"])
@SETTINGS
@given(data=st.data())
def test_what_stands_in_disallowed_keys_cannot_be_seen(
    route: str, data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Large numbers in keys and values that nobody may attend to, against the same problem without them."""
    problem = data.draw(problems(backend, _LONG))
    keys = problem.key.shape[-2]
    gone = np.arange(keys) >= keys // 2 + 1
    if route == "mask":
        gone = problem.random.permutation(gone)
    left = {"query": problem.query, "key": problem.key[..., ~gone, :], "value": problem.value[..., ~gone, :]}
    values, weights = exact(left), np.zeros(problem.shape)
    weights[..., ~gone] = values["weights"]
    key, value = problem.key.copy(), problem.value.copy()
    key[..., gone, :] *= 1000  # at most some 16000: float16 ends at 65504
    value[..., gone, :] = -10000
    arguments = {"query": problem.query, "key": key, "value": value}
    arguments |= {"mask": ~gone} if route == "mask" else {"key_lengths": keys - int(gone.sum())}
    check(backend, "MASK-5", arguments, record_property, expected=values | {"weights": weights})


@rule("MASK-5")
@SETTINGS
@given(data=st.data())
def test_a_score_below_any_sentinel_is_still_a_score(
    data: st.DataObject, backend: Backend, record_property: Record
) -> None:
    """Allowed keys with scores around -20000 outweigh disallowed ones with scores around 0."""
    problem = data.draw(problems(backend))
    mask = problem.mask()
    bias = np.where(mask, problem.array(*problem.shape) - 20000, 0).astype(problem.query.dtype)
    check(backend, "MASK-5", problem.arguments | {"mask": mask, "bias": bias}, record_property)
