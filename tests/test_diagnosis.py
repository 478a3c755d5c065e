"""Diagnosis names the right entry, or none."""

from dataclasses import replace

import numpy as np
import pytest
from made_verdicts import NAN, changed, error, fail, ok
from reported import FAIL, FILLS, PASS
from tests_support import about

from attnspec import Case
from attnspec.backends import load
from attnspec.conformance import traits
from attnspec.conformance.attribution.causes import findings
from attnspec.conformance.attribution.diagnosis import (
    Gallery,
    diagnose,
    diagnose_run,
    fails,
    nearest,
    outputs_of,
    share_of,
)
from attnspec.conformance.attribution.finding import Diagnosis, Twin
from attnspec.conformance.attribution.resemblance import CallCounts, Tally
from attnspec.conformance.attribution.sample import cases_to_diagnose
from attnspec.conformance.gallery import correct_entries, entry, wrong_entries
from attnspec.conformance.gallery.splits import RELATIVE
from attnspec.conformance.render.finding import diagnosis_text, finding_line
from attnspec.conformance.run.events import events
from attnspec.conformance.run.plan import Selection
from attnspec.conformance.run.pool import Pool
from attnspec.conformance.suite import find
from attnspec.conformance.verdict import Verdict
from attnspec.reference import attention as reference
from attnspec.reference.call import STEPS
from tools.diagnosis import diagnose_entry, golden_vectors, on_another_base, probes

PROBES = probes(seed=11)
GALLERY = Gallery()


def names(found: Diagnosis | None) -> list[str]:
    return [*found.names] if found else []


@pytest.mark.parametrize(
    "name",
    [
        "causal_without_the_diagonal",
        "window_without_its_left_bound",
        "key_at_the_length_allowed",
        "cap_by_clipping",
        "sink_scaled",
        "lse_to_base_two",
        "groups_of_three_by_halves",
        "keys_past_sixty_four_dropped",
        "key_heads_tiled",
        "kept_weights_left_as_they_are",
    ],
)
@pytest.mark.sample(3)
def test_the_same_bug_on_another_base_is_named(name):
    found = diagnose_entry(entry(name), PROBES, GALLERY)
    assert found.named == (name,)
    assert found.without == (), "its name was another's, as its own was not to be had"


def test_nothing_is_said_of_what_the_gallery_does_not_tell_apart_or_have():
    keys_are_more = [one for one in PROBES if "is_causal" in one.arguments]
    found = diagnose_entry(entry("causal_bottom_right"), keys_are_more, GALLERY)
    assert found.named == ("causal_bottom_right", "causal_bottom_right_where_keys_are_more")
    both = {**entry("sink_scaled").steps, **entry("key_heads_tiled").steps}
    assert diagnose(replace(entry("plain"), steps=both).backend(), PROBES, GALLERY) is None

    def third(call, p):
        return np.where(np.arange(p.shape[-1]) == 2, 0, p)

    assert diagnose(replace(entry("plain"), steps={"drop": third}).backend(), PROBES, GALLERY) is None


@pytest.mark.parametrize(("more", "both"), [(0, {"scale_without_the_root"}), (4, set())])
def test_of_one_depth_a_constant_and_a_power_of_the_depth_are_both_named(more, both):
    def called(number, **options):
        arrays = np.random.default_rng(number).normal(size=(3, 2, 5, depth := number % 2 * more + 8))
        arguments = dict(zip(("query", "key", "value"), arrays, strict=True)) | options
        return Case(f"own-{number}-{depth}", "", "scores", "attention", ("SOFT-1",), arguments, group="own")

    calls = [*(called(n) for n in range(4)), *(called(n, scale=0.5) for n in range(4, 8))]
    found = diagnose(entry("constant_scale").backend(), calls, GALLERY)
    padded = "scale_of_a_depth_of_multiples_of_64"  # of depths up to 64 it is one constant
    assert {*found.names} == {"constant_scale", padded} | both


@pytest.mark.parametrize(
    ("number", "said"), [(0.25, "0.25"), (0.1, "0.1"), (3.7, "3.7"), (96**-0.5, "0.102062")]
)
def test_a_constant_scale_is_named_with_its_number(number, said):
    def constant(call):
        return number if call.scale is None else STEPS["factor"](call)

    arrays = np.random.default_rng(0).normal(size=(3, 2, 5, 40))
    arguments = dict(zip(("query", "key", "value"), arrays, strict=True))
    deep = Case("own-deep", "", "scores", "attention", ("SOFT-1",), arguments, group="own")
    found = diagnose(replace(entry("plain"), steps={"factor": constant}).backend(), [*PROBES, deep], GALLERY)
    assert names(found) == ["constant_scale"]
    assert f"(Take a constant scale of {said}, whatever the depth; SCORE-2)" in diagnosis_text(found)


@pytest.mark.parametrize("name", ["plain", "tiles_with_a_running_maximum", "everything_in_float64"])
@pytest.mark.sample(1)
def test_of_a_correct_one_nothing_is_said(name):
    assert name in [one.name for one in correct_entries()]
    assert diagnose(entry(name).backend(), PROBES, GALLERY) is None


def test_how_many_failing_calls_are_enough():
    failing = [one for one in PROBES if "sinks" in one.arguments][:1]
    assert diagnose(entry("sink_scaled").backend(), failing) is None
    passing = [one for one in (*golden_vectors(), *PROBES) if "sinks" not in one.arguments][:140]
    failing = [one for one in PROBES if "sinks" in one.arguments and one.dtype == "float32"][:1]
    found = diagnose(entry("sink_scaled").backend(), [*passing, *failing], GALLERY)
    assert names(found) == ["sink_scaled"]
    assert (found.failing, found.passing >= 100) == (1, True)
    found = diagnose(on_another_base(entry("any_scale_taken")), golden_vectors(), GALLERY)
    assert names(found) == ["any_scale_taken"]
    far = [find(f"softmax-sink-far-from-all-scores-above-{number}-float32") for number in (1, 2)]
    found = diagnose(entry("splits_of_32_relative_to_the_first").backend(), far, Gallery(RELATIVE))
    assert names(found) == [f"splits_of_{size}_relative_to_the_first" for size in (16, 32, 64, 128)]
    assert "splits_of_16_relative_to_the_first (or of 32, 64, 128) (Merge splits" in diagnosis_text(found)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("sum_not_rescaled_past_tiles_of_16", "softmax-maximum-over-tiles-rises-in-each-tile-1"),
        ("values_not_rescaled_past_tiles_of_16", "softmax-maximum-over-tiles-rises-in-each-tile-1"),
        ("scales_of_key_heads_tiled", "quantization-attention-grouped"),
        ("offset_only_forward_beside_the_output", "gradients-causal-offset"),
        ("causal_rows_of_a_moved_tile_of_8", "errors-option-past-every-tile-is-causal-1"),
        (
            "mask_strides_end_at_an_axis_of_one",
            "masking-broadcast-mask-beside-one-number-of-each-head-and-is-causal-1",
        ),
    ],
)
@pytest.mark.sample(2)
def test_one_failing_call_of_a_smallest_run_is_named_by_its_numbers(name, case):
    """A smallest run has one call of a kind. Its whole result tells the entry from all others."""
    backend, failing = entry(name).backend(), find(f"{case}-float32")
    others = [*golden_vectors(), *about("MASK-1")]
    passing = [one for one in others if isinstance(one, Case) and one.dtype == "float32"]
    passing = [one for one in passing if not fails(backend, one, outputs_of(backend, one))]
    families = {rule.partition("-")[0] for rule in (entry(name).rule, *failing.rules)}
    near = Gallery(tuple(one for one in wrong_entries() if one.rule.partition("-")[0] in families))
    found = diagnose(backend, [*passing[:20], *passing[-10:], failing], near)
    assert names(found) == [name]
    assert (found.failing, found.path) == (1, None)
    assert diagnose(backend, [*passing[:5], failing], near) is None, "too few calls pass"


def test_an_implementation_of_somebody_else_is_named_by_the_golden_vectors():
    def bottom_right(query, key, value, *, mask=None, is_causal=False, scale=None):
        offset = key.shape[-2] - query.shape[-2] if is_causal else 0
        options = {"mask": mask, "is_causal": is_causal, "scale": scale, "query_offset": offset}
        return reference(query, key, value, **options).astype(query.dtype)

    own = replace(load("numpy-portable"), attention=bottom_right, companions={})
    found = diagnose(own, golden_vectors(), GALLERY)
    # Without offsets the two are one.
    assert names(found) == ["causal_bottom_right", "causal_bottom_right_besides_the_offset"]
    assert found.share < 1
    assert diagnosis_text(found).startswith(
        "consistent with: causal_bottom_right (Align the last query with the last key"
    )
    assert f"{found.failing} of {found.failing} failing cases" in diagnosis_text(found)


def test_a_bug_is_named_in_a_dialect_and_beside_another_treatment_of_empty_rows():
    wrong = entry("cap_after_the_mask").backend().attention

    def bottom_right(query, key, value, *, is_causal=False, softcap=None, scale=None):
        offset = key.shape[-2] - query.shape[-2]
        given = {"is_causal": is_causal, "softcap": softcap, "scale": scale, "query_offset": offset}
        output = wrong(query, key, value, **{name: x for name, x in given.items() if x is not None})
        if is_causal:  # the wrong kernel of the gallery leaves a mean in empty rows
            output[..., : max(-offset, 0), :] = 0
        return output

    dialect = {"MASK-3": "bottom-right"}
    own = replace(load("numpy-portable"), attention=bottom_right, companions={}, dialect=dialect)
    of_softcap = [case for case in about("SCORE-5") if case.dtype == "float32"]
    assert names(diagnose(own, of_softcap, GALLERY)) == ["cap_after_the_mask"]
    assert diagnose(replace(own, dialect={}), of_softcap, GALLERY) is None


def test_a_failing_run_is_diagnosed_in_the_process_that_judges():
    failing = "attnspec.conformance.gallery:lse_negative"
    with Pool(failing, Selection(rules=("SOFT-6",), quick=True)) as pool:
        verdicts = [event for event in events(pool, pool.selection) if isinstance(event, Verdict)]
        assert any(verdict.bad for verdict in verdicts)
        ((rule, cases),) = cases_to_diagnose(verdicts)
        found = pool.diagnose(cases, 120)
    assert rule == "SOFT-6"
    assert diagnosis_text(found).startswith("consistent with: lse_negative (Return the negative lse")


def only_where(name, step, kept):
    """An entry that has its bug in some calls, and is right in the others."""

    def replaced(call, *rest):
        return (entry(name).steps if kept(call) else {}).get(step, STEPS[step])(call, *rest)

    return replace(entry("plain"), steps={step: replaced}).backend()


def with_sinks():
    return [one for one in PROBES if "sinks" in one.arguments or not one.arguments.keys() & {"bias"}]


def test_a_twin_that_fails_where_one_passes_is_not_named_unless_a_trait_tells_these_calls():
    # One dtype of each shape, another of every second shape: nothing that calls are told by.
    some = only_where(
        "sink_scaled", "softmax_of", lambda call: (call.queries == 19) == (call.storage == "float16")
    )
    assert diagnose(some, with_sinks(), GALLERY) is None


def test_a_bug_of_one_path_is_named_with_the_trait_of_its_calls():
    short = only_where("sink_scaled", "softmax_of", lambda call: call.queries <= 16)
    assert diagnosis_text(diagnose(short, with_sinks(), GALLERY)).startswith(
        "consistent with: sink_scaled (Multiply the sinks by the scale too; SOFT-5), "
        "but not in calls with more than 16 keys or queries (the same on "
    )
    shared = only_where(
        "scale_without_the_root", "factor", lambda call: call.key.shape[-3] < call.query.shape[-3]
    )
    asked = [one for one in (*golden_vectors(), *PROBES) if one.operation == "attention"]
    found = diagnose(shared, asked, GALLERY)
    assert (names(found), found.path) == (["scale_without_the_root"], (traits.SHARED, True))
    assert "; SCORE-2), only in calls with shared key heads (the same on" in diagnosis_text(found)


def test_calls_with_nan_are_not_asked_for_if_others_fail():
    finite = only_where("scale_without_the_root", "factor", lambda call: np.isfinite(call.query).all())
    found = diagnose(finite, [*golden_vectors(), *PROBES], GALLERY)
    assert names(found) == ["scale_without_the_root"]
    assert diagnosis_text(found).startswith("consistent with: scale_without_the_root (Divide by the depth")


@pytest.mark.parametrize("bad", [True, False])
def test_an_entry_that_differs_on_one_call_is_not_named(bad):
    few = [frozenset({"float32"})] * 100
    counts = CallCounts.of(few, few)
    tally = Tally(entry("sink_scaled"))
    assert tally.may_be(counts)
    tally.add(9.0, frozenset({"float32"}), bad=bad)
    assert not tally.may_be(counts)
    assert nearest([tally], counts) is None


@pytest.mark.parametrize(
    ("wrong", "asked"), [(("bfloat16", "float32"), "float32"), (["bfloat16"], "bfloat16")]
)
def test_the_widest_dtype_in_which_a_value_is_wrong_is_asked(wrong, asked):
    """The rounding of half precision hides what calls have in common."""
    verdicts = [
        replace(FAIL if dtype in wrong and number % 2 else PASS, case=f"{number}-{dtype}", dtype=dtype)
        for dtype in ("bfloat16", "float32")
        for number in range(40)
    ]
    ((_, cases),) = cases_to_diagnose(verdicts)
    assert {case.rpartition("-")[2] for case, _ in cases} == {asked}


def test_the_deepest_call_is_among_those_asked_for():
    deep = fail(1, "SCORE-2", "no scale", name="deep", sizes=(1, 1, 1, 2, 2, 64, 8))
    many = [*fail(51, "SCORE-2", "no scale"), *deep, *fail(99, "SCORE-2", "no scale", name="flat"), *ok(60)]
    ((_, cases),) = cases_to_diagnose(many)
    assert deep[0].case in dict(cases)


def test_each_cause_has_its_own_failing_calls_and_its_diagnosis():
    many = [*fail(20, "NUM-11", "special numbers", difference=NAN), *fail(9, "MASK-8", "window"), *ok(60)]
    asked = dict(cases_to_diagnose(many))
    assert [*asked] == ["MASK-8", "NUM-11"], "what NaN alone shows comes later"
    assert not {case for case, _ in asked["MASK-8"] if case.startswith("NUM-11")}
    twins = {rule: replace(FILLS, twins=(Twin((rule,), "It.", rule),)) for rule in asked}
    causes = findings([verdict for verdict in many if verdict.bad], many, diagnoses={"b": twins})
    assert [(cause.rule, names(cause.diagnosis)) for cause in causes] == [(rule, [rule]) for rule in asked]
    assert "MASK-8 A window includes both its bounds (MASK-8) (9 cases): " in finding_line(causes[0])
    for others in (ok(30), []):  # without others every call raises
        raising = [*error(9, "no", "mask"), *others]
        assert [*cases_to_diagnose(raising)] == [], "one that raises too may do so for another reason"


def test_failures_that_are_about_no_values_name_no_entry():
    """An entry that has an error of its own in these calls does not resemble the failing function."""

    def masks_refused(query, key, value, *, mask=None, is_causal=False, scale=None):
        if mask is not None:
            raise RuntimeError("no kernel takes a mask")
        return reference(query, key, value, is_causal=is_causal, scale=scale).astype(query.dtype)

    own = replace(load("numpy-portable"), attention=masks_refused, companions={})
    assert diagnose(own, golden_vectors(), GALLERY) is None
    assert [*cases_to_diagnose([*changed(9), *ok(60)])] == []


def test_changes_of_two_arguments_are_two_ways_to_fail():
    case, keys, query = PROBES[0], *map(entry, ("keys_scaled_in_place", "query_scaled_in_place"))
    ways = [outputs_of(own.backend(), case) for own in (keys, keys, query)]
    shares = [share_of(keys.backend(), case, ways[0], other) for other in ways[1:]]
    assert shares == [0, np.inf]


def test_entries_of_a_failing_rule_are_compared_without_a_limit_of_time(monkeypatch):
    """Neither other work of the machine nor slow calls of the backend take the time of the search."""
    asked = [*(case for case in PROBES if "sinks" in case.arguments), *golden_vectors()][:60]
    other = replace(asked[0], rules=("MASK-1", "SOFT-5"))
    found = diagnose_run(entry("sink_scaled").backend(), [other, *asked[1:]], -1.0)
    assert names(found) == ["sink_scaled"]
    clock = iter(range(10**9))
    monkeypatch.setattr("attnspec.conformance.attribution.diagnosis.process_time", lambda: next(clock))
    plain = [replace(case, rules=("NUM-1",)) for case in asked]
    assert diagnose_run(entry("sink_scaled").backend(), plain, 0.0) is None, "the time is up"
    found = diagnose_run(entry("sink_scaled").backend(), plain, 1.0)
    assert names(found) == ["sink_scaled"], "few entries are left after the first call"


def test_an_entry_of_another_rule_that_agrees_is_named_too():
    asked = [*(case for case in PROBES if "sinks" in case.arguments), *golden_vectors()][:60]
    own = entry("sink_scaled")
    entries = [own, *(replace(own, name=name, rule="NUM-14") for name in ("of_another_rule", "and_another"))]
    found = diagnose_run(own.backend(), asked, 9.0, Gallery((*entries, entry("no_default_scale"))))
    assert {*names(found)} == {own.name for own in entries}
    many = [replace(own, name=f"name_{letter}", rule="NUM-14") for letter in "abc"]
    assert diagnose_run(own.backend(), asked, 9.0, Gallery((own, *many))) is None, "more than are named"


@pytest.mark.parametrize(("number", "said"), [(1, False), (3, True)])
def test_a_qualifier_needs_several_calls(number, said):
    outside = [frozenset({"mask", "other value depth"})] * number
    tally = Tally(entry("sink_scaled"), outside=outside)
    counts = CallCounts.of([frozenset({"mask"})] * 3, [*outside, *[frozenset()] * 40])
    text = diagnosis_text(nearest([tally], counts))
    assert ("but not in calls with values of another depth" in text) == said
    assert f"3 of 3 failing cases, 40 of {40 + number} passing ones" in text
