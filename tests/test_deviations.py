"""A declared deviation covers only what it declares, and a run must show it."""

import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from attnspec import Case, Misuse
from attnspec.backends import Backend, BackendError, Deviation, load
from attnspec.backends.check import check_backend
from attnspec.conformance.judge.deviation import not_shown
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import items
from attnspec.conformance.verdict import Verdict, shown

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


def declaring(backend, *rules, **narrower):
    return replace(
        backend, deviations=(Deviation(rules, "something else", "https://example.org", **narrower),)
    )


def judged(backend, rule="SOFT-3", arguments=ARRAYS, **options):
    case = Case("softmax-own-1", "", "softmax", "attention", (rule,), arguments, group="own", **options)
    return judge(backend, case)


def test_what_is_declared_is_a_deviation_and_is_noted():
    verdict = judged(declaring(wrong(output=2.0), "SOFT-3"))
    assert (verdict.status, verdict.rule, verdict.reason) == ("deviation", "SOFT-3", "something else")
    assert verdict.declared == ("SOFT-3 https://example.org",)
    assert not verdict.bad
    verdict = judged(declaring(wrong(), "SOFT-3"))
    assert (verdict.status, verdict.declared) == ("pass", ())


@pytest.mark.parametrize(
    "narrower",
    [
        {"dtypes": ("float32",)},
        {"outputs": ("lse",)},
        {"groups": ("something else",)},
        {"versions": ">=1", "when": lambda arguments: "mask" in arguments},
        {"when": lambda arguments: "scale" in arguments},
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


def test_another_rule_is_not_excused():
    assert judged(declaring(wrong(output=2.0), "SOFT-1")).status == "fail"


def test_the_other_outputs_are_held_to_the_rule_all_the_same():
    declared = {"outputs": ("output", "weights")}  # the weights are seen as the output for an identity
    assert judged(declaring(wrong(output=2.0), "SOFT-3", **declared)).status == "deviation"
    verdict = judged(declaring(wrong(output=2.0, lse=1.0), "SOFT-3", **declared))
    assert (verdict.status, verdict.rule, verdict.difference.output) == ("fail", "SOFT-3", "lse")


def test_a_misuse_that_is_taken_is_excused_by_its_rule():
    arguments = ARRAYS | {"scale": float("nan")}
    verdict = judged(declaring(wrong(), "ERR-6"), "ERR-6", arguments, misuse=Misuse("scale"))
    assert (verdict.status, verdict.rule) == ("deviation", "ERR-6")
    assert verdict.declared == ("ERR-6 https://example.org",)
    verdict = judged(declaring(wrong(), "ERR-5"), "ERR-6", arguments, misuse=Misuse("scale"))
    assert (verdict.status, verdict.rule) == ("fail", "ERR-6")


def test_what_is_raised_and_what_a_relation_finds_are_excused_too():
    def raising(query, key, value):
        raise RuntimeError("not here")

    backend = replace(PORTABLE, attention=raising, companions={})
    assert judged(declaring(backend, "SOFT-3")).status == "deviation"
    assert judged(declaring(backend, "SOFT-1")).status == "error"

    calls = count()

    def noisy(query, key, value):
        output = PORTABLE.attention(query, key, value)
        return output + np.spacing(output) * next(calls)

    relation = next(items(names=["numerics-call-repeated-plain-1-float64"]))
    backend = replace(PORTABLE, attention=noisy, companions={})
    verdict = judge(declaring(backend, relation.rules[0]), relation)
    assert (verdict.status, verdict.reason) == ("deviation", "something else")
    assert judge(declaring(backend, "SOFT-1"), relation).status == "should not met"


def test_a_declaration_that_nothing_shows_is_an_error():
    backend = replace(declaring(wrong(), "ERR-6"), name="b", dialect={"MASK-6": "nan"})
    missing = not_shown(backend, shown([Verdict("b", "c", "", ("ERR-6",), "pass")]))
    assert [(verdict.rule, verdict.status) for verdict in missing] == [
        ("MASK-6", "error"),
        ("ERR-6", "error"),
    ]
    told = [
        Verdict("b", "c", "", ("MASK-6",), "deviation", rule="MASK-6"),
        Verdict("b", "d", "", ("ERR-6",), "deviation", rule="ERR-6", declared=(backend.deviations[0].id,)),
    ]
    assert not_shown(backend, shown(told)) == []
    assert [verdict.rule for verdict in not_shown(backend, shown(told[:1]))] == ["ERR-6"]


def test_a_declaration_of_an_unknown_rule_is_refused():
    with pytest.raises(BackendError, match="deviations: expected rule ids and a source"):
        check_backend("mine:b", declaring(wrong(), "ERR-99"))


def test_a_run_says_which_deviations_showed(tmp_path):
    pytest.importorskip("torch")
    from click.testing import CliRunner

    from attnspec.conformance.cli.main import main

    results = tmp_path / "results.jsonl"
    words = ["check", "torch-sdpa", "-k", "*refused*scale*", "--rule", "ERR-6", "--results", str(results)]
    ended = CliRunner().invoke(main, words)
    assert ended.exit_code == 0, ended.output
    verdicts = [json.loads(line).get("verdict") for line in results.read_text().splitlines()]
    declared = {name for verdict in verdicts if verdict for name in verdict.get("declared", ())}
    assert declared == {"ERR-6 torch/scale_not_finite"}


def test_an_error_beyond_the_declared_size_fails():
    off = wrong(output=1.01)  # of at most 19
    assert judged(declaring(off, "SOFT-3", within=0.2)).status == "deviation"
    assert judged(declaring(off, "SOFT-3", within=0.001)).status == "fail"


def test_a_small_error_of_an_exact_zero_hides_no_large_error():
    def attention(query, key, value):
        found = PORTABLE.attention(query, key, value)
        found[..., 0] += 1e-28  # where nothing is allowed: this counts as the largest share
        found[..., 1] += 0.25
        return found

    arguments = ARRAYS | {"value": ARRAYS["value"] * (np.arange(4) > 0)}
    backend = declaring(replace(PORTABLE, attention=attention, companions={}), "SOFT-3", within=1e-27)
    verdict = judged(backend, arguments=arguments)
    assert (verdict.status, verdict.difference.element[-1]) == ("fail", 0)


def test_an_output_that_is_none_is_within_no_error():
    assert judged(declaring(wrong(output=np.nan), "SOFT-3", within=1e300)).status == "fail"
