"""Variants: a declared one is verified where it shows, and an undeclared one fails by name."""

from dataclasses import replace

import numpy as np
import pytest
from test_judge import MASKED, PORTABLE, asked, golden
from tests_support import backend_of

from attnspec import reference
from attnspec.backends import DTYPES, Backend
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find
from attnspec.dtypes import numpy_dtype


@pytest.mark.parametrize("name", ["bias", "boolean", "causal"])
def test_normalising_over_the_whole_matrix_is_told_by_name(name):
    verdict = judge(backend_of("whole_matrix"), golden(f"masking-004-{name}"))
    assert (verdict.status, verdict.rule, verdict.variant) == ("fail", "SOFT-1", "matrix")


def test_a_declared_variant_is_verified_and_an_undeclared_one_fails():
    case = golden("masking-004-causal")
    declaring = judge(backend_of("whole_matrix", dialect={"SOFT-1": "matrix"}), case)
    assert (declaring.status, declaring.rule, declaring.variant) == ("deviation", "SOFT-1", "matrix")
    pretending = Backend("p", PORTABLE.array_library, PORTABLE.attention, dialect={"SOFT-1": "matrix"})
    assert judge(pretending, case).status == "fail"


@pytest.mark.parametrize(
    ("lse", "status"),
    [
        (-2.4e38, "deviation"),
        (-49993.98, "deviation"),
        (-10001.0, "deviation"),
        (-10000.0, "fail"),
        (0.0, "fail"),
        (np.inf, "fail"),
        (np.nan, "fail"),
    ],
)
def test_the_variant_finite_takes_an_lse_that_is_low_and_no_other(lse, status):
    """For the empty row, the last, alone: the first keeps its exact value."""

    def attention(query, key, value, *, mask=None, return_lse=False):
        output, found = PORTABLE.attention(query, key, value, mask=mask, return_lse=True)
        found = np.where(found == -np.inf, lse, found).astype(found.dtype)
        return (output, found) if return_lse else output

    dialect = {"MASK-8": "exclusive-left", "SOFT-7": "finite"}
    backend = replace(PORTABLE, attention=attention, companions={}, dialect=dialect)
    verdict = judge(backend, asked("SOFT-7", MASKED))
    assert (verdict.status, verdict.rule) == (status, "SOFT-7")
    assert judge(replace(backend, dialect={}), asked("SOFT-7", MASKED)).status == "fail"


@pytest.mark.parametrize(
    ("first", "second", "sunk", "status"),
    [
        (np.inf, np.inf, False, "deviation"),
        (np.inf, -np.inf, False, "deviation"),
        (-np.inf, -np.inf, False, "pass"),
        (np.inf, 0.0, False, "fail"),
        (np.inf, np.nan, False, "fail"),
        (np.inf, np.inf, True, "deviation"),
        (np.inf, -np.inf, True, "fail"),
    ],
)
def test_the_variant_plus_infinity_takes_minus_infinity_in_rows_of_nothing_without_sinks(
    first, second, sunk, status
):
    """For the two empty rows, one by one."""

    def attention(query, key, value, *, key_lengths=None, sinks=None, return_lse=False):
        options = {"key_lengths": key_lengths, "sinks": sinks}
        output, found = PORTABLE.attention(query, key, value, **options, return_lse=True)
        found = np.where(key_lengths == np.zeros_like(found), [first, second], found).astype(found.dtype)
        return (output, found) if return_lse else output

    backend = replace(PORTABLE, attention=attention, companions={}, dialect={"SOFT-7": "plus-infinity"})
    arguments = {name: MASKED[name][None] for name in ("query", "key", "value")} | {"key_lengths": 0}
    if sunk:
        arguments["sinks"] = np.ones(1)
    verdict = judge(backend, asked("SOFT-7", arguments))
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "SOFT-7")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case_id", ["softmax-002", "notation-value-depth", "scores-default-scale-2"])
def test_a_default_scale_of_one_is_named_and_verified(case_id, dtype):
    backend = replace(entry("no_default_scale").backend(), dtypes=DTYPES)
    case = find(f"{case_id}-{dtype}")
    undeclared = judge(backend, case)
    assert (undeclared.status, undeclared.rule, undeclared.variant) == ("fail", "SCORE-2", "one")
    declared = replace(backend, dialect={"SCORE-2": "one"})
    verdict = judge(declared, case)
    assert (verdict.status, verdict.rule, verdict.variant) == ("deviation", "SCORE-2", "one")
    assert judge(replace(declared, attention=PORTABLE.attention), case).status == "fail"


def key_position(query, key, *, query_offset=0, query_positions=None, key_positions=None):
    """The bias of BLOOM: slope times the key's position, from the slopes of the reference."""
    # minus slope times the position of the key
    first = reference.alibi_bias(query[..., :1, :], key, key_positions=key_positions)
    return np.broadcast_to(-first, (*query.shape[:-1], key.shape[-2])).astype(query.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [4, 12])
@pytest.mark.parametrize(
    "positions",
    [{}, {"query_positions": np.array([4, 0, 2]), "key_positions": np.array([3, 9, 0, 1, 3])}],
    ids=["indices", "positions"],
)
def test_a_bias_by_the_position_of_the_key_is_named_and_verified(heads, dtype, positions):
    """The slopes of 12 heads are rounded, also where the distance is 0 and nothing is taken away."""
    arrays = {"query": np.ones((heads, 3, 2)), "key": np.ones((heads, 5, 2))}
    arrays = {name: array.astype(numpy_dtype(dtype)) for name, array in arrays.items()}
    case = asked("POS-8", arrays | positions, "alibi_bias")
    backend = replace(PORTABLE, companions={"alibi_bias": key_position})
    undeclared = judge(backend, case)
    assert (undeclared.status, undeclared.rule, undeclared.variant) == ("fail", "POS-8", "key-position")
    declared = replace(backend, dialect={"POS-8": "key-position"})
    verdict = judge(declared, case)
    assert (verdict.status, verdict.rule, verdict.variant) == ("deviation", "POS-8", "key-position")
    assert judge(replace(declared, companions=PORTABLE.companions), case).status == "fail"
