"""The text of a finding: what its calls have in common, and which line of the user raised."""

import re
from dataclasses import replace

import pytest
from made_verdicts import PORTABLE, changed, error, fail, found, ok, refused, table
from reported import FAIL, FILLS, PASS, RESULTS

from attnspec import find_case
from attnspec.conformance import find, traits
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.attribution.diagnosis import diagnose
from attnspec.conformance.attribution.finding import Common, Diagnosis, Finding, Twin, VariantCount
from attnspec.conformance.attribution.levels import count_by_rule
from attnspec.conformance.attribution.order import with_rule_of_bug
from attnspec.conformance.attribution.report import Report
from attnspec.conformance.attribution.sample import cases_to_diagnose
from attnspec.conformance.judge.failure import own_place
from attnspec.conformance.judge.traits import traits_of_call
from attnspec.conformance.render.finding import cause_lines, diagnosis_text, finding_text
from attnspec.conformance.render.screen import screen
from attnspec.conformance.render.words import trait_text
from attnspec.conformance.results import Header, Results, Subject
from attnspec.conformance.verdict import Difference


# A row has verdicts, and the lines about the first cause.
@pytest.mark.parametrize(("judged", "signs"), table("lines_of_causes"))
def test_what_is_common_is_said_with_numbers(judged, signs):
    assert [*cause_lines(found(judged)[0])] == signs["="]


@pytest.mark.parametrize(
    ("failing", "says"),
    [
        ("1 MASK-1 (mask) ignored=mask", True),
        ("1 MASK-1 (mask, mask with an axis of 1 inside) ignored=mask", False),
        ("2 MASK-1 (mask, mask with an axis of 1 inside) ignored=mask", True),
        ("1 MASK-9 (key_lengths, key_lengths by entry) ignored=key_lengths", False),
    ],
)
def test_one_call_says_that_an_argument_is_ignored_only_if_a_part_of_it_would_not_look_the_same(
    failing, says
):
    """A mask whose first head allows everything has no effect either if all heads read that of the first."""
    (cause,) = found(f"{failing}; ok 20 (mask); ok 20 (key_lengths)")
    assert ("equals the result without" in finding_text(cause)) == says


def test_the_values_of_calls_that_change_an_input_are_counted():
    """Beside a call without elements, which is no good example."""
    codes = [f"argument changed{x}" for x in (*[", values right"] * 3, *[", values wrong"] * 2, "")]
    calls = [replace(verdict, code=x, numbers=9) for verdict, x in zip(changed(6), codes, strict=True)]
    (finding,) = found([replace(calls[0], case="empty", traits=(traits.NOTHING,), numbers=0), *calls], ok(9))
    assert "the values are right in 4 of 6 calls that change an argument" in [*cause_lines(finding)]
    assert finding.verdict.case != "empty"


def test_words_for_traits_and_keys_for_limits():
    common = Finding("SCORE-2", (FAIL,), Common(("no scale",), 230, 310, 0, 54))
    assert [*cause_lines(common)] == ["fails: 230 of 310 calls without a scale, 0 of 54 others"]
    assert [*cause_lines(Finding("SOFT-1", (FAIL,), Common((), 5, 9)))] == ["fails: 5 of 9 calls"]
    assert trait_text("negative scale") == "with a negative `scale`"
    assert trait_text("query_offset by entry") == "with `query_offset` that differ between batch entries"
    assert trait_text("mask of one row") == "with a `mask` that has one row for several"
    inside = "with a `bias` that has an axis of 1 inside a longer one"
    assert trait_text(traits.repeated_inside("bias")) == inside
    assert trait_text("tiles of 64") == "with more than 64 keys or queries"
    raised = error(9, "no", traits.SHARED, rule="HEAD-1")
    (finding,) = found(raised, ok(20))
    line = 'if it offers no such calls, write heads = "equal" under [backend] in attnspec.toml'
    assert line in [*cause_lines(finding)]
    empty = error(9, "no", traits.SHARED, traits.NOTHING, rule="HEAD-1")
    finding = Finding("HEAD-1", (*empty,), Common((traits.SHARED,), 9, 9), "raised")
    assert line not in [*cause_lines(finding)], "a call of nothing tells nothing of heads"
    finding = Finding("HEAD-1", (*raised,), Common((traits.SHARED,), 6, 37), "raised")
    assert line not in [*cause_lines(finding)], "the function takes most of these calls"
    (finding,) = found("9 HEAD-1 (shared heads); ok 20")
    assert line not in [*cause_lines(finding)]


def test_dtypes_of_integers_that_few_callers_use_are_named():
    found = traits_of_call(find("errors-many-positions-in-pages-1-float32"))
    assert {"block_table of uint8", "key_lengths of uint8"} <= found
    assert not any("codes" in trait for trait in traits_of_call(find_case("quantization-int8")))
    verdict = replace(FAIL, traits=tuple(found))
    said = "`block_table` and `key_lengths` are of uint8"
    assert said in [*cause_lines(Finding("ERR-1", (verdict,)))]
    assert said not in [*cause_lines(Finding("ERR-1", (FAIL,)))]
    common = Common(("block_table of uint8",), 3, 3, 0, 90)
    lines = [*cause_lines(Finding("ERR-1", (verdict,), common))]
    assert "fails: 3 of 3 calls with a `block_table` of uint8, 0 of 90 others" in lines
    assert "`key_lengths` is of uint8" in lines


@pytest.mark.parametrize(("expected", "said"), [("float64", True), ("float32 or float64", False)])
def test_results_of_float32_in_float64_have_the_key_for_dtypes(expected, said):
    off = Difference("dtype", "lse", (), "float32" if said else "float16", expected)
    lines = [*cause_lines(Finding("NUM-7", (replace(FAIL, difference=off),)))]
    assert any("leave that out: dtypes = [...]" in line for line in lines) == said


# A row has verdicts, and what the text of the only finding has (+), and has not (-).
@pytest.mark.parametrize(("judged", "signs"), table("texts_of_findings"))
def test_the_text_of_a_finding(judged, signs):
    (finding,) = found(judged)
    text = finding_text(finding)
    assert [part for part in signs["+"] if part not in text] == []
    assert [part for part in signs["-"] if part in text] == []


@pytest.mark.parametrize("number", [2, 12])
def test_calls_that_are_not_refused_have_a_line_for_each_rule(number):
    own = refused(4, "ERR-2", group="refused: bias of booleans")
    golden = [replace(one, case="errors-mask-additive-float32") for one in refused(1, "ERR-4", group="")]
    others = [refused(1, f"ERR-{9 + n}", group=f"refused: fault {n}") for n in range(number)]
    (finding,) = found(own, golden, *others)
    text = finding_text(finding)
    assert f"also: {number + 1} cases under {number + 1} other rules" in text
    assert "\n    ERR-2: bias of booleans\n" in text
    assert "\n    ERR-4: an additive mask given as the mask\n" in text
    assert text.count("\n    ERR-") == min(number + 2, 8)
    assert all(f"ERR-{9 + n}" in text for n in range(number)), "each rule is named, with a line or not"
    (finding,) = found(*(refused(1, "ERR-2", name=str(n), group=f"refused: fault {n}") for n in range(5)))
    assert finding_text(finding).endswith("\n    ERR-2: fault 0; fault 1; fault 2 and 2 more")


def test_every_rule_that_fails_is_on_the_screen():
    many = [f"MASK-{n}" for n in range(4, 13)]
    verdicts = [
        *fail(5, "ERR-3", "is_causal", ignored="is_causal"),
        *(verdict for rule in many for verdict in fail(1, rule, "is_causal")),
        *error(3, "mask must have two axes", "mask", rule="", rules=("MASK-1", "ERR-3", "HEAD-1"), name="a"),
        *error(2, "mask must have two axes", "mask", rule="", rules=("GRAD-9", "MASK-1"), name="c"),
        *refused(3, "ERR-4"),
        *ok(40),
    ]
    for judged in (verdicts, RESULTS.verdicts):
        rules = {rule for rule, counts in count_by_rule(judged).items() if counts["fail"] + counts["error"]}
        results = Results((Subject(judged[0].backend, "numpy", "2"),), tuple(judged), (Header("1"),))
        text = screen(Report(results, required="refusals"))
        assert "┏" not in text
        assert rules <= {*re.findall(r"[A-Z]+-[0-9]+", text)}


def test_other_messages_of_one_cause_are_said():
    many = [error(9 - n, f"no {name}") for n, name in enumerate(("mask", "bias", "keys", "rows", "heads"))]
    texts = [finding_text(finding) for finding in found(*many, ok(9))]
    assert len(texts) == 4
    (rest,) = [text for text in texts if "also: " in text]
    assert "raised ValueError: no rows" in rest
    assert "also: 5 cases: raised ValueError: no heads" in rest


def test_where_every_call_raises_one_finding_says_so():
    every = [*error(9, "no enable_gqa"), *error(3, "no enable_gqa", "refused", rule="ERR-2", name="r")]
    every += error(3, "no enable_gqa", rule="NUM-4", name="c")
    (finding,) = found(every)
    text = finding_text(finding)
    assert text.startswith("every call raises\ncase ")
    assert "so do 14 more cases of b, under all rules" in text
    assert "raised ValueError: no enable_gqa" in text
    assert len(found(every, [replace(ok(1)[0], status="unsupported")])) == 1
    assert len(found(every, ok(1))) == 2, "one call has a result"
    assert [one.kind for one in found(every, error(5, "no mask"))] == ["always"] * 2

    def raising(query, key, value):
        raise TypeError("no enable_gqa")

    backend = replace(PORTABLE, attention=raising, companions={})
    assert diagnose(backend, [find_case(f"softmax-00{n}") for n in range(3)]) is None


OWN = ("/me/a.py", 9, "f")


@pytest.mark.parametrize(
    ("frames", "own", "place"),
    [
        (
            [("/me/a.py", 1, "f"), ("/me/b.py", 2, "g"), ("/lib/np/x.py", 3, "dot")],
            None,
            ("/me/b.py", 2, "g"),
        ),
        ([("/me/a.py", 1, "f"), ("/me/.venv/lib/site-packages/x.py", 3, "dot")], None, ("/me/a.py", 1, "f")),
        ([("/me/a.py", 1, "f"), ("/mean/x.py", 3, "dot")], None, ("/me/a.py", 1, "f")),
        ([("<frozen os>", 1, "f")], None, ("<frozen os>", 1, "f")),
        ([], None, ("", 0, "")),
        ([("/lib/x.py", 3, "grad"), ("/me/b.py", 2, "g"), ("/lib/x.py", 4, "d")], OWN, ("/me/b.py", 2, "g")),
        ([("/lib/torch/x.py", 3, "grad")], OWN, OWN),
        ([], OWN, OWN),
    ],
)
def test_the_line_of_the_user_is_shown(frames, own, place):
    assert (own_place(frames, own) if own else own_place(frames)) == place


def test_a_named_bug_explains_small_errors_and_no_precision_does():
    finding = Finding("NUM-3", (FAIL,), precision="float16")
    (line,) = cause_lines(finding)
    assert line.startswith("all failures are within the budget of float16")
    assert [*cause_lines(replace(finding, diagnosis=FILLS))] == []
    (finding,) = found("1 SCORE-2 variant=one; 1 SCORE-2 #other")
    assert finding.variant == VariantCount("one", 1, 2)
    assert finding.verdict.variant == "one"
    named = replace(finding, diagnosis=FILLS)
    assert named.variant is None
    assert named.verdict.variant == ""
    (finding,) = found("9 SCORE-2 variant=one; 1 SCORE-2 #other")
    assert replace(finding, diagnosis=FILLS).variant == VariantCount("one", 9, 10)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("tiles_of_8_keys", "tiles_of_16_keys", "tiles_of_32_keys"), "tiles_of_8_keys (or of 16, 32) (Do"),
        (("tiles_of_8_keys", "tiles_of_16"), "tiles_of_8_keys or tiles_of_16 (Do"),
        (("tiles_of_8_of_2", "tiles_of_8_of_4"), "tiles_of_8_of_2 or tiles_of_8_of_4 (Do"),
        (("no_scale", "half_scale"), "no_scale or half_scale (Do"),
        (("no_scale",), "no_scale (Do"),
    ],
)
def test_bugs_that_differ_in_a_number_have_one_name(names, said):
    diagnosis = Diagnosis((Twin(names, "Do so.", "MASK-1"),), 5, 9, 0.0, 9)
    assert diagnosis_text(diagnosis).startswith(f"consistent with: {said}")


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ([("output", "lse"), ("lse",), ("output", "lse")], "SOFT-6"),
        ([("output", "lse"), ("output", "lse"), ("output", "lse")], "MASK-3"),  # it is wrong as the output is
        ([("output", "lse"), ("lse",), ("output",)], "MASK-3"),
        ([("lse",), ("lse",)], "MASK-3"),  # too few calls
    ],
)
def test_an_output_that_is_wrong_in_all_calls_and_alone_in_some_has_the_rule(wrong, rule):
    off = [Difference("value", outputs[0], (0,), 1.0, 2.0, outputs=outputs) for outputs in wrong]
    failing = [replace(FAIL, case=f"a-{n}-float32", difference=x, rule="MASK-3") for n, x in enumerate(off)]
    failing[-1] = replace(failing[-1], rule="SOFT-6")
    assert with_rule_of_bug(Finding("MASK-3", tuple(failing))).rule == rule


@pytest.mark.parametrize(
    ("count", "operation", "kind"),
    [
        (5, "packed_attention", "value"),
        (4, "packed_attention", "value"),
        (5, "attention", "value"),
        (5, "packed_attention", "pattern"),
    ],
)
def test_the_rule_of_an_output_is_named_for_many_numbers_of_a_form(count, operation, kind):
    off = Difference(kind, "lse", (0,), 1.0, 2.0, outputs=("lse",))
    failing = [replace(FAIL, case=f"a-{n}-float32", difference=off, rule="PACK-1") for n in range(count)]
    failing = [replace(verdict, operation=operation) for verdict in failing]
    named = (count, operation, kind) == (5, "packed_attention", "value")
    assert with_rule_of_bug(Finding("PACK-1", tuple(failing))).rule == ("SOFT-6" if named else "PACK-1")


@pytest.mark.parametrize(("failing", "rule"), [(5, "MASK-8"), (4, "MASK-3"), (9, "MASK-8")])
def test_the_rule_of_an_entry_that_fits_many_calls_of_its_chapter_is_named(failing, rule):
    calls = tuple(replace(FAIL, case=f"a-{n}-float32", rule="MASK-3") for n in range(9))
    for own in ("MASK-8", "HEAD-1"):  # one of another chapter is not what these calls are about
        cause = replace(
            Finding("MASK-3", calls),
            diagnosis=Diagnosis((Twin(("one",), "Do so.", own),), failing, 9, 0.0, 9),
        )
        assert with_rule_of_bug(cause).rule == (rule if own == "MASK-8" else "MASK-3")


@pytest.mark.parametrize(("others", "rule"), [(["MASK-8"], "MASK-8"), (["MASK-4"], "MASK-3"), ([], "MASK-8")])
def test_the_rule_of_several_entries_is_named_if_it_is_one(others, rule):
    calls = tuple(replace(FAIL, case=f"a-{n}-float32", rule="MASK-3") for n in range(9))
    twins = tuple(Twin((f"entry_{n}",), "Do so.", own) for n, own in enumerate(("MASK-8", *others)))
    cause = replace(Finding("MASK-3", calls), diagnosis=Diagnosis(twins, 9, 9, 0.0, 9))
    assert with_rule_of_bug(cause).rule == rule


def test_the_rule_of_an_output_says_more_than_that_of_every_element():
    off = Difference("value", "lse", (0,), 1.0, 2.0, outputs=("lse",))
    calls = tuple(replace(FAIL, case=f"a-{n}-float32", rule="SOFT-1", difference=off) for n in range(9))
    calls = (*calls, replace(calls[0], case="a-9-float32", rule="SOFT-6"))
    diagnosis = Diagnosis((Twin(("entry",), "Do so.", "NUM-3"),), 10, 10, 0.0, 9)
    assert with_rule_of_bug(replace(Finding("SOFT-1", calls), diagnosis=diagnosis)).rule == "SOFT-6"


def test_an_entry_and_a_probe_are_named_if_the_cause_has_the_rule_of_an_output():
    """They were found under that rule, which replaces the one of the calls."""
    wrong = [("output", "lse")] * 3 + [("lse",)] * 6
    calls = [
        replace(FAIL, case=f"a-{n}-float32", rules=("SOFT-1",), rule="SOFT-1", difference=off, variant="")
        for n, off in enumerate(Difference("value", own[0], (0,), 1.0, 2.0, outputs=own) for own in wrong)
    ]
    calls[-1] = replace(calls[-1], rules=("SOFT-6",), rule="SOFT-6")
    ((rule, _),) = cases_to_diagnose([*calls, replace(PASS, rules=("SOFT-1",))])
    assert rule == "SOFT-6"
    (cause,) = findings(calls, calls, {"m:f": {rule: FILLS}}, {"m:f": {rule: "probed: so"}})
    assert (cause.diagnosis, cause.probed) == (FILLS, "probed: so")


def test_the_rules_of_the_options_of_a_form_are_named():
    single = replace(FAIL, operation="packed_attention", rule="STACK-2", traits=("query_offset", "window"))
    lines = [*cause_lines(Finding("STACK-2", (single,)))]
    assert "`window`: MASK-8 A window includes both its bounds" in lines
    several = Finding("STACK-2", (single,) * 5, Common(("key_lengths by entry",), 5, 5, 0, 9))
    assert "`key_lengths`: MASK-9 Keys past the length are disallowed" in [*cause_lines(several)]
    assert not any("MASK-9" in line for line in cause_lines(replace(several, rule="MASK-3")))
