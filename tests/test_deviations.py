"""A declared deviation states what happens instead. Nothing else is excused, and a run must show it."""

import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from tests_support import command, own_case

from attnspec import Misuse
from attnspec.backends import Backend, BackendError, Deviation, load
from attnspec.backends.adapters.conditions import OF_NO_DEPTH
from attnspec.backends.check import check_backend
from attnspec.backends.outcome import Bound, InDtype, OtherCall, Raises, Special, Unwritten, every_element
from attnspec.conformance.attribution.levels import rule_results
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.memory import worst_of
from attnspec.conformance.suite import find, items
from attnspec.conformance.verdict import Verdict, shown_declarations

PORTABLE = load("numpy-portable")
ARRAYS = {"query": np.ones((3, 4)), "key": np.ones((5, 4)), "value": np.arange(20.0).reshape(5, 4)}


def wrong(*, output=1.0, lse=0.0) -> Backend:
    """The output times a factor, and something added to the lse."""

    def attention(query, key, value, *, scale=None, return_lse=False):
        if scale is not None and not np.isfinite(scale):
            return (query, query[..., 0])
        found, its_lse = PORTABLE.attention(query, key, value, scale=scale, return_lse=True)
        return (found * output, its_lse + lse) if return_lse else found * output

    return replace(PORTABLE, attention=attention, companions={})


DOUBLED = OtherCall(lambda arguments: {**arguments, "value": 2 * arguments["value"]})


def declaring(backend, *rules, outcome=DOUBLED, **narrower):
    deviation = Deviation(rules, "something else", "https://example.org", outcome, **narrower)
    return replace(backend, deviations=(deviation,))


def judged(backend, rule="SOFT-3", arguments=ARRAYS, **options):
    options = {"outputs": ("output", "lse")} | options  # the weights would be doubled with the output
    return judge(backend, own_case(rule, arguments, **options))


@pytest.mark.parametrize(("answer", "status"), [(np.nan, "deviation"), (0.0, "fail")])
def test_a_malformed_call_without_a_budget_is_judged_by_its_outcome_in_a_dialect_too(answer, status):
    def attention(query, key, value, *, softcap=None):
        return np.full_like(query, answer)

    backend = replace(PORTABLE, attention=attention, companions={}, dialect={"MASK-6": "uniform"})
    misused = {"arguments": ARRAYS | {"softcap": np.nan}, "misuse": Misuse("softcap")}
    outcome = {"outcome": Special(every_element)}
    assert judged(declaring(backend, "SCORE-6", **outcome), "SCORE-6", **misused).status == status


@pytest.mark.parametrize(("off", "status"), [(0.0, "deviation"), (1e-9, "fail")])
def test_a_negative_softcap_that_is_computed_has_the_budget_of_a_positive_one(off, status):
    def attention(query, key, value, *, softcap=None):
        return PORTABLE.attention(query, key, value, softcap=None if softcap is None else abs(softcap)) + off

    misused = {"arguments": ARRAYS | {"softcap": -2.0}, "misuse": Misuse("softcap")}
    outcome = {"outcome": OtherCall(dict)}
    backend = replace(PORTABLE, attention=attention, companions={})
    assert judged(declaring(backend, "SCORE-6", **outcome), "SCORE-6", **misused).status == status


def test_what_is_declared_is_a_deviation_and_excuses_nothing_else():
    verdict = judged(declaring(wrong(output=2.0), "SOFT-3"))
    assert (verdict.status, verdict.rule, verdict.reason) == ("deviation", "SOFT-3", "something else")
    assert verdict.declared == ("SOFT-3 https://example.org",)
    assert not verdict.bad
    verdict = judged(declaring(wrong(), "SOFT-3"))
    assert (verdict.status, verdict.declared) == ("pass", ())
    assert judged(declaring(wrong(output=2.0), "SOFT-1")).status == "fail"
    assert judged(declaring(wrong(output=2.0), "SOFT-3", outputs=("output",))).status == "deviation"
    verdict = judged(declaring(wrong(output=2.0, lse=1.0), "SOFT-3", outputs=("output",)))
    assert (verdict.status, verdict.rule, verdict.difference.output) == ("fail", "SOFT-3", "lse")


@pytest.mark.parametrize("when", [None, lambda _: True])
def test_a_deviation_counts_for_the_rule_that_is_broken_and_for_the_one_that_it_is_declared_for(when):
    outcome = {"outcome": Bound(absolute=1e308), "when": when}
    backend = declaring(wrong(output=0.9), "SPARSE-8", "SOFT-3", "SOFT-1", **outcome)
    case = own_case("SOFT-3", ARRAYS, outputs=("output",))
    verdict = judge(backend, replace(case, rules=("SOFT-3", "SOFT-1")))
    assert rule_results(verdict) == {"SOFT-3": "deviation", "SPARSE-8": "deviation"}


@pytest.mark.parametrize("relation", [False, True])
def test_deviations_of_two_outputs_count_for_the_rules_of_both(relation):
    """Two outputs of a call deviate, or one output in each of two calls of a relation."""
    doubled, off = (
        Deviation(("SPARSE-8", rule), "else", rule, Bound(absolute=1e308), outputs=(output,))
        for rule, output in (("SOFT-3", "output"), ("SOFT-6", "lse"))
    )
    backend = replace(wrong(output=2.0, lse=1.0), deviations=(doubled, off))
    case = replace(own_case("SOFT-3", ARRAYS), rules=("SOFT-3", "SOFT-6"))
    calls = [
        replace(case, outputs=own) for own in ([("output",), ("lse",)] if relation else [("output", "lse")])
    ]
    verdict = worst_of([judge(backend, call) for call in calls])
    assert rule_results(verdict) == dict.fromkeys(("SOFT-3", "SPARSE-8", "SOFT-6"), "deviation")


@pytest.mark.parametrize(
    "narrower",
    [
        {"dtypes": ("float32",)},
        {"outputs": ("lse",)},
        {"groups": ("something else",)},
        {"versions": ">=1", "when": lambda arguments: "mask" in arguments},
        {"when": lambda arguments: "scale" in arguments},
        {"when": lambda arguments: arguments["tokens"] is not None},
    ],
    ids=" ".join,
)
def test_what_it_does_not_cover_fails(narrower):
    verdict = judged(declaring(wrong(output=2.0), "SOFT-3", **narrower))
    assert (verdict.status, verdict.rule, verdict.declared) == ("fail", "SOFT-3", ())


@pytest.mark.parametrize(
    "narrower",
    [{"dtypes": ("float64",)}, {"groups": ("own",)}, {"when": lambda arguments: "mask" not in arguments}],
    ids=" ".join,
)
def test_what_it_covers_passes_however_narrow(narrower):
    assert judged(declaring(wrong(output=2.0), "SOFT-3", **narrower)).status == "deviation"


def of(**elements):
    """Mean some elements of some outputs."""
    return lambda _: {name: np.asarray(where) for name, where in elements.items()}


def test_a_misuse_that_is_taken_is_excused_by_its_rule_and_its_outcome():
    arguments, misuse = ARRAYS | {"scale": float("nan")}, Misuse("scale")

    def zeros(query, key, value, *, scale=None):
        return np.zeros((3, 4))

    backend = replace(PORTABLE, attention=zeros, companions={})
    every = {"outcome": Special(every_element, (0.0,))}
    verdict = judged(declaring(backend, "ERR-6", **every), "ERR-6", arguments, misuse=misuse)
    # A function that returns zeros for every call refuses nothing, but declares what it gives.
    assert (verdict.status, verdict.rule) == ("deviation", "ERR-6")
    assert verdict.declared == ("ERR-6 https://example.org",)
    some = {"outcome": Special(of(output=np.eye(3, 4, dtype=bool)), (0.0,))}
    for rule, outcome in (("ERR-5", every), ("ERR-6", some), ("ERR-6", {"outcome": Special(every_element)})):
        verdict = judged(declaring(backend, rule, **outcome), "ERR-6", arguments, misuse=misuse)
        assert (verdict.status, verdict.rule) == ("fail", "ERR-6")


def raising(query, key, value):
    raise RuntimeError("not here")


@pytest.mark.parametrize(
    ("rule", "outcome", "status"),
    [
        ("SOFT-3", Raises("RuntimeError", "not here"), "deviation"),
        ("SOFT-3", Raises("TypeError or RuntimeError", "not"), "deviation"),
        ("SOFT-3", (Raises("RuntimeError", ""), DOUBLED), "deviation"),
        ("SOFT-3", Raises("RuntimeError", "over there"), "error"),
        ("SOFT-3", Raises("ValueError", ""), "error"),
        ("SOFT-3", DOUBLED, "error"),
        ("SOFT-1", Raises("RuntimeError", ""), "error"),
    ],
)
def test_an_exception_is_excused_by_its_type_and_message(rule, outcome, status):
    backend = replace(PORTABLE, attention=raising, companions={})
    assert judged(declaring(backend, rule, outcome=outcome)).status == status


def noisy(query, key, value):
    return PORTABLE.attention(query, key, value) + next(NOISE) * 1e-3


NOISE = count()


def test_a_relation_is_excused_if_each_of_its_calls_is_right_or_as_declared():
    ours = next(item for item in items(rules=["NUM-9"]) if item.name.startswith("numerics"))
    backend = replace(PORTABLE, attention=noisy, companions={})
    for outcome, status in ((Bound(1e15), "deviation"), (Bound(1.0), "should not met")):
        assert judge(declaring(backend, "NUM-9", outcome=outcome), ours).status == status
    assert judge(declaring(backend, "NUM-8", outcome=Bound(1e15)), ours).status == "should not met"


OFF = np.zeros((3, 4), bool)
OFF[1] = True
ROW = of(output=OFF)
#: What a function gives in its second row or elsewhere, an outcome that describes it, and those that do not.
OUTCOMES = {
    "special": (
        lambda x: np.where(OFF, np.nan, x),
        Special(ROW),
        [Special(of()), Special(ROW, (0.0,)), Bound(9)],
    ),
    "zero": (lambda x: np.where(OFF, 0, x), Special(ROW, (np.nan, 0.0)), [Special(ROW), Unwritten(of())]),
    "unwritten": (lambda x: np.where(OFF, 9, x), Unwritten(ROW), [Unwritten(of(output=~OFF)), Special(ROW)]),
    "bound": (lambda x: x * (1 + 1e-13), Bound(1e3), [Bound(2.0), Bound(absolute=1e-14), Special(ROW)]),
    "absolute": (lambda x: x + 1e-9, Bound(absolute=1.1e-9), [Bound(absolute=0.9e-9), Bound(2.0)]),
    "dtype": (lambda x: x.astype(np.float32), InDtype("float32"), [InDtype("float16"), Bound(1e9)]),
    "other call": (lambda x: 2 * x, DOUBLED, [Bound(9), Special(ROW)]),
    "several": (lambda x: np.where(OFF, np.nan, 2 * x), (Special(ROW), DOUBLED), [Special(ROW), DOUBLED]),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_outcome_is_verified_element_by_element(name):
    change, outcome, others = OUTCOMES[name]

    def backend_of(changed):
        def attention(query, key, value):
            return changed(PORTABLE.attention(query, key, value))

        return replace(PORTABLE, attention=attention, companions={})

    def elsewhere(x):
        found = change(x)
        found[2, 3] += 0.5  # outside of the second row
        return found

    def status(changed, outcome):
        always = {"outcome": outcome, "when": lambda _: True}
        return judged(declaring(backend_of(changed), "SOFT-3", **always)).status

    assert status(change, outcome) == "deviation"
    assert [status(change, other) for other in others] == ["fail"] * len(others)
    for wrong_elsewhere in (elsewhere, lambda x: 3 * change(x), lambda x: 0 * x + 5):
        assert status(wrong_elsewhere, outcome) == "fail"


def test_a_declaration_without_an_outcome_or_of_an_unknown_rule_is_refused():
    with pytest.raises(TypeError, match="outcome"):
        Deviation(("ERR-6",), "any scale is taken", "https://example.org", when=lambda _: True)
    for outcome in ((), "anything", (Bound(), None)):
        with pytest.raises(TypeError, match=r"outcome: expected one or several of OtherCall, .*, got"):
            Deviation(("ERR-6",), "any scale is taken", "https://example.org", outcome)
    with pytest.raises(BackendError, match="deviations: expected rule ids and a source"):
        check_backend("mine:b", declaring(wrong(), "ERR-99"))


def test_a_declaration_that_nothing_shows_is_an_error():
    backend = replace(declaring(wrong(), "ERR-6"), name="b", dialect={"MASK-6": "nan"})
    missing = not_shown(backend, shown_declarations([Verdict("b", "c", "", ("ERR-6",), "pass")]))
    assert [(x.rule, x.status) for x in missing] == [("MASK-6", "error"), ("ERR-6", "error")]
    told = [
        Verdict("b", "c", "", ("MASK-6",), "deviation", rule="MASK-6"),
        Verdict("b", "d", "", ("ERR-6",), "deviation", rule="ERR-6", declared=(backend.deviations[0].id,)),
    ]
    assert not_shown(backend, shown_declarations(told)) == []
    assert [verdict.rule for verdict in not_shown(backend, shown_declarations(told[:1]))] == ["ERR-6"]


def test_a_run_says_which_deviations_showed(tmp_path):

    results = tmp_path / "results.jsonl"
    words = ["check", "torch-sdpa", "-k", "*refused*scale*", "--rule", "ERR-6", "--results", str(results)]
    command(*words, status=0)
    verdicts = [json.loads(line).get("verdict") for line in results.read_text().splitlines()]
    declared = {name for verdict in verdicts if verdict for name in verdict.get("declared", ())}
    assert declared == {"ERR-6 torch/scale_not_finite"}


def test_a_small_error_of_an_exact_zero_hides_no_large_error():
    def attention(query, key, value):
        found = PORTABLE.attention(query, key, value)
        found[..., 0] += 1e-28  # where nothing is allowed: this counts as the largest share
        found[..., 1] += 0.25
        return found

    arguments = ARRAYS | {"value": ARRAYS["value"] * (np.arange(4) > 0)}
    backend = replace(PORTABLE, attention=attention, companions={})
    backend = declaring(backend, "SOFT-3", outcome=Bound(absolute=1e-27))
    verdict = judged(backend, arguments=arguments)
    assert (verdict.status, verdict.difference.element[-1]) == ("fail", 0)
    assert judged(declaring(wrong(output=np.nan), "SOFT-3", outcome=Bound(absolute=1e300))).status == "fail"


@pytest.mark.parametrize(("factor", "status"), [(1.0, "deviation"), (2.0, "fail")])
def test_gradients_of_arrays_without_features_have_no_element_to_compare(factor, status):
    def attention_vjp(query, key, value, d_output, *, scale=None):
        query, key = (np.zeros((*array.shape[:-1], 1), array.dtype) for array in (query, key))
        *_, d_value = PORTABLE.companions["attention_vjp"](query, key, value, d_output, scale=scale)
        return query[..., :0], key[..., :0], factor * d_value

    declared = Deviation(("ERR-5",), "a depth of 0 is accepted", "own/depth_zero", OF_NO_DEPTH)
    backend = replace(PORTABLE, companions={"attention_vjp": attention_vjp}, deviations=(declared,))
    verdict = judge(backend, find("errors-refused-depth-of-0-in-attention-vjp-1-float32"))
    assert (verdict.status, verdict.rule) == (status, "ERR-5")
