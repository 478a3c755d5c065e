"""The golden values agree with generators, closed forms, each other, and what the examples print."""

import cmath
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnspec import OPERATIONS, Figure, cases, find_case
from attnspec.backends import DTYPES
from attnspec.conformance.judge.comparison import misprint
from attnspec.conformance.judge.dtypes import dtypes_of
from attnspec.operations.operation import primal
from attnspec.reference import allowed_keys
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact.evaluate import evaluate

PROVEN = [case for case in cases() if case.expected]
ATTENTION = [case for case in PROVEN if case.operation == "attention"]


def of_numpy(number):
    """What the legacy generator gives for an example: tokens, weights and biases."""
    if number == "002":
        random = np.random.RandomState(42)
        return {name: {"weight": random.randint(3, size=(3, 3))} for name in ("query", "key", "value")}
    random = np.random.RandomState(3)
    tokens = np.concatenate([random.normal(size=(4, 1)) for _ in range(3)], axis=1)
    random = np.random.RandomState(0)
    found = {
        name: {"tokens": tokens, "weight": random.normal(size=(4, 4))} for name in ("query", "key", "value")
    }
    for arrays in found.values():
        arrays["bias"] = random.normal(size=(4, 1)).ravel()
    return found


@pytest.mark.parametrize("number", ["001", "002"])
def test_the_legacy_generator_still_gives_the_inputs_of_an_example(number):
    for name, arrays in of_numpy(number).items():
        given = find_case(f"projection-{number}-{name}").arguments
        for key, array in arrays.items():
            assert given[key].astype(array.dtype).tobytes() == array.tobytes()


def test_pytorch_still_gives_the_weights_of_003():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(123)
    for name in ("query", "key", "value"):
        weight = torch.rand(3, 2, generator=generator).numpy()
        assert find_case(f"projection-003-{name}").arguments["weight"].tobytes() == weight.tobytes()


def test_attention_cases_take_projections_and_three_ways_to_mask_agree():
    for number in ("000", "001", "002"):
        for name in ("query", "key", "value"):
            projected = find_case(f"projection-{number}-{name}").expected["projected"]
            rows = projected.T if number == "001" else projected
            assert np.array_equal(find_case(f"softmax-{number}").arguments[name], rows)
    expected = [find_case(f"masking-004-{name}").expected for name in ("bias", "boolean", "causal")]
    for name in ("output", "weights"):
        assert np.array_equal(expected[0][name], expected[1][name])
        assert np.array_equal(expected[0][name], expected[2][name])


@pytest.mark.parametrize("operation", [name for name, form in OPERATIONS.items() if not form.stacked])
def test_every_argument_is_used_by_a_case(operation):
    """But for options of the operation that it reduces to or differentiates, whose cases use them."""
    form = OPERATIONS[operation]
    used = {name for case in PROVEN if case.operation == operation for name in case.arguments}
    beside = {form.reduces, primal(operation)} - {"", operation} if form.reduces else set()
    others = {name for other in beside for name in OPERATIONS[other].options}
    wanted = {*form.arrays, *form.options}
    assert {name for name in wanted - others if not name.startswith("return_")} <= used <= wanted


def test_what_is_said_to_be_exact_in_every_dtype_is():
    said = [case for case in cases() if "exact in every dtype" in case.provenance.inputs]
    assert len(said) > 200
    assert [case.id for case in said if dtypes_of(case) != DTYPES] == []


@pytest.mark.parametrize(
    "case_id", ["masking-everything", "masking-everything-batch", "errors-every-argument"]
)
def test_each_of_all_arguments_has_an_effect(case_id):
    case = find_case(case_id)
    together = ({"query_segment_ids", "key_segment_ids"}, {"dropout_mask", "dropout_rate"})
    for name in set(case.arguments) & set(OPERATIONS["attention"].options):
        without = next((names for names in together if name in names), {name})
        arguments = {other: thing for other, thing in case.arguments.items() if other not in without}
        found = evaluate("attention", arguments)
        assert not np.array_equal(found["weights"].values, case.expected["weights"]), name


def test_every_argument_but_what_is_returned_is_in_the_case_of_all():
    names = ("errors-every-argument", "errors-every-argument-with-positions")  # an offset excludes positions
    given = {argument for name in names for argument in find_case(name).arguments}
    operation = OPERATIONS["attention"]
    returned = {"return_lse", "return_weights", "return_max"}
    assert {*operation.arrays, *operation.options} - given == returned


def test_closed_forms():
    sinks = np.array([0.0, 1.5])
    flat = find_case("softmax-sink-flat").expected
    for head, sink in enumerate(sinks):
        assert flat["weights"][head] == pytest.approx(1 / (5 + math.exp(sink)), rel=1e-15)
        assert flat["lse"][head] == pytest.approx(math.log(5 + math.exp(sink)), rel=1e-15)
    assert (find_case("softmax-lse-equal").expected["lse"] == math.log(4)).all()
    assert (find_case("softmax-lse-equal").alternatives[0].expected["lse"] == 2).all()
    one = find_case("softmax-lse-one-key")
    score = one.arguments["scale"] * one.arguments["query"] @ one.arguments["key"][0]
    assert np.array_equal(one.expected["lse"], score)  # no rounding: the numbers are short
    assert (find_case("softmax-sink-empty").expected["lse"][:, 0] == [1.25, -0.75]).all()
    equal = find_case("caching-merge-equal")
    assert np.array_equal(equal.expected["output"], equal.arguments["outputs"].mean(axis=0))
    assert np.array_equal(equal.expected["lse"], [[1.5 + math.log(4), -2.0 + math.log(4)]])
    one = find_case("caching-merge-one")
    assert np.array_equal(one.expected["output"], one.arguments["outputs"][0])
    assert np.array_equal(one.expected["lse"], one.arguments["lses"][0])
    case = find_case("scores-softcap")
    products = case.arguments["query"] @ case.arguments["key"].T
    assert case.expected["scores"] == pytest.approx(2 * np.tanh(products / 2), rel=1e-15)
    assert abs(products).max() > 4


def own_position(arguments, index, k):
    """The position of a row without the offset; with sections, that of its axis."""
    row = (*index[:-2], index[-1])
    if "positions" in arguments:
        return int(arguments["positions"][row])
    if "axis_positions" in arguments:
        axes = [axis for axis, count in enumerate(arguments["sections"]) for _ in range(count)]
        return int(arguments["axis_positions"][(axes[k], *row)])
    return index[-1]


def turning(arguments, position, k, depth):
    """The complex number that turns a pair."""
    if "cosines" in arguments:
        return complex(arguments["cosines"][position, k], arguments["sines"][position, k])
    frequency = arguments.get("base", 10000.0) ** (-2 * k / depth)
    if "inverse_frequencies" in arguments:
        frequency = arguments["inverse_frequencies"][k]
    return cmath.exp(1j * position * frequency)


@pytest.mark.parametrize("case", [case for case in PROVEN if case.operation == "rotary"], ids=str)
def test_a_rotation_is_a_product_of_complex_numbers(case):
    given, found = case.arguments["features"], case.expected["rotated"]
    depth = case.arguments.get("rotary_depth", given.shape[-1])
    factor = case.arguments.get("attention_factor", 1.0)
    offset = np.asarray(case.arguments.get("offset", 0))
    for index in np.ndindex(*given.shape[:-1]):
        start = int(offset if offset.ndim == 0 else offset[index[0]])
        for k in range(depth // 2):
            a, b = (2 * k, 2 * k + 1) if case.arguments.get("interleaved") else (k, k + depth // 2)
            number = turning(case.arguments, start + own_position(case.arguments, index, k), k, depth)
            turned = factor * complex(*given[index][[a, b]]) * number
            assert complex(*found[index][[a, b]]) == pytest.approx(turned, rel=1e-13)
    assert np.array_equal(found[..., depth:], given[..., depth:])


SLOPES = {
    "positions-alibi-one": [2**-8],
    "positions-alibi-three": [2**-4, 2**-8, 2**-2],
    "positions-alibi-five": [2**-2, 2**-4, 2**-6, 2**-8, 2**-1],
    "positions-alibi-six": [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
    "positions-alibi-eight": [2**-n for n in range(1, 9)],
    "positions-alibi-twelve": [*(2**-n for n in range(1, 9)), *(2 ** -(n + 0.5) for n in range(4))],
}


@pytest.mark.parametrize("case_id", SLOPES)
def test_slopes_written_out(case_id):
    assert find_case(case_id).expected["bias"][:, 0, 1].tolist() == [-slope for slope in SLOPES[case_id]]


def test_nan_in_a_disallowed_place_is_held_against_no_other_rule():
    """That it leaves no trace is a SHOULD: a case there for a MUST may not depend on it."""
    sources = OPERATIONS["attention"].names("masks")
    found = set()
    for case in ATTENTION:
        query, key, value = (case.arguments[name] for name in ("query", "key", "value"))
        poisoned = ~(np.isfinite(key).all(axis=-1) & np.isfinite(value).all(axis=-1))  # (*B, Hkv, S)
        if query.ndim > 2:
            poisoned = np.repeat(poisoned, query.shape[-3] // key.shape[-3], axis=-2)
        given = {name: thing for name, thing in case.arguments.items() if name in sources}
        allowed = allowed_keys((*query.shape[:-1], key.shape[-2]), **given)
        if (poisoned[..., None, :] & ~allowed).any():
            found.add(case.id)
            assert case.rules[0] == "MASK-13", case.id
    assert found == {case.id for case in cases() if "MASK-13" in case.rules}


def test_sizes_of_axes_differ_where_heads_are_grouped():
    """Were they equal, a transposition would go unseen."""
    for case in ATTENTION:
        if case.chapter == "heads":
            heads, queries, depth = case.arguments["query"].shape[-3:]
            key_heads, keys, value_depth = case.arguments["value"].shape[-3:]
            assert keys not in (heads, depth, value_depth, key_heads), case.id
            assert value_depth not in (heads, queries, depth), case.id


FIGURES = Path(__file__).parent / "figures"
NUMBER = re.compile(r"(?<![\w.])-?(?:\d+\.?\d*(?:e[+-]\d+)?|inf)(?![\w])")

#: How many numbers each example prints, counted by hand in the notebooks: shapes and masks too, labels not.
COUNTS = {"000": 42, "001": 45, "002": 199, "003": 149, "004": 203}


def printed(example):
    """The numbers in the transcript of an example, by cell."""
    found, cell = Counter(), ""
    for line in (FIGURES / f"{example}.txt").read_text().splitlines():
        if line.startswith("# "):
            cell = line.removeprefix("# ")
        else:
            found.update((cell, text) for text in NUMBER.findall(line))
    return found


@pytest.mark.parametrize("example", COUNTS)
def test_every_printed_number_is_a_figure_of_some_case(example):
    answered = Counter(
        (figure.cell, text)
        for case in cases()
        for figure in case.figures
        if figure.example == example
        for text in figure.text
    )
    assert answered == printed(example)
    assert printed(example).total() == COUNTS[example]


def everything(case):
    """Arguments, expected outputs and those of the alternatives, and how far each may be off."""
    dtypes = {str(getattr(x, "dtype", "")) for x in case.arguments.values()}
    dtype = "float32" if "float32" in dtypes else "float64"
    values = {**case.arguments, **case.expected}
    values |= {f"{one.variant}/{name}": x for one in case.alternatives for name, x in one.expected.items()}
    errors = budget(case.operation, case.arguments, dtype)
    errors |= {f"{one.variant}/{name}": errors[name] for one in case.alternatives for name in one.expected}
    return values, errors


FIGURED = [case for case in cases() if case.figures]


@pytest.mark.parametrize("case", FIGURED, ids=str)
def test_golden_values_print_as_the_examples_do_and_others_do_not(case):
    values, errors = everything(case)
    for figure in case.figures:
        assert misprint(figure, values, errors) == ""
    values, errors = everything(case)
    for figure in case.figures:
        if figure.statistic != "value" or figure.text[0] == "-inf":
            continue
        unit = 1e-3 if figure.example == "003" else 1e-7
        moved = {**values, figure.of: np.array(values[figure.of]) + max(unit, 1e-7)}
        assert misprint(figure, moved, errors) != "", figure


def test_statistics_of_a_figure():
    values = {"scores": np.array([[1.0, 2.0], [3.0, 4.0]]), "mask": np.array([True, False])}
    shape = Figure("000", "In [1]", "scores", ("2", "2"), statistic="shape")
    assert misprint(shape, values, {}) == ""
    assert "printed 3, got 2" in misprint(replace(shape, text=("3", "2")), values, {})
    assert misprint(Figure("000", "", "scores", ("1.25",), statistic="variance"), values, {}) == ""
    assert misprint(Figure("000", "", "scores", ("1.0", "3.0"), select=(), transposed=True), values, {}) != ""
    assert misprint(Figure("000", "", "scores", ("1.", "3.", "2.", "4."), transposed=True), values, {}) == ""
    assert misprint(Figure("000", "", "mask", ("0.", "1."), statistic="disallowed"), values, {}) == ""
    assert misprint(Figure("000", "", "scores", ("8",)), {"scores": np.array([8.4])}, {}) != ""


@pytest.mark.parametrize(("got", "holds"), [(0.81, True), (0.8199, True), (0.82001, False), (0.8099, False)])
def test_a_print_that_breaks_off(got, holds):
    figure = Figure("004", "", "value", ("0.5", "0.81"), cut=True)
    assert (misprint(figure, {"value": np.array([0.5, got, 9.0])}, {}) == "") == holds


def test_budgets_are_small_beside_the_printed_places():
    """So that a figure is not met by an allowance instead of by its digits."""
    for case in FIGURED:
        _, errors = everything(case)
        worst = max(float(np.max(error)) for error in errors.values())
        assert worst < (1e-5 if case.figures[0].example == "003" else 1e-12), case.id
