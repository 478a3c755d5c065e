"""What a block of the report says of its failures: variants, arguments without effect, and every rule."""

import re
from dataclasses import replace

import pytest
from reported import RESULTS

from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.attribution.levels import count_by_rule
from attnspec.conformance.render.finding import finding_text
from attnspec.conformance.verdict import Difference, Raise, Verdict

OFF = Difference("value", "output", share=1e6)


def failing(number, *rules, status="fail", **fields):
    """Failures that differ in their case alone."""
    fields = {"dtype": "float32", "rule": rules[0], "difference": OFF, "group": "g"} | fields
    name = fields.pop("name", rules[0])
    return [Verdict("b", f"{name}-{n}-float32", rules=rules, status=status, **fields) for n in range(number)]


def passing(number, *rules, **fields):
    """Passing verdicts of calls with some traits."""
    return failing(number, *rules, status="pass", difference=None, **fields)


def refused(number, *rules, **fields):
    """Calls that must be refused and are not."""
    reason = "expected an error, got output of shape (2, 5)"
    return failing(number, *rules, difference=None, reason=reason, traits=("refused",), **fields)


def blocks(*lists):
    """The texts of the blocks."""
    every = [one for each in lists for one in each]
    return [finding_text(example) for example in findings([one for one in every if one.bad], every)]


def test_a_variant_is_named_where_all_failures_equal_it_and_needs_no_number():
    (text,) = blocks(failing(3, "SOFT-6", variant="base-2"))
    assert "equals the variant `base-2` of SOFT-6" in text
    assert "failing calls under" not in text


def test_a_variant_that_some_failures_do_not_equal_is_named_with_the_number_of_those_that_do():
    named = failing(7, "MASK-3", variant="bottom-right", traits=("is_causal",))
    others = failing(3, "MASK-3", name="other", traits=("is_causal",))
    golden = failing(2, "MASK-3", name="golden", traits=("is_causal",), group="")
    # These are not compared with variants.
    same = failing(2, "MASK-3", name="same", traits=("is_causal",), ignored="is_causal")
    bits = failing(1, "MASK-3", name="bits", traits=("is_causal",), difference=replace(OFF, kind="bits"))
    (text,) = blocks(named, others, golden, same, bits)
    assert "equals the variant `bottom-right` of MASK-3" in text
    assert "the variant `bottom-right`: 7 of 10 failing calls under MASK-3 equal it" in text


def test_a_variant_that_few_failures_equal_may_fit_by_chance_and_is_not_named():
    (text,) = blocks(failing(1, "SOFT-6", variant="base-2"), failing(4, "SOFT-6", name="other"))
    assert "variant" not in text


def test_the_call_that_is_shown_equals_the_variant_and_is_none_of_gradients():
    tiled = {"variant": "tiled", "traits": ("shared heads",)}
    gradient = failing(2, "HEAD-1", name="a", **{**tiled, "traits": ("gradient", "shared heads")})
    other = failing(1, "HEAD-1", name="b", traits=("shared heads",), precision="float16")
    (text,) = blocks(gradient, other, failing(2, "HEAD-1", name="z", numbers=99, **tiled))
    assert "case z-0, float32" in text
    assert "equals the variant `tiled` of HEAD-1" in text
    (text,) = blocks(gradient)
    assert "equals the variant `tiled` of HEAD-1" in text, "there are only gradients"


def test_an_argument_that_most_calls_with_it_ignore_is_named_in_the_block_of_its_rule():
    ignored = failing(6, "ERR-3", ignored="is_causal", traits=("is_causal",))
    own = failing(2, "MASK-3", name="golden", traits=("is_causal",), group="")
    special = failing(1, "NUM-11", traits=("is_causal",))
    plain = passing(40, "SOFT-1", name="plain")
    (text,) = blocks(ignored, own, special, plain)
    assert text.startswith("MASK-3 ")
    assert "the result is the same without `is_causal` in 6 of 7 failing calls with it" in text
    few = failing(8, "MASK-3", name="wrong", traits=("is_causal",))
    (text,) = blocks(ignored, few, plain)
    assert "the result is the same without" not in text


def test_what_is_left_over_is_not_said_to_have_one_cause():
    left = [
        failing(1, "GRAD-5", traits=("bias", "gradient", "softcap")),
        failing(1, "MASK-3", traits=("is_causal", "more queries"), group=""),
        failing(1, "MASK-5", traits=("bias", "large scores", "mask")),
        failing(1, "MASK-12", traits=("bias", "related")),
    ]
    traits = ("bias", "softcap"), ("is_causal", "more queries"), ("bias", "mask"), ("large scores",)
    good = [passing(30, "SOFT-1", name=f"p{n}", traits=one) for n, one in enumerate(traits)]
    several = [text for text in blocks(*left, *good) if "\nalso: " in text]
    assert several
    for text in several:
        assert "with the same cause" not in text
        assert ", which may have other causes: " in text
        for rule in re.findall(r"[A-Z]+-[0-9]+", text.partition("which may have other causes: ")[2]):
            assert f"\n    {rule}: case {rule}-0" in text


@pytest.mark.parametrize("number", [2, 12])
def test_what_is_not_refused_has_a_line_for_each_rule(number):
    own = refused(4, "ERR-2", group="refused: bias of booleans")
    golden = [replace(one, case="errors-mask-additive-float32") for one in refused(1, "ERR-4", group="")]
    others = [refused(1, f"ERR-{9 + n}", group=f"refused: fault {n}") for n in range(number)]
    (text,) = blocks(own, golden, *others)
    assert f"also: {number + 1} cases under {number + 1} other rules" in text
    assert "\n    ERR-2: bias of booleans\n" in text
    assert "\n    ERR-4: an additive mask given as the mask\n" in text
    assert text.count("\n    ERR-") == min(number + 2, 8)
    assert all(f"ERR-{9 + n}" in text for n in range(number)), "each rule is named, with a line or not"


def test_of_many_calls_under_a_rule_three_are_named():
    every = [refused(1, "ERR-2", name=str(n), group=f"refused: fault {n}") for n in range(5)]
    (text,) = blocks(*every)
    assert text.endswith("\n    ERR-2: fault 0; fault 1; fault 2 and 2 more")


def unnamed(verdicts):
    """The rules that fail in the table and are in no block."""
    text = "\n".join(blocks(verdicts))
    failing_rules = {
        rule for rule, counts in count_by_rule(verdicts).items() if counts["fail"] + counts["error"]
    }
    return failing_rules - {*re.findall(r"[A-Z]+-[0-9]+", text)}


def test_every_rule_that_fails_in_the_table_is_in_a_block():
    raised = Raise("ValueError", "mask must have two axes", "/m.py", 3, "f")
    error = {"status": "error", "difference": None, "raised": raised, "rule": ""}
    traits = ("is_causal",)
    many = [failing(1, rule, traits=traits) for rule in _NINE]
    verdicts = [
        *failing(5, "ERR-3", ignored="is_causal", traits=traits),
        *(one for each in many for one in each),
        *passing(40, "SOFT-1"),
        *failing(3, "MASK-1", "ERR-3", "HEAD-1", traits=("mask",), **error),
        *failing(2, "GRAD-9", "MASK-1", traits=("mask",), **error),
        *refused(3, "ERR-4"),
    ]
    assert unnamed(verdicts) == set()
    assert unnamed(RESULTS.verdicts) == set()
    assert unnamed([*failing(1, "ERR-3", traits=traits), *passing(9, "SOFT-1")]) == set()


#: More rules than were once named in a line.
_NINE = ("MASK-4", "MASK-5", "MASK-6", "MASK-7", "MASK-8", "MASK-9", "MASK-10", "MASK-11", "MASK-12", "NUM-1")


def test_the_numbers_of_the_table_are_told_where_they_are_larger_than_those_of_the_block():
    raised = Raise("ValueError", "mask must have two axes", "/m.py", 3, "f")
    error = {"status": "error", "difference": None, "raised": raised, "rule": "", "traits": ("mask",)}
    calls = failing(3, "MASK-1", "ERR-3", **error), failing(2, "GRAD-9", "MASK-1", **error)
    (text,) = blocks(*calls, passing(9, "SOFT-1"))
    assert "(and 2 more of b under MASK-1)" in text
    assert text.endswith(
        "the table counts an error under each rule of its case: 5 under MASK-1, 3 under ERR-3"
    )
