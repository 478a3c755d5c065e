"""Attention as a variant has it: green where the variant is declared, and named where it is not."""

from dataclasses import replace

import numpy as np
import pytest
from plain import in_storage, plain

from attnspec.backends import Backend, BackendError, load_library
from attnspec.backends.check import check_backend
from attnspec.conformance import check
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import groups
from attnspec.conformance.verdict import shown

DTYPES = ("float16", "bfloat16", "float32", "float64")


def backend_of(function, dialect):
    backend = Backend("mine", load_library("numpy"), function, DTYPES, dialect=dialect)
    check_backend("mine", backend)
    return backend


def judged(function, dialect, *names):
    """The verdicts on the groups of these names."""
    backend = backend_of(function, dialect)
    found = [group for group in groups() if group.name in names]
    assert sorted(group.name for group in found) == sorted(names)
    verdicts = [judge(backend, item) for group in found for item in group.items()]
    return [verdict for verdict in verdicts if verdict.status != "unsupported"]


HALF = "half precision is computed in float32"
LARGE = (
    HALF,
    "common shift: 10000.0",
    "another dtype: bias and large",
    "score below any sentinel",
    "scores far below zero beside causal: 40960 and first tile",
    "rows of the lowest bias: all keys",
    "long sums in half precision: 2049",
)
EMPTY = ("empty row: mask and all", "empty row: bias and first", "every source must allow: mask and bias")
SUNK = ("empty row with a sink: all", "empty row: mask and first")
CAPPED = ("large options of scores in pairs: softcap and bias", "cap on the scaled score alone")
CAUSAL = ("causal", "finite garbage: is_causal and large", "broadcast mask beside: one row and is_causal")
WINDOWS = ("windows: alone", "windows: causal", "empty rows at the ends: last, by a window past the keys")
FILLED = {"MASK-6": {"mask": "uniform"}, "SOFT-7": "finite"}
VARIANTS = {
    "storage": (in_storage(*DTYPES[:2]), {"NUM-5": "storage"}, LARGE),
    "storage in each": (in_storage(*DTYPES[:2]), {"NUM-5": dict.fromkeys(DTYPES[:2], "storage")}, LARGE[:2]),
    "storage in float16": (in_storage("float16"), {"NUM-5": {"float16": "storage"}}, LARGE),
    "bottom-right": (plain("bottom-right"), {"MASK-3": "bottom-right"}, CAUSAL),
    "bottom-right of windows": (plain("bottom-right"), {"MASK-3": "bottom-right"}, WINDOWS),
    "uniform": (plain("filled"), FILLED, EMPTY),
    "uniform beside sinks": (plain("filled"), FILLED, SUNK),
    "after-bias": (plain("after-bias"), {"SCORE-5": "after-bias"}, CAPPED),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_declared_variant_is_no_failure_and_an_undeclared_one_is_named(name):
    function, dialect, names = VARIANTS[name]
    declared = judged(function, dialect, *names)
    assert [verdict for verdict in declared if verdict.bad] == []
    assert not_shown(backend_of(function, dialect), shown(declared)) == []
    bare = [verdict for verdict in judged(function, {}, *names) if verdict.bad]
    # Where an output and an lse are wrong, the output is named.
    assert {verdict.rule for verdict in bare if verdict.variant} == set(dialect) - {"SOFT-7"}


def test_a_variant_of_some_dtypes_is_a_failure_in_the_others():
    storing = judged(in_storage(*DTYPES[:2]), {"NUM-5": {"float16": "storage"}}, HALF)
    assert {verdict.dtype for verdict in storing if verdict.bad} == {"bfloat16"}


def test_a_variant_of_one_route_is_a_failure_of_the_other():
    wrong = judged(plain("filled"), {"MASK-6": {"bias": "uniform"}}, *EMPTY[:2])
    assert {verdict.group for verdict in wrong if verdict.bad} == set(EMPTY[:2])


def test_a_variant_that_is_not_shown_in_one_of_its_dtypes_is_an_error():
    dialect = {"NUM-5": dict.fromkeys(DTYPES[:2], "storage")}
    verdicts = judged(in_storage("float16"), dialect, HALF)
    (missing,) = not_shown(backend_of(plain(), dialect), shown(verdicts))
    assert "`storage` in bfloat16" in missing.reason


def test_every_variant_that_a_case_shows_counts_whatever_the_order():
    for rules in (("MASK-6", "SOFT-7"), ("SOFT-7", "MASK-6")):
        dialect = {rule: FILLED[rule] for rule in rules}
        verdicts = judged(plain("filled"), dialect, EMPTY[0])
        assert not_shown(backend_of(plain(), dialect), shown(verdicts)) == []


def test_a_finite_lse_is_named_by_its_own_rule():
    def finite(query, key, value, *, mask=None, return_lse=False):
        output, lse = plain()(query, key, value, mask=mask, return_lse=True)
        return (output, np.where(np.isneginf(lse), -3.4e38, lse).astype(lse.dtype)) if return_lse else output

    found = judged(finite, {}, "empty row: mask and first")
    assert {(verdict.rule, verdict.variant) for verdict in found} == {("SOFT-7", "finite")}


@pytest.mark.exhaustive
def test_a_function_without_state_is_not_blamed_for_state():
    def doubled(query, key, value, *, is_causal=False):
        return 2 * plain()(query, key, value, is_causal=is_causal)

    report = check(doubled, rules=["ERR-13", "SOFT-1"], quick=True).text
    assert "SOFT-1 Weights are the softmax of each row\n" in report
    assert "ERR-13 A call does not depend on other calls\n" not in report


def test_a_conversion_that_rounds_is_not_blamed_on_the_call():
    library = load_library("numpy")

    def shortened(array, device):
        return library.to_library(array, device).astype(np.float32).astype(array.dtype)

    short = replace(library, to_library=shortened)
    backend = replace(backend_of(plain(), {}), array_library=short)
    group = next(group for group in groups() if group.name == "float64 is computed in float64")
    assert {judge(backend, item).rule for item in group.items()} <= {"NUM-1", "NUM-2"}


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ({"MASK-6": {"rows": "nan"}}, "of the routes mask, bias, got 'rows'"),
        ({"NUM-5": {"mask": "storage"}}, "NUM-5: expected some of the dtypes float16.*, got 'mask'"),
        ({"MASK-6": {"float32": "nan", "mask": "nan"}}, "MASK-6: expected some of the dtypes"),
        ({"NUM-5": {"float16": "purple"}}, "NUM-5: expected storage, got 'purple'"),
        ({"NUM-5": {}}, "NUM-5: expected storage, got {}"),
        ({"SOFT-2": "nan"}, "got the rule 'SOFT-2', which has none"),
        (["MASK-6"], "expected a mapping of rule ids to variants"),
    ],
)
def test_a_wrong_declaration_says_what_was_expected(dialect, words):
    with pytest.raises(BackendError, match=words):
        backend_of(plain(), dialect)
