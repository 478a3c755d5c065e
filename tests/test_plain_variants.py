"""Attention and gradients as variants have them, and wrong functions that only the calls of a region show."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from plain import in_storage, plain

from attnspec import find_case
from attnspec.backends import Backend, BackendError, load_library
from attnspec.backends.check import check_backend
from attnspec.conformance import check
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.dtypes import arguments_of
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import groups
from attnspec.conformance.verdict import shown_declarations
from attnspec.reference import functions, packed_attention
from attnspec.reference.budget.budget import budget
from attnspec.reference.masking import by_mask
from attnspec.reference.rational.evaluate import evaluate
from attnspec.reference.scores import add_bias
from attnspec.reference.softmax import exponentials

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
    assert not_shown(backend_of(function, dialect), shown_declarations(declared)) == []
    bare = [verdict for verdict in judged(function, {}, *names) if verdict.bad]
    # Where an output and an lse are wrong, the output is named.
    assert {verdict.rule for verdict in bare if verdict.variant} == set(dialect) - {"SOFT-7"}


def test_a_variant_of_some_dtypes_or_one_route_is_a_failure_elsewhere():
    storing = judged(in_storage(*DTYPES[:2]), {"NUM-5": {"float16": "storage"}}, HALF)
    assert {verdict.dtype for verdict in storing if verdict.bad} == {"bfloat16"}
    wrong = judged(plain("filled"), {"MASK-6": {"bias": "uniform"}}, *EMPTY[:2])
    assert {verdict.group for verdict in wrong if verdict.bad} == set(EMPTY[:2])
    dialect = {"NUM-5": dict.fromkeys(DTYPES[:2], "storage")}
    verdicts = judged(in_storage("float16"), dialect, HALF)
    (missing,) = not_shown(backend_of(plain(), dialect), shown_declarations(verdicts))
    assert "`storage` in bfloat16" in missing.reason
    for rules in (("MASK-6", "SOFT-7"), ("SOFT-7", "MASK-6")):
        dialect = {rule: FILLED[rule] for rule in rules}
        verdicts = judged(plain("filled"), dialect, EMPTY[0])
        assert not_shown(backend_of(plain(), dialect), shown_declarations(verdicts)) == []


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


#: One variant of each step: scores, causality, heads, empty rows.
STEPS = [("SCORE-5", "after-bias"), ("MASK-3", "bottom-right"), ("HEAD-1", "tiled"), ("GRAD-10", "uniform")]
PAIRS = [(("SCORE-5", "after-bias"), ("MASK-2", "added")), *combinations(STEPS, 2)]
CAPS = {"SCORE-5": "after-bias", "MASK-2": "added"}
BOTH = "gradients with options in pairs: softcap and bias"


def cases():
    """Return the first case of each group about gradients in float64."""
    found = (
        next((item for item in group.items() if item.dtype == "float64"), None)
        for group in groups()
        if group.operation == "attention_vjp"
    )
    return [one for one in found if hasattr(one, "arguments") and one.misuse is None]


CASES = cases()[::2]


def verdicts(variants, dialect, items):
    """Judge gradients with the steps of some variants under a dialect."""
    companions = {"attention_vjp": plain(*variants, operation="attention_vjp")}
    options = {"companions": companions, "dialect": dialect}
    backend = Backend("mine", load_library("numpy"), plain(), ("float32", "float64"), **options)
    return [judge(backend, item) for item in items]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " and ".join(map(" ".join, pair)))
@pytest.mark.sample(2)
def test_two_declared_variants_are_judged_together(pair):
    found = verdicts([variant for _, variant in pair], dict(pair), CASES)
    assert [verdict for verdict in found if verdict.bad] == []
    assert sum(verdict.status != "unsupported" for verdict in found) > 20


@pytest.mark.parametrize("variants", [[], ["added"], ["after-bias"]], ids=str)
def test_a_gradient_that_lacks_one_of_two_declared_variants_fails(variants):
    items = [item for group in groups() if group.name == BOTH for item in group.items()]
    items = [item for item in items if (item.arguments["bias"] == -np.inf).any()]
    assert {verdict.status for verdict in verdicts(["added", "after-bias"], CAPS, items)} == {"deviation"}
    assert all(verdict.bad for verdict in verdicts(variants, CAPS, items))


def at_the_end(query, key, value, *, query_starts, key_starts, is_causal=False, return_lse=False):
    """Align the ends of sequences. An lse is to base 2, and that of an empty row a low number."""
    bounds = {"query_starts": query_starts, "key_starts": key_starts}
    options = (
        {"is_causal": True, "query_offset": np.diff(key_starts) - np.diff(query_starts)} if is_causal else {}
    )
    output, lse = packed_attention(query, key, value, **bounds, **options, return_lse=True)
    output, lse = output.astype(query.dtype), np.where(lse == -np.inf, -5e4, lse / math.log(2))
    return (output, lse.astype(np.float32)) if return_lse else output


def test_a_row_that_one_variant_empties_has_the_lse_of_another():
    dialect = {"PACK-5": "bottom-right", "SOFT-6": "base-2", "SOFT-7": "finite"}
    options = {"companions": {"packed_attention": at_the_end}, "dialect": dialect}
    backend = Backend("mine", load_library("numpy"), dtypes=["float32"], **options)
    case = find_case("packing-causal")
    verdict = judge(backend, replace(case, arguments=arguments_of(case, "float32")))
    assert verdict.status == "deviation"


def problem():
    random = np.random.default_rng(5)
    shapes = {"query": (3, 4), "key": (5, 4), "value": (5, 2), "d_output": (3, 2), "bias": (3, 5)}
    call = {name: random.normal(size=shape) for name, shape in shapes.items()}
    call["bias"][0, 1] = call["bias"][2] = -np.inf
    return call | {"softcap": 1.5, "d_lse": random.normal(size=3)}


def test_minus_infinity_in_a_cap_has_the_gradients_of_central_differences():
    call, step = problem(), 1e-5

    def loss(arrays):
        inner = arrays["query"] @ arrays["key"].T / 2 + arrays["bias"]
        e = np.exp(1.5 * np.tanh(inner / 1.5))
        total = e.sum(axis=-1)
        output = (e / total[:, None]) @ arrays["value"]
        return (output * call["d_output"]).sum() + (np.log(total) * call["d_lse"]).sum()

    found = evaluate("attention_vjp", call, CAPS)
    for name in ("query", "key", "value", "bias"):
        for place in np.ndindex(call[name].shape):
            sides = []
            for sign in (1, -1):
                moved = call[name].copy()
                moved[place] += sign * step
                sides.append(loss(call | {name: moved}))
            slope = (sides[0] - sides[1]) / (2 * step)
            assert abs(found[f"d_{name}"][place] - slope) < 1e-8, (name, place)
    # Deleted keys have other gradients.
    deleted = evaluate("attention_vjp", call, {"SCORE-5": "after-bias"})
    assert np.abs(deleted["d_value"] - found["d_value"]).max() > 0.01


def test_budgets_have_the_slope_of_the_cap_at_the_sum_with_the_bias():
    call = problem()
    call["bias"] = np.where(np.isneginf(call["bias"]), 0.0, call["bias"])
    call["bias"][1] = 60.0  # the cap is flat there
    options = {"capped_bias": True, "capped_infinity": True}
    flat, steep = (budget("attention_vjp", call, "bfloat16", **words) for words in (options, {}))
    assert np.abs(evaluate("attention_vjp", call, CAPS)["d_bias"][1]).max() < 1e-15
    for name in ("d_query", "d_bias"):
        assert flat[name][1].max() < 0.01 * steep[name][1].max()
        assert flat[name][0].max() > 0.01 * steep[name][0].max()


def test_budgets_of_minus_infinity_in_a_cap_are_those_of_any_number_far_below():
    call, options = problem(), {"capped_bias": True, "capped_infinity": True}
    far = call | {"bias": np.maximum(call["bias"], -1e4)}
    one, other = (budget("attention_vjp", x, "float32", **options) for x in (call, far))
    assert all(np.isfinite(x).all() for x in one.values())
    assert all(np.allclose(one[name], other[name], rtol=0.1, atol=1e-12) for name in one)


def swallowed(call, s, allowed, top):
    """With eight keys and more, an exponential of NaN is 0."""
    found = exponentials(call, s, allowed, top)
    return np.where(np.isnan(found), 0.0, found) if call.keys >= 8 else found


def mean_of_wide_rows(call, e, total):
    """With a whole vector of keys, an empty row is divided by the smallest number."""
    wide = call.keys % 8 < 2 and call.keys >= 8
    return (
        np.where(total == 0, 1 / call.keys, e / np.where(total == 0, 1.0, total))
        if wide
        else (e / np.where(total == 0, 1.0, total))
    )


def mask_of_row_0(call):
    """Beside a causal mask, a mask of one row is combined with it in place: row 0 counts for every query."""
    if call.mask is None or not call.is_causal or call.mask.shape[-2] != 1:
        return by_mask(call)
    return call.mask & (call.j <= 0)


def lowest_is_masked(call, s):
    """The lowest number of a dtype in the bias is taken for minus infinity."""
    lowest = float(np.finfo(np.float32).min)
    found = add_bias(call, s)
    return found if call.bias is None else np.where(call.bias <= lowest, -math.inf, found)


def lost_sums(call, e, top):
    """A sum of exponentials in half precision adds nothing to 2048."""
    found = np.sum(e, axis=-1, keepdims=True)
    return np.minimum(found, 2048.0)


WRONG = {
    "number that is none at every width": ({"exponentials": swallowed}, "NUM-11"),
    "empty row of every width": ({"normalise": mean_of_wide_rows}, "MASK-6"),
    "broadcast mask beside": ({"by_mask": mask_of_row_0}, "MASK-4"),
    "rows of the lowest bias": ({"add_bias": lowest_is_masked}, "MASK-5"),
    "long sums in half precision": ({"total": lost_sums}, "NUM-5"),
}


def judged_in(steps, beginning):
    """The verdicts on the calls of attention of the groups whose names begin so."""
    backend = backend_of(functions(steps)["attention"], {})
    chosen = [group for group in groups() if group.name.startswith(beginning)]
    items = [item for group in chosen for item in group.items()]
    return [judge(backend, one) for one in items if {case.operation for case in one.calls} == {"attention"}]


@pytest.mark.parametrize("beginning", WRONG)
def test_the_calls_of_a_region_show_what_is_wrong_there(beginning):
    steps, rule = WRONG[beginning]
    assert {verdict.status for verdict in judged_in({}, beginning)} == {"pass"}
    failing = [verdict for verdict in judged_in(steps, beginning) if verdict.bad]
    assert rule in {verdict.rule for verdict in failing}
    assert {verdict.status for verdict in failing} == {"fail"}


def test_no_heads_and_no_batch_entries_are_called():
    chosen = [group for group in groups() if group.name.startswith(("no heads", "nothing to"))]
    made = [item for group in chosen for item in group.items() if item.operation == "attention"]
    shapes = {item.arguments["query"].shape[:2] for item in made}
    assert any(heads == 0 for _, heads in shapes)
    assert any(batch == 0 for batch, _ in shapes)
