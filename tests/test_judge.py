"""The judge passes correct results, fails wrong ones, and states the reason."""

from dataclasses import replace

import numpy as np
import pytest
from tests_support import backend_of, own_case

from attnspec import find_case
from attnspec.backends import DTYPES, Backend, Unsupported, load
from attnspec.backends.user.adapter import adapt
from attnspec.backends.user.convention import Convention
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge import cause
from attnspec.conformance.judge.call import call, observe
from attnspec.conformance.judge.dtypes import arguments_of, dtypes_of
from attnspec.conformance.judge.failure import Missing
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find
from attnspec.conformance.verdict import Difference
from attnspec.reference import attention
from attnspec.reference.budget.budget import budget

PORTABLE = load("numpy-portable")
#: One query, three keys, the last of them masked; and a row with nothing to attend to.
MASKED = {
    "query": np.array([[1.0, 0.0], [0.0, 1.0]]),
    "key": np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]]),
    "value": np.array([[1.0, -1.0], [2.0, 0.5], [5.0, 5.0]]),
    "mask": np.array([[True, True, False], [False, False, False]]),
}


def golden(case_id, dtype="float64"):
    """A golden vector in a dtype."""
    case = find_case(case_id)
    return replace(case, arguments=arguments_of(case, dtype))


def drawn(seed=0, shape=(3, 4)):
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape) for name in ("query", "key", "value")}


def put(name, index, number):
    def change(outputs):
        outputs[name][index] = number

    return change


def replaced(name, make):
    def change(outputs):
        outputs[name] = make(outputs[name])

    return change


@pytest.mark.parametrize(
    ("change", "rule", "kind"),
    [
        (put("output", (1, 0), -0.0), "", ""),
        (put("weights", (0, 2), -0.0), "", ""),
        (put("weights", (0, 2), np.nan), "MASK-1", "pattern"),  # a masked place is looked at, and is 0
        (put("weights", (0, 2), 5e-324), "MASK-1", "value"),
        (put("output", (1, 0), np.nan), "MASK-1", "pattern"),  # the variant of MASK-6 has a row of it
        (put("output", (0, 0), np.nan), "MASK-1", "pattern"),
        (put("lse", 1, np.inf), "SOFT-7", "pattern"),
        (put("lse", 1, np.nan), "SOFT-7", "pattern"),  # of an empty row
        (put("lse", 0, -np.inf), "MASK-1", "pattern"),
        (replaced("output", np.zeros_like), "MASK-1", "value"),
        (replaced("output", lambda x: x[:1]), "SHAPE-3", "shape"),  # would broadcast
        (replaced("output", lambda x: x[..., :1]), "SHAPE-3", "shape"),
        (replaced("weights", lambda x: x[:, None]), "SHAPE-4", "shape"),
        (replaced("lse", lambda x: x[..., None]), "SHAPE-8", "shape"),
        (replaced("output", lambda x: x.astype(np.float32)), "NUM-1", "dtype"),
        (replaced("weights", lambda x: x.astype(np.float16)), "NUM-1", "dtype"),
        (replaced("output", lambda x: np.zeros((0, *x.shape[1:]))), "SHAPE-3", "shape"),
    ],
)
def test_each_thing_that_can_be_wrong_has_its_verdict(change, rule, kind):
    def attention(query, key, value, *, mask=None, return_lse=False, return_weights=False):
        whole = PORTABLE.attention(query, key, value, mask=mask, return_lse=True, return_weights=True)
        outputs = dict(zip(("output", "lse", "weights"), whole, strict=True))
        change(outputs)
        wanted = {"output": True, "lse": return_lse, "weights": return_weights}
        return tuple(outputs[name] for name, asked_for in wanted.items() if asked_for)

    verdict = judge(replace(PORTABLE, attention=attention, companions={}), own_case("MASK-1", MASKED))
    assert verdict.status == ("fail" if rule else "pass")
    assert verdict.rule == rule
    assert (verdict.difference.kind if verdict.difference else "") == kind


@pytest.mark.parametrize(("row", "rules"), [(0, ["MASK-1", "MASK-4"]), (1, ["MASK-6", "MASK-6"])])
def test_the_rule_about_empty_rows_is_broken_in_such_a_row_alone(row, rules):
    def attention(query, key, value, *, mask=None, window=None):
        output = PORTABLE.attention(query, key, value, mask=mask, window=window)
        output[row] += 1
        return output

    backend = replace(PORTABLE, attention=attention, companions={})
    both = MASKED | {"window": (None, 3)}
    assert [judge(backend, own_case("MASK-6", given)).rule for given in (MASKED, both)] == rules


@pytest.mark.parametrize(
    ("more", "rules"), [({}, {"MASK-6"}), ({"mask": MASKED["mask"][:1], "query": MASKED["query"][:1]}, set())]
)
def test_variants_of_empty_rows_are_tried_where_there_are_any(monkeypatch, more, rules):
    tried, arguments = set(), MASKED | more
    monkeypatch.setattr(cause, "_gave", lambda showing, *_: tried.update(showing.dialect))
    values = {"output": PORTABLE.attention(**arguments)}  # without weights, which may tell
    wrong = {"output": values["output"] + 1}
    cause.cause_of(
        PORTABLE, own_case("MASK-1", arguments), Difference("value", "output", (0, 0)), wrong, values
    )
    assert tried & {"MASK-6", "SOFT-7"} == rules


def test_a_verdict_names_backend_case_rules_and_dtype():
    verdict = judge(backend_of("no_scale"), golden("softmax-000"))
    assert (verdict.backend, verdict.case, verdict.group) == ("broken:no_scale", "softmax-000-float64", "")
    assert (verdict.dtype, verdict.operation, verdict.status) == ("float64", "attention", "fail")
    assert verdict.rules == ("SOFT-1", "SOFT-3", "SCORE-2")
    assert (verdict.rule, verdict.variant) == ("SCORE-2", "one")
    difference = verdict.difference
    assert (difference.kind, difference.output) == ("value", "output")
    assert difference.share == pytest.approx(abs(difference.got - difference.expected) / difference.allowed)
    assert 0 < difference.count <= difference.size


def test_a_pass_says_how_much_of_its_budget_it_used_and_its_class():
    verdict = judge(PORTABLE, golden("softmax-000", "float64"))
    assert (verdict.status, verdict.rule, verdict.accuracy) == ("pass", "", "full")
    assert 0 < verdict.share <= 1
    verdict = judge(replace(PORTABLE, profile="tf32"), golden("softmax-000", "float32"))
    assert (verdict.status, verdict.accuracy) == ("pass", "full")


def in_tf32(query, key, value, *, scale=None):
    """Attention of inputs that are cut off to 11 digits, as a unit does that is given float32."""
    if query.dtype == np.float32:
        cut = [(array.view(np.uint32) >> 13 << 13).view(np.float32) for array in (query, key, value)]
        return PORTABLE.attention(*cut, scale=scale)
    return PORTABLE.attention(query, key, value, scale=scale)


@pytest.mark.parametrize(
    ("profile", "dtype", "status", "accuracy"),
    [
        ("tf32", "float32", "pass", "tf32"),
        ("bf16", "float32", "pass", "bf16"),
        ("", "float32", "fail", ""),
        ("matrix", "float32", "fail", ""),
        ("bf16x3", "float32", "fail", ""),
        ("tf32", "float64", "pass", "full"),
        ("tf32", "float16", "pass", "cast"),
    ],
)
def test_a_result_that_needs_a_profile_has_its_class_and_is_never_full(profile, dtype, status, accuracy):
    backend = Backend("tf32", PORTABLE.array_library, in_tf32, dtypes=DTYPES, profile=profile)
    arguments = {name: array.astype(dtype) for name, array in drawn().items()}
    verdict = judge(backend, own_case("NUM-3", arguments))
    assert (verdict.status, verdict.accuracy) == (status, accuracy)


@pytest.mark.parametrize("kind", [tuple, list])
def test_one_result_may_be_alone_or_in_a_tuple_or_list(kind):
    def one(query, key, value):
        return kind([attention(query, key, value)])

    adapted = adapt("one", one, Convention(axes=3), np)
    for function in (one, adapted):
        verdict = judge(replace(PORTABLE, attention=function), own_case("SOFT-1", drawn(shape=(1, 4))))
        assert verdict.status == "pass", verdict.reason


CHANGED = "query: expected to be unchanged, got changed by the call"


@pytest.mark.parametrize(
    ("backend", "rule", "said"),
    [
        (entry("output_transposed").backend(), "SHAPE-3", ("shape", "(2, 3)", "(3, 2)")),
        (backend_of("lists"), "SHAPE-3", "output: expected an array of numpy, got list"),
        (backend_of("nothing"), "SHAPE-3", "output: expected an array of numpy, got NoneType"),
        (entry("query_scaled_in_place").backend(), "NUM-4", f"{CHANGED}; its values are right"),
        (backend_of("nan_everywhere"), "SOFT-1", "pattern"),
        (backend_of("half"), "SOFT-1", "value"),
    ],
)
def test_bad_results_are_told_apart(backend, rule, said):
    verdict = judge(backend, golden("softmax-000"))
    assert (verdict.status, verdict.rule) == ("fail", rule)
    found = verdict.difference
    if found is None:
        assert verdict.reason == said
    else:
        assert said in (found.kind, (found.kind, found.got, found.expected))


@pytest.mark.parametrize(
    ("name", "raised"),
    [("raising", ("RuntimeError", "the kernel did not launch")), ("exiting", ("SystemExit", "3"))],
)
def test_an_implementation_that_raises(name, raised):
    verdict = judge(backend_of(name), golden("softmax-000"))
    assert (verdict.status, verdict.rule) == ("error", "SOFT-1")
    assert (verdict.raised.type, verdict.raised.message) == raised
    assert verdict.raised.file.endswith("broken.py")
    assert verdict.raised.function == name


NOT_IN = "numpy-portable is judged in {}, not in float16".format
HALF_FREQUENCIES = find("errors-refused-inverse-frequencies-of-half-precision-in-rotary-1-float32")


@pytest.mark.parametrize(
    ("backend", "case", "reason"),
    [
        (backend_of("no_scale"), golden("masking-004-boolean"), "broken:no_scale has no argument mask"),
        (backend_of("no_scale"), golden("projection-000-query"), "broken:no_scale has no projection"),
        (replace(PORTABLE, dtypes=("float64",)), golden("softmax-002", "float16"), NOT_IN("float64")),
        # An argument in float16 beside float32: its conversion to the library would raise.
        (replace(PORTABLE, dtypes=("float32", "float64")), HALF_FREQUENCIES, NOT_IN("float32, float64")),
    ],
)
def test_an_argument_an_operation_or_a_dtype_that_is_not_there_is_unsupported(backend, case, reason):
    verdict = judge(backend, case)
    assert (verdict.status, verdict.reason) == ("unsupported", reason)
    assert issubclass(Missing, Unsupported)


def test_an_error_where_one_is_due_passes_unless_each_call_raises():
    case = golden("projection-000-stub")
    assert judge(PORTABLE, case).status == "pass"

    def helpful(tokens, weight, *, convention):
        return weight.T @ tokens

    lenient = Backend("mild", PORTABLE.array_library, PORTABLE.attention, companions={"projection": helpful})
    verdict = judge(lenient, case)
    assert (verdict.status, verdict.rule) == ("fail", "PROJ-4")
    assert verdict.reason == "expected an error, got projected of shape (2, 3)"
    case = golden("notation-misfit-depth", "float32")
    assert judge(PORTABLE, case).status == "pass"
    assert judge(backend_of("raising"), case).status == "error"


@pytest.mark.parametrize(
    ("change", "status", "rule"),
    [
        (lambda lengths, keys: np.clip(lengths, 0, keys), "should not met", "ERR-9"),
        (lambda lengths, keys: np.clip(lengths, 1, keys), "fail", "MASK-9"),
        (lambda lengths, keys: np.where(lengths > keys, 0, np.clip(lengths, 0, keys)), "fail", "MASK-9"),
    ],
)
def test_lengths_outside_of_their_axis_that_are_accepted_disallow_what_they_say(change, status, rule):
    """ERR-9 is a SHOULD, and without the check MASK-9 defines the result."""

    def unchecked(query, key, value, *, key_lengths=None):
        lengths = None if key_lengths is None else change(key_lengths, key.shape[-2])
        return attention(query, key, value, key_lengths=lengths).astype(query.dtype)

    backend = replace(PORTABLE, name="unchecked", attention=unchecked, companions={})
    verdicts = [judge(backend, find(f"errors-key-lengths-{of}-float32")) for of in ("above", "negative")]
    assert (status, rule) in {(verdict.status, verdict.rule) for verdict in verdicts}
    assert status == "fail" or {verdict.status for verdict in verdicts} == {status}


def test_weights_are_seen_where_none_are_returned():
    """By identity values, in slices as wide as the values are."""

    def without(query, key, value):
        return PORTABLE.attention(query, key, value)

    mute = Backend("mute", PORTABLE.array_library, without)
    random, shapes = np.random.default_rng(0), {"query": (2, 3, 4), "key": (2, 7, 4), "value": (2, 7, 3)}
    arguments = {name: random.normal(size=shape) for name, shape in shapes.items()}
    seen = observe(mute, own_case("SOFT-3", arguments))
    assert seen["weights"].shape == (2, 3, 7)
    returned = call(PORTABLE, "attention", arguments)
    assert np.allclose(seen["weights"], returned["weights"], rtol=0, atol=1e-15)
    unasked = observe(mute, own_case("SOFT-3", arguments, outputs=("output",)))
    assert list(unasked) == ["output"]


def test_a_case_is_run_in_the_dtypes_that_hold_its_inputs():
    assert dtypes_of(find_case("softmax-000")) == ("float64",)
    assert dtypes_of(find_case("softmax-002")) == ("float16", "bfloat16", "float32", "float64")
    assert dtypes_of(find_case("softmax-003")) == ("float32", "float64")


def test_low_precision_is_told_by_name():
    def low(query, key, value):
        short = [array.astype(np.float32) for array in (query, key, value)]
        return PORTABLE.attention(*short).astype(query.dtype)

    backend = Backend("low", PORTABLE.array_library, low)
    verdict = judge(backend, own_case("SOFT-1", drawn(2, (4, 8))))
    assert (verdict.status, verdict.rule, verdict.variant) == ("fail", "NUM-2", "float32")
    assert verdict.precision == "float32"


def test_a_figure_is_held_against_the_backend_too():
    """Off by a printed unit and within no budget that a wide class would give."""
    case = golden("softmax-003", "float32")
    assert judge(PORTABLE, case).status == "pass"
    narrow = replace(case, figures=(replace(case.figures[0], text=("0.2099", *case.figures[0].text[1:])),))
    verdict = judge(PORTABLE, narrow)
    assert verdict.status == "fail"
    assert verdict.reason.startswith("worked example 003, In [12], weights: printed 0.2099")


BEHAVIOURS = {
    "raises": lambda *_, **__: 1 / 0,
    "interrupts nobody": lambda *_, **__: (_ for _ in ()).throw(GeneratorExit),
    "text": lambda *_, **__: "text",
    "a tuple that is too long": lambda query, *_, **__: (query,) * 9,
    "objects": lambda query, *_, **__: np.full(query.shape, None),
    "complex": lambda query, *_, **__: query.astype(complex),
    "a number": lambda *_, **__: 1.0,
}


@pytest.mark.parametrize("kind", BEHAVIOURS)
@pytest.mark.parametrize("case_id", ["softmax-000", "notation-misfit-depth", "softmax-003"])
def test_whatever_a_backend_does_there_is_a_verdict(kind, case_id):
    def attention(query, key, value, *, scale=None, return_lse=False):
        return BEHAVIOURS[kind](query, key, value)

    backend = Backend("own", PORTABLE.array_library, attention, DTYPES)
    verdict = judge(backend, golden(case_id, dtypes_of(find_case(case_id))[0]))
    assert verdict.bad
    assert verdict.rule
    assert verdict.reason or verdict.difference or verdict.raised


@pytest.mark.parametrize("wrong", [-1.0, np.nan])
def test_a_negative_budget_is_no_verdict(monkeypatch, wrong):
    """An error in a formula ends the run, and passes nothing."""
    case = own_case("SOFT-1", {name: MASKED[name] for name in ("query", "key", "value")})

    def broken(*arguments, **options):
        return {name: np.where(x > 0, wrong, x) for name, x in budget(*arguments, **options).items()}

    assert judge(PORTABLE, case).status == "pass"
    monkeypatch.setattr("attnspec.conformance.judge.budget.budget", broken)
    again = own_case("SOFT-1", {name: 1 * MASKED[name] for name in ("query", "key", "value")})
    with pytest.raises(AssertionError, match="expected budgets that are not negative"):
        judge(PORTABLE, again)


def test_the_arrays_of_a_call_are_on_the_device_of_the_backend():
    """array-api-strict raises where arrays of two devices meet."""
    backend = load("strict-portable?device=device1")
    cases = [golden(name, "float32") for name in ("paging-batch", "masking-every-source", "dropout-quarter")]
    assert {judge(backend, case).status for case in cases} == {"pass"}
