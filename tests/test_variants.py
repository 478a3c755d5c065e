"""Variants: a declared one is verified where it shows, an undeclared one fails by name; emptied rows."""

from dataclasses import replace

import numpy as np
import pytest
from plain import plain
from test_judge import MASKED, PORTABLE, golden
from tests_support import backend_of, own_case

from attnspec import find_case, reference
from attnspec.backends import DTYPES, Backend, Deviation, load_library
from attnspec.backends.outcome import Unwritten, every_element
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


@pytest.mark.parametrize("axes", ["of-one", "missing"])
def test_repeated_batch_axes_are_verified_beside_tiled_heads(axes):
    """Keys without an axis of heads are shared by all of them, so that nothing is tiled."""

    def attention(query, key, value):
        wide = (np.broadcast_to(array, (*query.shape[:2], *array.shape[-2:])) for array in (key, value))
        return PORTABLE.attention(query, *wide)

    case = find(f"notation-batch-axes-not-repeated-{axes}-1-float32")
    backend = replace(PORTABLE, attention=attention, companions={}, dialect={"HEAD-1": "tiled"})
    assert judge(backend, case).status == "fail"
    verdict = judge(replace(backend, dialect={"HEAD-1": "tiled", "SHAPE-6": "broadcast"}), case)
    assert (verdict.status, verdict.rule, verdict.variant) == ("deviation", "SHAPE-6", "broadcast")


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
    verdict = judge(backend, own_case("SOFT-7", MASKED))
    assert (verdict.status, verdict.rule) == (status, "SOFT-7")
    assert judge(replace(backend, dialect={}), own_case("SOFT-7", MASKED)).status == "fail"


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
    verdict = judge(backend, own_case("SOFT-7", arguments))
    assert (verdict.status, verdict.rule) == (status, "" if status == "pass" else "SOFT-7")


def named_and_verified(backend, case, rule, variant):
    """The backend with the variant declared, whose verdict names it before and after."""
    declared = replace(backend, dialect={rule: variant})
    for one, status in ((backend, "fail"), (declared, "deviation")):
        verdict = judge(one, case)
        assert (verdict.status, verdict.rule, verdict.variant) == (status, rule, variant)
    return declared


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case_id", ["softmax-002", "notation-value-depth", "scores-default-scale-2"])
def test_a_default_scale_of_one_is_named_and_verified(case_id, dtype):
    backend = replace(entry("no_default_scale").backend(), dtypes=DTYPES)
    case = find(f"{case_id}-{dtype}")
    declared = named_and_verified(backend, case, "SCORE-2", "one")
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
    case = own_case("POS-8", arrays | positions, "alibi_bias")
    backend = replace(PORTABLE, companions={"alibi_bias": key_position})
    declared = named_and_verified(backend, case, "POS-8", "key-position")
    assert judge(replace(declared, companions=PORTABLE.companions), case).status == "fail"


BOTTOM_RIGHT = {"MASK-3": "bottom-right"}
RANDOM = np.random.default_rng(3)
ARRAYS = {name: RANDOM.normal(size=(rows, 4)) for name, rows in (("query", 5), ("key", 3), ("value", 3))}
CAUSAL = ARRAYS | {"is_causal": True}
GOLDEN = find_case("masking-causal-more-queries")
#: The rows of these calls that are empty if causality is aligned at the last key.
EMPTY = {"golden": 3, "generated": 2}
GENERATED = own_case("MASK-3", CAUSAL)
CASES = {"golden": GOLDEN, "generated": GENERATED}


def aligned_backend(change, *rules, dialect=BOTTOM_RIGHT):
    """A bottom-right implementation whose output and lse are changed."""

    def attention(query, key, value, *, is_causal=False, key_lengths=None, return_lse=False):
        mask = None if key_lengths is None else np.arange(key.shape[-2]) < key_lengths
        aligned = plain(*(["bottom-right"] if dialect else []))
        output, lse = aligned(query, key, value, is_causal=is_causal, mask=mask, return_lse=True)
        change(output, lse, value)
        return (output, lse) if return_lse else output

    free = Unwritten(every_element)  # these tests are about rules
    deviations = (Deviation(rules, "rows with nothing to attend to", "own", free),) if rules else ()
    library = load_library("numpy")
    return Backend("own", library, attention, ("float64",), dialect=dialect, deviations=deviations)


def verdict_of(name, change, *rules):
    return judge(aligned_backend(change, *rules), CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_rows_that_a_variant_leaves_empty_break_the_rule_about_empty_rows(name):
    rows = EMPTY[name]

    def mean(output, lse, value):
        output[:rows] = value.mean(axis=0)

    def seven(output, lse, value):
        output[:rows] = 7

    found = verdict_of(name, lambda *_: None)
    assert (found.status, found.rule) == ("deviation", "MASK-3")
    found = verdict_of(name, mean)
    assert (found.status, found.rule, found.variant) == ("fail", "MASK-6", "uniform")
    found = verdict_of(name, seven)
    assert (found.status, found.rule, found.variant) == ("fail", "MASK-6", "")
    for change in (mean, seven):
        assert verdict_of(name, change, "MASK-6").status == "deviation"
        assert verdict_of(name, change, "MASK-5").bad


@pytest.mark.parametrize("name", CASES)
def test_another_row_and_its_lse_have_their_own_rules(name):
    def wrong(output, lse, value):
        output[: EMPTY[name]] = value.mean(axis=0)
        output[EMPTY[name]] += 1

    found = verdict_of(name, wrong, "MASK-6")
    assert (found.status, found.rule) == ("fail", "MASK-3")

    def wrong(output, lse, value):
        lse[: EMPTY[name]] = 2

    assert verdict_of(name, wrong).rule == "SOFT-7"
    assert verdict_of(name, wrong, "SOFT-7").status == "deviation"
    assert verdict_of(name, wrong, "MASK-6").bad


def test_a_row_that_is_empty_without_the_dialect_breaks_the_rule_of_the_case():
    def wrong(output, lse, value):
        output[:] = 7

    empty = replace(GENERATED, rules=("MASK-9",), arguments=ARRAYS | {"key_lengths": 0})
    for dialect in (BOTTOM_RIGHT, {}):
        found = judge(aligned_backend(wrong, "MASK-6", dialect=dialect), empty)
        assert (found.status, found.rule) == ("fail", "MASK-9")


@pytest.mark.parametrize(("row", "rule"), [(1, "GRAD-10"), (2, "GRAD-1")])
def test_the_gradient_of_such_a_query_has_its_own_rule(row, rule):
    def wrong(query, key, value, d_output, *, is_causal=False):
        gradients = plain("bottom-right", operation="attention_vjp")(
            query, key, value, d_output, is_causal=is_causal
        )
        gradients[0][row] += 1
        return gradients

    backend = replace(aligned_backend(lambda *_: None), companions={"attention_vjp": wrong})
    arguments = CAUSAL | {"d_output": RANDOM.normal(size=(5, 4))}
    case = replace(GENERATED, operation="attention_vjp", rules=("GRAD-1",), arguments=arguments)
    assert judge(backend, case).rule == rule


def test_an_empty_row_whose_values_a_variant_changes_breaks_the_rule_about_empty_rows():
    """Minus infinity is added and causality is a finite number: the row is the mean of the other keys."""

    def attention(query, key, value, *, is_causal=False, bias=None):
        output = PORTABLE.attention(query, key, value, is_causal=is_causal, bias=bias)
        output[0] = value[1:].mean(axis=0)
        return output

    dialect = {"MASK-2": "added"}
    bias = np.where(np.arange(3) == 0, -np.inf, 0.0)
    case = replace(GENERATED, rules=("MASK-4",), arguments=CAUSAL | {"bias": bias})
    backend = replace(aligned_backend(lambda *_: None, "MASK-6", dialect=dialect), attention=attention)
    assert judge(backend, case).status == "deviation"
    found = judge(replace(backend, deviations=()), case)
    assert (found.status, found.rule) == ("fail", "MASK-6")
    # Without the variant, a wrong key in an empty row may break the rule of the case.
    assert judge(replace(backend, dialect={}), case).rule == "MASK-4"
