"""What differs only in empty rows that a declared variant changes breaks the rule about empty rows."""

from dataclasses import replace

import numpy as np
import pytest
from plain import plain
from plain_gradients import plain_gradients

from attnspec import Case, find_case
from attnspec.backends import Backend, Deviation, load_library
from attnspec.backends.outcome import Unwritten, every_element
from attnspec.conformance.judge.judge import judge

BOTTOM_RIGHT = {"MASK-3": "bottom-right"}
RANDOM = np.random.default_rng(3)
ARRAYS = {name: RANDOM.normal(size=(rows, 4)) for name, rows in (("query", 5), ("key", 3), ("value", 3))}
CAUSAL = ARRAYS | {"is_causal": True}
GOLDEN = find_case("masking-causal-more-queries")
#: The rows of these calls that are empty if causality is aligned at the last key.
EMPTY = {"golden": 3, "generated": 2}
GENERATED = Case("masking-own-1", "", "masking", "attention", ("MASK-3",), CAUSAL, group="own")
CASES = {"golden": GOLDEN, "generated": GENERATED}


def backend_of(change, *rules, dialect=BOTTOM_RIGHT):
    """A bottom-right implementation whose output and lse are changed."""

    def attention(query, key, value, *, is_causal=False, key_lengths=None, return_lse=False):
        mask = None if key_lengths is None else np.arange(key.shape[-2]) < key_lengths
        aligned = plain(bottom_right=bool(dialect))
        output, lse = aligned(query, key, value, is_causal=is_causal, mask=mask, return_lse=True)
        change(output, lse, value)
        return (output, lse) if return_lse else output

    free = Unwritten(every_element)  # these tests are about rules
    deviations = (Deviation(rules, "rows with nothing to attend to", "own", free),) if rules else ()
    library = load_library("numpy")
    return Backend("own", library, attention, ("float64",), dialect=dialect, deviations=deviations)


def verdict_of(name, change, *rules):
    return judge(backend_of(change, *rules), CASES[name])


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
def test_another_row_still_breaks_the_rule_of_the_case(name):
    def wrong(output, lse, value):
        output[: EMPTY[name]] = value.mean(axis=0)
        output[EMPTY[name]] += 1

    found = verdict_of(name, wrong, "MASK-6")
    assert (found.status, found.rule) == ("fail", "MASK-3")


@pytest.mark.parametrize("name", CASES)
def test_the_lse_of_such_a_row_has_its_own_rule(name):
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
        found = judge(backend_of(wrong, "MASK-6", dialect=dialect), empty)
        assert (found.status, found.rule) == ("fail", "MASK-9")


@pytest.mark.parametrize(("row", "rule"), [(1, "GRAD-10"), (2, "GRAD-1")])
def test_the_gradient_of_such_a_query_has_its_own_rule(row, rule):
    def wrong(query, key, value, d_output, *, is_causal=False):
        gradients = plain_gradients(bottom_right=True)(query, key, value, d_output, is_causal=is_causal)
        gradients[0][row] += 1
        return gradients

    backend = replace(backend_of(lambda *_: None), companions={"attention_vjp": wrong})
    arguments = CAUSAL | {"d_output": RANDOM.normal(size=(5, 4))}
    case = replace(GENERATED, operation="attention_vjp", rules=("GRAD-1",), arguments=arguments)
    assert judge(backend, case).rule == rule


def test_an_empty_row_whose_values_a_variant_changes_breaks_the_rule_about_empty_rows():
    """Minus infinity is added and causality is a finite number: the row is the mean of the other keys."""

    def attention(query, key, value, *, is_causal=False, bias=None):
        output = plain()(query, key, value, is_causal=is_causal, bias=bias)
        output[0] = value[1:].mean(axis=0)
        return output

    dialect = {"MASK-2": "added"}
    bias = np.where(np.arange(3) == 0, -np.inf, 0.0)
    case = replace(GENERATED, rules=("MASK-4",), arguments=CAUSAL | {"bias": bias})
    backend = replace(backend_of(lambda *_: None, "MASK-6", dialect=dialect), attention=attention)
    assert judge(backend, case).status == "deviation"
    found = judge(replace(backend, deviations=()), case)
    assert (found.status, found.rule) == ("fail", "MASK-6")
    # Without the variant, a wrong key in an empty row may break the rule of the case.
    assert judge(replace(backend, dialect={}), case).rule == "MASK-4"
