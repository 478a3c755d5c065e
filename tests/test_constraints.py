"""Implementations that take only some calls: the suite fits its cases, and a declined call is not offered."""

import re
from dataclasses import replace

import numpy as np
import pytest
from tests_support import about, command, fitted_cases, own_case

from attnspec import OPERATIONS, Case, Misuse, find_case, reference
from attnspec.backends import Backend, Unsupported, describe, load, load_library
from attnspec.backends.constraints import ANY, FITTED, Constraints, fields_about, fits
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.function import backend_of, with_settings
from attnspec.backends.user.settings import Settings
from attnspec.conformance import check
from attnspec.conformance.claim import class_of
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.results import Header, Run, Subject
from attnspec.conformance.run.child import subject_of
from attnspec.conformance.run.events import offer_of
from attnspec.conformance.suite import constraints_in, find, groups, items
from attnspec.conformance.suite.problem import Shape, fitted
from attnspec.conformance.verdict import Verdict, from_json, to_json
from attnspec.operations import LETTERS

DEEP = Constraints(axes=4, depths=(64,))
DEPTH = Constraints(depths=(64,))
TILED = Constraints(multiple=(1, 16), heads="equal")
EQUAL = Constraints(heads="equal")
CAUSAL = Constraints(always={"is_causal": True})


def kernel(query, key, value, *, scale=None, mask=None):
    """Four axes and a depth of 64 alone, as many key heads as query heads."""
    assert query.ndim == 4
    assert {array.shape[-1] for array in (query, key, value)} == {64}
    assert query.shape[1] == key.shape[1]
    return reference.attention(query, key, value, scale=scale, mask=mask, dtype=query.dtype)


def always_causal(query, key, value, *, scale=None):
    return reference.attention(query, key, value, scale=scale, is_causal=True, dtype=query.dtype)


def constrained(function, constraints):
    backend = Backend("mine", load_library("numpy"), function, ("float32",), constraints=constraints)
    return with_settings("mine", backend, Settings())


def judged(backend, *rules):
    drawn = fitted_cases(backend.constraints, *rules)
    return [judge(backend, case) for case in drawn if case.dtype == "float32"]


@pytest.mark.parametrize(
    ("function", "constraints", "least"),
    [(kernel, replace(DEEP, heads="equal"), 50), (always_causal, CAUSAL, 30)],
)
@pytest.mark.sample(1)
def test_a_kernel_with_constraints_is_judged_by_what_it_takes(function, constraints, least):
    verdicts = judged(constrained(function, constraints), "SCORE-1", "SCORE-3", "HEAD-1")
    assert {verdict.status for verdict in verdicts} == {"pass", "unsupported"}
    assert sum(verdict.status == "pass" for verdict in verdicts) > least
    assert any("takes only" in one.reason or "always applies" in one.reason for one in verdicts)


def test_a_fault_of_it_is_found():
    def wrong(query, key, value, *, scale=None, mask=None):
        return kernel(query, key, value, scale=0.1 if scale is None else scale, mask=mask)

    verdicts = judged(constrained(wrong, DEEP), "SCORE-2")
    assert "SCORE-2" in {verdict.rule for verdict in verdicts if verdict.bad}


@pytest.mark.parametrize("constraints", [DEEP, TILED, CAUSAL], ids=lambda one: one.suffix)
@pytest.mark.sample(1)
def test_most_generated_cases_fit_and_say_so_in_their_names(constraints):
    some = [*groups()][::12]
    plain = {item.name: item for group in some for item in group.items()}
    fit = total = 0
    for group in some:
        for item in group.items(None, constraints):
            cases = item.calls if isinstance(item, Relation) else (item,)
            if item.operation == "attention" and not getattr(item, "misuse", None):
                total += 1
                fit += not any(fits(constraints, case.arguments) for case in cases)
            if FITTED in item.id:
                assert item.id.endswith(FITTED + constraints.suffix)
                assert item.name.replace(FITTED + constraints.suffix, "") in plain
            else:  # the very case that everybody is asked
                own = plain[item.name]
                others = own.calls if isinstance(own, Relation) else (own,)
                assert [one.fingerprint for one in cases] == [one.fingerprint for one in others]
    assert fit / total > 0.8


def strict(query, key, value, *, scale=None, mask=None):
    """A depth of 64 alone: of any other it does not look at what else is wrong."""
    if query.shape[-1] != 64:
        raise ValueError("no such depth")
    return reference.attention(query, key, value, scale=scale, mask=mask, dtype=query.dtype)


@pytest.mark.exhaustive
def test_calls_are_drawn_to_fit_but_for_what_is_wrong():
    backend = constrained(strict, DEPTH)
    asked = ("refused: ", "named in the error: ", "mixed dtypes", "not floating point")
    chosen = [one for one in items(constraints=DEPTH) if one.group.startswith(asked)]
    found = [judge(backend, one) for one in chosen if one.dtype == "float32"]
    assert {verdict.status for verdict in found} == {"pass", "unsupported"}
    passing = {verdict.group for verdict in found if verdict.status == "pass"}
    assert {"refused: scale of NaN", "refused: mask of integers", "named in the error: attention"} <= passing
    assert "not floating point: int32 and key" in passing
    backend = constrained(always_causal, CAUSAL)
    chosen = [one for one in items(constraints=CAUSAL) if isinstance(one, Relation)]
    found = [judge(backend, one) for one in chosen if one.dtype == "float32"]
    assert {verdict.status for verdict in found} == {"pass", "unsupported"}
    passing = {verdict.group for verdict in found if verdict.status == "pass"}
    asked = {"call repeated: plain", "batch entry alone", "inputs beside: scale", "earlier calls: scale"}
    assert asked <= passing


@pytest.mark.parametrize("constraints", [replace(DEEP, heads="equal"), CAUSAL], ids=lambda one: one.suffix)
def test_cases_that_a_backend_does_not_offer_are_not_drawn_and_have_the_same_verdicts(
    constraints, monkeypatch
):
    """Without an offer, each case is drawn and judged. A few chapters stand for all."""
    backend = constrained(always_causal if constraints is CAUSAL else kernel, constraints)
    added, chapters, rows = FITTED + constraints.suffix, ("scores", "heads", "caching", "packing"), []
    monkeypatch.setattr("attnspec.conformance.suite.CHAPTERS", chapters)
    for offer in (offer_of, lambda _: None):
        monkeypatch.setattr("attnspec.conformance.run.child.offer_of", offer)
        every = check(
            backend, rules=("SCORE-1", "SCORE-4", "HEAD-1", "CACHE-1", "PACK-1")
        ).report.results.verdicts
        verdicts = [verdict for verdict in every if verdict.case.startswith(chapters)]
        rows.append([(x.case.replace(added, ""), x.status, x.reason) for x in verdicts])
        statuses = [verdict.status for verdict in verdicts if added in verdict.case]
    assert rows[0] == rows[1]
    assert {status for _, status, _ in rows[0]} == {"pass", "unsupported"}
    assert "unsupported" in statuses, "without an offer"


def test_names_have_a_suffix_of_the_constraints():
    assert not any(FITTED in case.name for case in about("MASK-3"))
    name = next(
        case.name for case in fitted_cases(DEEP, "MASK-3") if case.name.startswith("masking-causal-3")
    )
    assert name == "masking-causal-3+a4-d64-float32"
    assert find(name).arguments["query"].shape[-1] == 64
    with pytest.raises(Exception, match=r"expected a suffix such as \+d64.128-s16"):
        find("masking-causal-3+x-float32")


@pytest.mark.parametrize(
    "constraints",
    [
        DEEP,
        Constraints(depths=(8, 16), multiple=(4, 1)),
        CAUSAL,
        Constraints(one_query=True, window="both"),
        Constraints(one_query=True, window="left"),
        Constraints(axes=4, heads="equal", value_depth="key", one_query=True, scales="token"),
        Constraints(axes=4, scales="head", encoding="e4m3fn"),
    ],
)
def test_what_a_suffix_says_is_read_back(constraints):
    assert Constraints.of_suffix(constraints.suffix) == constraints
    for dtype in ("float32", "int32", "bool"):  # integers are in calls that must be rejected
        assert constraints_in([f"errors-x-1{FITTED}{constraints.suffix}-{dtype}"]) == constraints


@pytest.mark.parametrize(
    ("constraints", "arguments", "reason"),
    [
        (ANY, {}, ""),
        (DEEP, {}, "takes only depths of 64, got 4"),
        (Constraints(axes=3), {"query": np.ones((1, 2, 3, 4))}, "takes only arrays of 3 axes, got 4"),
        (Constraints(depths=(4,)), {"value": np.ones((2, 5, 3))}, "takes only depths of 4, got 3"),
        (Constraints(multiple=(4, 1)), {}, "takes only multiples of 4 queries, got 3"),
        (Constraints(multiple=(1, 4)), {}, "takes only multiples of 4 keys, got 5"),
        (Constraints(multiple=(3, 5), depths=(4, 8)), {}, ""),
        (EQUAL, {"query": np.ones((4, 3, 4))}, "takes only as many key heads as query heads, got 2 for 4"),
        (CAUSAL, {}, "always applies is_causal = True, got False"),
        (CAUSAL, {"is_causal": True}, ""),
    ],
)
def test_what_does_not_fit(constraints, arguments, reason):
    call = {"query": np.ones((2, 3, 4)), "key": np.ones((2, 5, 4)), "value": np.ones((2, 5, 4))}
    assert fits(constraints, call | arguments) == reason


@pytest.mark.parametrize(
    ("shape", "constraints", "expected"),
    [
        (Shape((), 3, 5, 4, 4), DEEP, (3, 5, 64, 64)),
        (Shape((), 3, 5, 71, 4), Constraints(depths=(64, 128)), (3, 5, 128, 128)),
        (Shape((), 3, 5, 300, 4), Constraints(depths=(64, 128)), (3, 5, 128, 128)),
        (Shape((), 3, 5, 4, 4), Constraints(multiple=(16, 16)), (16, 32, 4, 4)),
        (Shape((), 5, 3, 4, 4), Constraints(multiple=(16, 16)), (32, 16, 4, 4)),
        (Shape((), 4, 4, 4, 4), Constraints(multiple=(16, 16)), (16, 16, 4, 4)),
        (Shape((), 0, 4, 4, 4), Constraints(multiple=(16, 16)), (0, 16, 4, 4)),
    ],
)
def test_a_shape_that_is_brought_to_fit(shape, constraints, expected):
    assert fitted(shape, constraints) == ((), *expected, 1)


def test_the_command_finds_a_case_by_the_constraints_in_its_name():
    case = "errors-options-together-9+a4-float32"
    found = command("check", "numpy", "--case", case, status=0)
    assert "1 pass" in " ".join(found.output.split())


PORTABLE = load("numpy-portable")


def backend_that(raises):
    def attention(query, key, value, *, mask=None, is_causal=False):
        if mask is not None:
            raise raises
        return reference.attention(query, key, value, is_causal=is_causal, dtype=query.dtype)

    return replace(PORTABLE, attention=attention, companions={})


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (NotImplementedError("no masks yet"), "unsupported", "NotImplementedError: no masks yet"),
        (Unsupported("no masks yet"), "unsupported", "no masks yet"),
        (NotImplementedError(), "unsupported", "NotImplementedError"),
        (ValueError("no"), "error", ""),
    ],
)
def test_a_call_that_is_declined_is_unsupported_by_its_message(error, status, reason):
    verdict = judge(backend_that(error), find_case("masking-empty-last"))
    assert (verdict.status, verdict.reason, verdict.declined) == (status, reason, bool(reason))
    assert from_json(to_json(verdict)) == verdict


def test_where_an_error_must_be_raised_it_is_one():
    def attention(query, key, value):
        if key.shape[:-1] != value.shape[:-1]:
            raise NotImplementedError("value: no such shape")
        return reference.attention(query, key, value, dtype=query.dtype)

    backend = replace(PORTABLE, attention=attention, companions={})
    assert judge(backend, find_case("notation-misfit-positions")).status == "pass"


@pytest.mark.parametrize("error", [NotImplementedError, ValueError])
def test_what_is_not_offered_need_not_name_an_argument(error):
    def attention(query, key, value):
        if query.shape[-1] != key.shape[-1]:
            raise error("not yet")
        return reference.attention(query, key, value, dtype=query.dtype)

    backend = replace(PORTABLE, attention=attention, companions={})
    arrays = {name: np.ones((2, 3, depth)) for name, depth in (("query", 4), ("key", 5), ("value", 4))}
    case = own_case("ERR-12", arrays, misuse=Misuse("key"))
    verdict = judge(backend, case)
    assert verdict.status == ("should not met" if error is ValueError else "unsupported")
    assert not verdict.declined, "it is no call that the standard offers"


def of_some_calls(query, key, value, *, is_causal=False):
    if (queries := query.shape[-2]) != key.shape[-2]:
        raise NotImplementedError("as many keys as queries")
    if queries % 3 == 1:
        raise NotImplementedError("one more than threes")
    return reference.attention(query, key, value, is_causal=is_causal, dtype=query.dtype)


def test_the_report_says_which_calls_were_declined_and_which_key_describes_them():
    text = " ".join(check(of_some_calls, rules=["MASK-3", "SOFT-1"], dtypes=["float32"]).text.split())
    said = "declined by NotImplementedError: "
    assert re.search(f'{said}as many keys as queries: [0-9]+ calls; lengths = "equal" describes them', text)
    assert re.search(
        f"{said}one more than threes: [0-9]+ calls; no key of attnspec.toml describes them", text
    )
    told = check(of_some_calls, rules=["MASK-3"], dtypes=["float32"], lengths="equal")
    fitted = [x for x in told.report.results.verdicts if "equal.lengths" in x.case]
    assert "pass" in {verdict.status for verdict in fitted}
    assert not any(verdict.reason.endswith("as many keys as queries") for verdict in fitted)


def of_left_sides(query, key, value, *, window=None):
    if window and window[1] not in (None, 0):
        raise NotImplementedError("left sides")
    return reference.attention(query, key, value, is_causal=True, window=window, dtype=query.dtype)


def test_the_key_for_a_window_of_a_left_side_is_named():
    said = {"rules": ["MASK-8"], "quick": True, "dtypes": ["float32"], "always": {"is_causal": True}}
    text = " ".join(check(of_left_sides, **said).text.split())
    assert re.search('left sides: [0-9]+ calls?; window = "left", with one number .* describes them', text)


def paged_attention(query, key_pages, value_pages, *, block_table, key_lengths, scale=None):
    if query.shape[-2] != 1 or query.ndim != 4:
        raise NotImplementedError("one query of each sequence, one axis of sequences")
    options = {"block_table": block_table, "key_lengths": key_lengths, "scale": scale}
    return reference.paged_attention(query, key_pages, value_pages, **options, dtype=query.dtype)


def test_two_keys_describe_what_one_message_declines():
    asked = {"rules": ["PAGE-1", "PAGE-3", "STACK-2"], "quick": True, "dtypes": ["float32"]}
    text = " ".join(check(paged_attention, **asked).text.split())
    assert re.search('of sequences: [0-9]+ calls; one_query = "axis" and axes = 4 describes them', text)
    described = check(paged_attention, **asked, one_query="axis", axes=4)
    assert described.good, described.text
    assert "declined by" not in described.text
    assert [x.status for x in described.report.results.verdicts].count("pass") > 10


def test_a_key_is_not_proposed_if_no_call_was_judged():
    def block_sparse_attention(query, key, value, *, query_block, key_block, block_mask=None):
        raise NotImplementedError("never")

    text = " ".join(check(block_sparse_attention, rules=["SPARSE-1"], quick=True).text.split())
    assert "never: 11 calls; no call was judged, which would show what key describes them" in text


#: A value of each key that a message advises.
VALUES = {
    "axes": 4,
    "always": {"is_causal": True},
    "depths": [64],
    "multiple": 2,
    "lengths": "equal",
    "heads": "equal",
    "value_depth": "key",
    "one_query": True,
    "encoding": "e4m3fn",
}


def declining(operation):
    """What a run says about a backend that declines every call of an operation."""
    declined = Verdict("k", "a-float32", "", ("SOFT-1",), "unsupported", "float32", operation, declined=True)
    run = Run(Header("1", cases=(declined.case,)), [Subject("k", "numpy", "2")], [declined], ended=True)
    return run.judged()[0].problem


def calls_with_windows(kind):
    """The calls with both sides of a window, for a function that takes one number of that kind."""
    every = fitted_cases(Constraints(window=kind), "MASK-8")
    own = [item for item in every if isinstance(item, Case) and not (item.expected or item.misuse)]
    return [item.arguments for item in own if isinstance(item.arguments.get("window"), tuple)]


def test_a_window_of_one_number_to_the_left_is_judged_without_a_right_side():
    calls = calls_with_windows("left")
    open_right = [
        call["window"] for call in calls if not call.get("is_causal") and None not in call["window"]
    ]
    assert all(right == 0 for left, right in open_right if left)
    assert sum(left > 0 for left, _ in open_right) > 20


def test_a_window_of_one_number_is_judged_on_calls_of_equal_sides():
    windows = [call["window"] for call in calls_with_windows("both")]
    assert all(left == right for left, right in windows if None not in (left, right) and max(left, right))
    assert sum(left == right for left, right in windows) > 20


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if not name.endswith("_vjp")])
def test_each_key_that_a_message_advises_is_accepted_and_excludes_calls(operation):
    advice = declining(operation).partition("use ")[2]
    if not advice:
        assert not fields_about(operation)
        assert "No key declares what it takes" in declining(operation)
        return
    sizes = {"Hq": 3, "Hkv": 1, "L": 3, "S": 5, "D": 5, "Dv": 4}
    arrays = {
        name: np.ones([sizes.get(letter, 2) for letter in argument.shape if letter in LETTERS])
        for name, argument in OPERATIONS[operation].arguments.items()
        if name in OPERATIONS[operation].arrays
    }
    if operation == "attention":
        arrays = {name: array[None] for name, array in arrays.items()}  # five axes
    for key in advice.split(", "):
        said = {key: VALUES[key]}
        backend = describe(reference.function(operation), operation=operation, **said)
        assert fits(backend.constraints, arrays, operation), f"{key} has no effect on {operation}"


def test_a_form_behind_an_adapter_is_adapted():
    def varlen(q, k, v, cu_q, cu_k):
        raise NotImplementedError

    names = {"query": "q", "key": "k", "value": "v", "query_starts": "cu_q", "key_starts": "cu_k"}
    settings = Settings(operation="packed_attention", convention=Convention(names=names))
    backend = backend_of("k:varlen", varlen, settings, "numpy")
    assert class_of("k:varlen", backend) == "adapted"
    sloped = replace(backend, constraints=Constraints(slopes="end"))
    assert subject_of("k:varlen", sloped).constraints == "slopes.end"
