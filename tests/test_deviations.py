"""A declared deviation excuses just what it says, and has to show."""

import json
from dataclasses import replace

import numpy as np
import pytest

from attnspec.backends import Backend, BackendError, Deviation, load
from attnspec.backends.check import check_backend
from attnspec.conformance.judge.deviations import begin, not_shown, shown
from attnspec.conformance.judge.failure import Failure
from attnspec.conformance.suite import check, check_refused
from attnspec.conformance.verdict import Subject, Verdict

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


def judged(backend, arguments=ARRAYS):
    begin("test_something[wrong]")
    check(backend, "SOFT-3", arguments, lambda *_: None)
    return [deviation.rules[0] for deviation in shown()]


def test_what_is_declared_passes_and_is_noted():
    assert judged(declaring(wrong(output=2.0), "SOFT-3")) == ["SOFT-3"]
    assert judged(declaring(wrong(), "SOFT-3")) == []


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
    with pytest.raises(Failure, match="SOFT-3"):
        judged(declaring(wrong(output=2.0), "SOFT-3", **narrower))


def test_another_rule_is_not_excused():
    with pytest.raises(Failure, match="SOFT-3"):
        judged(declaring(wrong(output=2.0), "SOFT-1"))


def test_the_other_outputs_are_held_to_the_rule_all_the_same():
    declared = {"outputs": ("output", "weights")}  # the weights are seen as the output for an identity
    assert judged(declaring(wrong(output=2.0), "SOFT-3", **declared)) == ["SOFT-3"]
    with pytest.raises(Failure, match=r"(?s)SOFT-3.*lse"):
        judged(declaring(wrong(output=2.0, lse=1.0), "SOFT-3", **declared))


def test_a_misuse_that_is_taken_is_excused_by_its_rule():
    arguments = ARRAYS | {"scale": float("nan")}
    begin("test_misuse")
    check_refused(declaring(wrong(), "ERR-6"), "ERR-6", arguments)
    assert [deviation.rules for deviation in shown()] == [("ERR-6",)]
    with pytest.raises(Failure, match="ERR-6"):
        check_refused(declaring(wrong(), "ERR-5"), "ERR-6", arguments)


def test_a_declaration_that_nothing_shows_is_an_error():
    backend = replace(declaring(wrong(), "ERR-6"), name="b", dialect={"MASK-6": "nan"})
    subject = Subject("b", "numpy", "2")
    missing = not_shown([(subject, backend)], [Verdict("b", ("ERR-6",), "t", "pass")])
    assert [(verdict.rules, verdict.status) for verdict in missing] == [
        (("MASK-6",), "error"),
        (("ERR-6",), "error"),
    ]
    told = Verdict(
        "b", ("ERR-6", "MASK-6"), "t", "deviation", "", {}, ("MASK-6",), (backend.deviations[0].id,)
    )
    assert not_shown([(subject, backend)], [told]) == []
    others = replace(told, backend="c")
    assert len(not_shown([(subject, backend)], [others])) == 2


def test_a_declaration_of_an_unknown_rule_is_refused():
    with pytest.raises(BackendError, match="deviations: expected rule ids and a source"):
        check_backend("mine:b", declaring(wrong(), "ERR-99"))


def test_a_run_says_which_deviations_showed(tmp_path):
    from click.testing import CliRunner

    from attnspec.conformance.cli.main import main

    results = tmp_path / "results.jsonl"
    words = ["check", "torch-sdpa", "-k", "test_misuse_is_refused and scale", "--results", str(results)]
    ended = CliRunner().invoke(main, words)
    assert ended.exit_code == 0, ended.output
    verdicts = [json.loads(line).get("verdict") for line in results.read_text().splitlines()]
    declared = {name for verdict in verdicts if verdict for name in verdict["declared"]}
    assert declared == {"ERR-6 torch/scale_not_finite"}
