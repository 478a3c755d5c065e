"""A run that judges hardly any call by its values is no success, and says what excluded the others."""

from dataclasses import replace

import pytest

from attnspec.backends import describe, load
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.render.summary import backend_headline, backend_lines
from attnspec.conformance.results import Header, Run, Shard, Subject, gather, join_shards
from attnspec.conformance.run.child import subject_of
from attnspec.conformance.verdict import Verdict

SUBJECT = Subject("k", "numpy", "2")
PASS = Verdict("k", "a-1-float32", "a", ("QUANT-8",), "pass", "float32", "quantized_attention")
ONE_QUERY = replace(
    PASS, status="unsupported", reason="k takes one query of each sequence, got 5", code="not applicable"
)
LACKS = replace(PASS, status="unsupported", reason="k has no argument mask", lacks=("argument mask",))
OPERATION = replace(LACKS, reason="k has no rotary", lacks=("operation rotary",), operation="rotary")
REFUSED = replace(PASS, refusal=True)


def run_of(*groups, part="whole", **header):
    """A run with a number of copies of each of some verdicts."""
    verdicts = [one for verdict, number in groups for one in [verdict] * number]
    verdicts = [replace(one, case=f"a-{place}-float32") for place, one in enumerate(verdicts)]
    names = tuple(one.case for one in verdicts)
    return Run(Header("1", part, cases=names, **header), [SUBJECT], verdicts, ended=True)


def outcome(*runs):
    report = Report(gather(runs))
    return report.outcome.status, report.results.subjects[0].problem


@pytest.mark.parametrize("part", ["whole", "level", "quick", "smoke"])
def test_two_values_of_hundreds_are_no_success(part):
    least = 10 if part == "smoke" else 20
    status, problem = outcome(run_of((PASS, 2), (ONE_QUERY, 200), (LACKS, 70), (OPERATION, 5000), part=part))
    assert status == 4
    assert problem == (
        "backend k: the values of 2 of 272 calls of its operations and dtypes were judged; expected at least "
        f"{least}. "
        "Most of the others were not, because it takes one query of each sequence (200); has no argument "
        "mask (70). Describe the arguments that it has. If all of this is true of it, "
        + ("" if part == "whole" else "a whole run has more calls that it takes, and ")
        + "a wrapper can take more of them"
    )


@pytest.mark.parametrize(
    ("groups", "status"),
    [
        ([(PASS, 20), (ONE_QUERY, 5000)], 0),
        ([(PASS, 19), (ONE_QUERY, 5000)], 4),
        ([(PASS, 4), (LACKS, 4), (OPERATION, 5000)], 0),  # an operation with few calls
        ([(PASS, 4), (LACKS, 5)], 4),
        ([(PASS, 4), (REFUSED, 100), (ONE_QUERY, 100)], 4),  # a refusal shows no value
        ([(replace(PASS, status="fail", rule="QUANT-8"), 1), (PASS, 1), (ONE_QUERY, 200)], 1),
    ],
)
def test_how_many_are_enough(groups, status):
    assert outcome(run_of(*groups))[0] == status


def test_chosen_cases_may_be_few_and_shards_are_counted_together():
    few = (PASS, 15), (ONE_QUERY, 100)
    assert outcome(run_of(*few, part="chosen"))[0] == 0
    assert outcome(run_of(*few))[0] == 4
    shards = [run_of(*few, part="chosen", shard=Shard(number, 2, "whole", ())) for number in (1, 2)]
    for number, run in enumerate(shards):
        names = tuple(f"b-{number}-{place}-float32" for place in range(len(run.verdicts)))
        places = tuple(range(number, 2 * len(names), 2))
        run.header = replace(run.header, cases=names, shard=replace(run.header.shard, places=places))
        run.verdicts = [replace(one, case=name) for one, name in zip(run.verdicts, names, strict=True)]
    assert outcome(*join_shards(shards))[0] == 0


HALF = replace(ONE_QUERY, dtype="float16")
NO_DTYPE = replace(PASS, status="unsupported", dtype="bfloat16", lacks=("dtype bfloat16",))


@pytest.mark.parametrize(
    ("groups", "part", "said"),
    [
        ([(HALF, 1)], "smoke", True),
        ([(replace(HALF, refusal=True), 1)], "smoke", False),
        ([(HALF, 1), (replace(PASS, dtype="float16"), 1)], "smoke", False),
        ([(HALF, 1)], "chosen", False),
    ],
)
def test_a_dtype_in_which_no_value_was_judged_is_named(groups, part, said):
    report = Report(gather([run_of((PASS, 20), (NO_DTYPE, 3), *groups, part=part)]))
    lines = [*backend_lines(report, SUBJECT)]
    assert ("no value was judged in float16" in lines) == said
    assert not any("bfloat16" in line for line in lines if "no value" in line)


@pytest.mark.parametrize(("traits", "part", "line"), [
    (("mask",), "quick", "no value was judged with softcap, window"),
    (("mask", "softcap", "window"), "quick", ""),
    (("mask",), "chosen", ""),
])  # fmt: skip
def test_an_option_with_which_no_value_was_judged_is_named(traits, part, line):
    refused = replace(REFUSED, traits=("softcap",))
    lacking = replace(ONE_QUERY, traits=("window",))
    report = Report(
        gather([run_of((replace(PASS, traits=traits), 20), (refused, 1), (lacking, 1), part=part)])
    )
    said = backend_headline(report, replace(SUBJECT, options="mask,softcap,window"))
    assert (f"; {line}" in said) if line else ("no value" not in said)


def test_the_options_of_a_backend_are_those_of_its_functions():
    def attention(query, key, value, *, window=None, scale=None, return_lse=False):
        raise NotImplementedError

    assert subject_of("k", describe(attention)).options == "scale,window"


@pytest.mark.parametrize("part", ["quick", "smoke", "whole"])
def test_a_declaration_that_no_call_of_a_part_reaches_is_called_not_verified(part):
    backend = replace(
        load("numpy-portable"),
        dialect={"GRAD-10": "nan", "MASK-6": "nan", "MASK-3": "bottom-right", "NUM-2": "float32"},
    )
    subject = replace(SUBJECT, declares=subject_of("k", backend).declares)
    shown = replace(PASS, status="deviation", rule="MASK-3", variant="bottom-right")
    run = run_of((PASS, 20), (shown, 1), (replace(PASS, status="fail", rule="MASK-6"), 1), part=part)
    report = Report(gather([replace(run, subjects=[subject])]))
    said = "declared, not verified: no call of this run shows GRAD-10"  # and not NUM-2
    assert (said in [*backend_lines(report, subject)]) == (part != "whole"), "of a whole run it is an error"


def test_a_layout_that_no_call_confirmed_is_said_first():
    said = "its layout is a guess that no call confirmed; does not conform"
    for note, wrong in (("scale, layout", True), ("scale; not tested, because it is ignored: layout", False)):
        subject = replace(SUBJECT, note=f"a guess, which no call confirmed: {note}")
        for status in ("fail", "pass"):
            report = Report(gather([run_of((PASS, 20), (replace(PASS, status=status, rule="MASK-6"), 1))]))
            assert (said in backend_headline(report, subject)) == (wrong and status == "fail")


@pytest.mark.parametrize(("computes", "names"), [(False, "mask"), (True, "mask or d_lse")])
def test_a_function_without_gradients_need_not_say_which_cotangents_it_takes(computes, names):
    traits = ("d_lse", "mask")
    declined = replace(PASS, status="unsupported", declined=True, traits=traits)
    code = "no gradient of an argument" if computes else "no gradient"
    run = run_of(
        (declined, 1), (replace(PASS, status="unsupported", code=code, traits=traits), 1), (PASS, 99)
    )
    run.subjects = [replace(SUBJECT, options="mask,d_lse")]
    assert f"declined every call with {names}. Declare" in outcome(run)[1]
