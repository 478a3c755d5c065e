"""What a backend declares is verified in sized cases too: variants, deviations and precisions."""

from dataclasses import replace

import numpy as np
import pytest
from sized_results import ITEM, PORTABLE, changed, right, unchanged, without_lse

from attnspec.backends import Deviation
from attnspec.backends.constraints import Constraints
from attnspec.backends.outcome import Bound, InDtype, OtherCall
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.sizes.chosen import chosen_rows


def judge_changed(change, item=ITEM, **options):
    """Judge the portable backend with changed results."""
    return judge(changed(change, **options), item)


#: A call whose rows are all judged, and one of arbitrary numbers, of which some rows are.
WORDS = pytest.mark.parametrize(
    "item", [ITEM, replace(ITEM, formula=replace(ITEM.formula, words=0))], ids=["all", "some"]
)


def bottom_right(query, key, value, *, is_causal=False, window=None, return_lse=False):
    options = {"is_causal": is_causal, "window": window, "return_lse": return_lse}
    offset = key.shape[-2] - query.shape[-2] if is_causal or window else 0
    return right(query, key, value, query_offset=offset, **options)


@WORDS
@pytest.mark.parametrize("options", [{"is_causal": True}, {"window": (5, 2)}], ids=str)
def test_a_variant_fails_undeclared_and_is_a_deviation_declared(item, options):
    backend = replace(PORTABLE, name="own", attention=bottom_right)
    short = replace(item, formula=replace(item.formula, options=options))
    verdict = judge(backend, short)
    assert (verdict.status, verdict.rule, verdict.difference.output) == ("fail", "MASK-3", "output")
    declared = judge(replace(backend, dialect={"MASK-3": "bottom-right"}), short)
    assert (declared.status, declared.rule, declared.variant) == ("deviation", "MASK-3", "bottom-right")
    assert "MASK-3" in declared.rules
    # Where the variant is what the rule says, it is no deviation.
    square = replace(short, formula=replace(short.formula, keys=40))
    assert judge(replace(backend, dialect={"MASK-3": "bottom-right"}), square).status == "pass"
    # What is declared and not done fails.
    assert judge(replace(PORTABLE, dialect={"MASK-3": "bottom-right"}), short).status == "fail"


@WORDS
def test_rows_without_a_key_are_compared_unless_a_variant_is_declared(item):
    formula = replace(item.formula, options={"key_lengths": (0, 600)})
    empty = replace(item, rules=("MASK-9",), formula=formula)
    empty.__dict__["seed"] = next(  # some of the chosen rows are in the first entry, which has no key
        seed for seed in range(99) if any(row[0] == 0 for row in chosen_rows((2, 4, 40), seed))
    )

    def nan(output, lse, _):
        output[0] = np.nan
        return output, lse

    def wrong(output, lse, _):
        output[0], output[-1, -1, -1] = np.nan, 7
        return output, lse

    assert judge_changed(unchanged, empty).status == "pass"
    verdict = judge_changed(nan, empty)
    assert (verdict.status, verdict.difference.kind, verdict.difference.element[0]) == ("fail", "pattern", 0)
    assert judge_changed(nan, empty, dialect={"MASK-6": "nan"}).status in ("pass", "deviation")
    other = judge_changed(wrong, empty, dialect={"MASK-6": "nan"})
    assert (other.status, other.difference.element[:3]) == ("fail", (1, 3, 39))


def bottom_right_without_lse(query, key, value, *, is_causal=False):
    return bottom_right(query, key, value, is_causal=is_causal)


@WORDS
def test_an_lse_in_base_2(item):
    def halved(output, lse, _):
        return output, lse / np.log(np.float32(2))

    assert judge_changed(halved, item).difference.output == "lse"
    base = {"SOFT-6": "base-2"}
    declared = judge_changed(halved, item, dialect=base)
    assert (declared.status, declared.rule) == ("deviation", "SOFT-6")
    assert judge_changed(unchanged, item, dialect=base).status == "fail"
    # Without an lse, its unit makes no difference.
    assert judge(replace(PORTABLE, attention=without_lse, dialect=base), item).status == "pass"
    aligned = replace(PORTABLE, attention=bottom_right_without_lse, dialect=base | {"MASK-3": "bottom-right"})
    found = judge(aligned, replace(item, formula=replace(item.formula, options={"is_causal": True})))
    assert (found.status, found.rule, found.variant) == ("deviation", "MASK-3", "bottom-right")


def test_a_declared_deviation_covers_its_rule_alone():
    def wrong(output, lse, _):
        return output + 1, lse

    far = Bound(1e12)
    covers, other = (Deviation((rule,), "it is off", "one", far) for rule in ("MASK-3", "SOFT-5"))
    verdict = judge_changed(wrong, deviations=(covers,))
    assert (verdict.status, verdict.reason, verdict.declared) == ("deviation", "it is off", (covers.id,))
    assert judge_changed(wrong, deviations=(other,)).status == "fail"
    near = Deviation(("MASK-3",), "it is off", "one", Bound(2))
    assert judge_changed(wrong, deviations=(near,)).status == "fail"


def test_beside_a_declared_output_the_other_one_is_judged():
    """A deviation of one output hides neither a wrong number nor a right one of the other."""

    def both(output, lse, _):
        output[1, 3, 39] += 1
        return output, lse.astype(np.float16)

    def of_output(output, lse, _):
        lse[1, 3, 39] += 1
        return output + 1, lse

    def narrow(output, lse, _):
        return output, lse.astype(np.float16)

    lse = Deviation(("NUM-7",), "its lse is short", "one", InDtype("float16"), outputs=("lse",))
    # A wrong dtype is seen before any number is, so the number is looked for afterwards.
    verdict = judge_changed(both, deviations=(lse,))
    assert (verdict.status, verdict.rule, verdict.difference.output) == ("fail", "MASK-3", "output")
    assert verdict.difference.element[:3] == (1, 3, 39)
    declared = judge_changed(narrow, deviations=(lse,))
    assert (declared.status, declared.rule, declared.declared) == ("deviation", "NUM-7", (lse.id,))
    assert 0 < declared.share < 1  # of the output
    # Its numbers are judged too.
    wrong = judge_changed(lambda found, lse, _: (found, (lse / 2).astype(np.float16)), deviations=(lse,))
    assert (wrong.status, wrong.difference.output) == ("fail", "lse")
    output = Deviation(("MASK-3",), "it is off", "two", Bound(1e12), outputs=("output",))
    verdict = judge_changed(of_output, deviations=(output,))
    assert (verdict.status, verdict.rule, verdict.difference.output) == ("fail", "MASK-3", "lse")
    # Each output may deviate as declared.
    several = judge_changed(lambda o, e, _: (o + 1, e.astype(np.float16)), deviations=(lse, output))
    assert (several.status, set(several.declared)) == ("deviation", {lse.id, output.id})


def in_float32(output, lse, every):
    """Attention of float64 arrays in float32."""
    narrow = in_dtype(every, "float32")
    arrays = [narrow.pop(name) for name in ("query", "key", "value")]
    found = right(*arrays, return_lse=True, **narrow)
    return tuple(one.astype(output.dtype) for one in found)


def in_float16(output, lse, every):
    """Attention of float64 arrays whose output is rounded to float16."""
    return output.astype(np.float16).astype(output.dtype), lse


def in_storage(_, lse, every):
    """Attention whose weights and their sums are kept in the dtype of the query."""
    query, key, value = (every[name] for name in ("query", "key", "value"))
    _, _, weights = right(**every, return_lse=True, return_weights=True)
    e = weights / weights.max(axis=-1, keepdims=True)
    values = np.repeat(value, query.shape[-3] // key.shape[-3], axis=-3)
    summed = np.cumsum(e[..., None] * values[..., None, :, :], axis=-2, dtype=query.dtype)[..., -1, :]
    return summed / np.cumsum(e, axis=-1, dtype=query.dtype)[..., -1:], lse


PRECISIONS = {"NUM-2": ("float32", "float64", in_float32), "NUM-5": ("storage", "float16", in_storage)}


@pytest.mark.parametrize("rule", PRECISIONS)
def test_a_declared_precision_has_its_own_budgets(rule):
    """Where it is declared, and only there, a result may be off as far as the precision allows."""
    variant, dtype, narrow = PRECISIONS[rule]
    item, dialect = replace(ITEM, dtype=dtype), {rule: variant}
    assert judge_changed(narrow, item).status == "fail"
    verdict = judge_changed(narrow, item, dialect=dialect)
    assert (verdict.status, verdict.rule, verdict.variant) == ("deviation", rule, variant)
    assert rule in verdict.rules
    assert verdict.accuracy == ("storage" if rule == "NUM-5" else "full")
    # It makes no difference to another dtype, nor where a result is better than declared.
    assert judge_changed(unchanged, ITEM, dialect=dialect).status == "pass"
    assert judge_changed(unchanged, item, dialect=dialect).status == "pass"

    def wrong(output, lse, every):
        output, lse = narrow(output, lse, every)
        output[1, 3, 17] += 1
        return output, lse

    assert judge_changed(wrong, item, dialect=dialect).status == "fail"


def test_a_precision_below_the_declared_one_fails():
    item = replace(ITEM, dtype="float64")
    verdict = judge_changed(in_float16, item, dialect={"NUM-2": "float32"})
    assert (verdict.status, verdict.difference.output) == ("fail", "output")


def test_a_declared_other_call_is_judged_row_by_row():
    """A function that ignores causality, as it declares."""

    def free(output, lse, every):
        return right(**{name: x for name, x in every.items() if name != "is_causal"} | {"return_lse": True})

    ignored = OtherCall(lambda arguments: {name: x for name, x in arguments.items() if name != "is_causal"})
    deviation = Deviation(("MASK-3",), "causality is ignored", "one", ignored)
    short = replace(ITEM, formula=replace(ITEM.formula, options={"is_causal": True}))
    assert judge_changed(free, short, deviations=(deviation,)).status == "deviation"
    for change in (lambda out, lse, _: (2 * out, lse), lambda out, lse, _: (0 * out, lse)):
        assert judge_changed(change, short, deviations=(deviation,)).status == "fail"


def test_a_drawn_bias_has_the_dtype_of_the_query_and_is_no_bias_of_alibi():
    biased = [item for item in sized_cases() if "bias" in item.formula.options]
    assert {item.misfit(Constraints(bias_dtype="query")) for item in biased} == {""}
    assert {item.misfit(Constraints(slopes="start")) for item in biased} == {
        "takes slopes of ALiBi, got a bias that is none of ALiBi"
    }
