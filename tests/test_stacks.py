"""Operations that combine forms: the reference and both oracles agree on any stack, size and option."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests_support import fitted_cases, whole_suite

from attnspec import OPERATIONS, Case
from attnspec.backends import load
from attnspec.backends.constraints import Constraints, fits
from attnspec.backends.preconditions import breach_of
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results import FEWEST_VALUES
from attnspec.conformance.suite.drawn_stacks import OPTIONS, Sizes, draw_call, options_of
from attnspec.conformance.suite.stacks import STORED
from attnspec.operations.stacks import FORMS
from attnspec.reference import ArgumentError, function
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact import evaluate as exact
from attnspec.reference.exact.balls import OracleError
from attnspec.reference.rational import evaluate as rational
from attnspec.sizes import misfits, output_shapes

lengths = st.lists(st.integers(0, 6), min_size=1, max_size=4)


@st.composite
def calls(draw):
    """Draw a stack, sizes and an option, and make the call."""
    name = draw(st.sampled_from(tuple(STORED)))
    queries = draw(lengths)
    keys = draw(st.lists(st.integers(0, 9), min_size=len(queries), max_size=len(queries)))
    heads = draw(st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]))
    sizes = Sizes(
        queries=tuple(queries),
        keys=(max(keys[0], 1), *keys[1:]),
        heads=heads,
        page=draw(st.integers(1, 4)),
        rest=draw(st.sampled_from([(0, 0), (2, 1)])),
    )
    option = draw(st.sampled_from(options_of(STORED[name].layers)))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    return name, draw_call(random, "float64", STORED[name].layers, sizes, option)


def results_of(name, call):
    """The results of the reference, by output."""
    form = OPERATIONS[name]
    asked = call | {output.option: True for output in form.results if output.option}
    arrays = [call[argument] for argument in form.arrays]
    options = {argument: x for argument, x in asked.items() if argument not in form.arrays}
    return dict(zip(form.wanted(asked), function(name)(*arrays, **options), strict=True))


def compare(name, call):
    assert misfits(name, call) == []
    flags = {"return_max", "return_d_scale"} & {*OPERATIONS[name].arguments}
    asked = call | dict.fromkeys(flags, True)
    reference, second = results_of(name, call), rational.evaluate(name, asked)
    first = {output: settled.values for output, settled in exact.evaluate(name, asked).items()}
    allowed = budget(name, asked, "float64")
    for output in reference:
        assert first[output].shape == reference[output].shape == allowed[output].shape
        np.testing.assert_array_equal(first[output], second[output], strict=True)
        same = first[output] == reference[output]  # infinities
        apart = np.abs(reference[output][~same] - first[output][~same])
        assert np.all(apart <= allowed[output][~same]), output


@settings(max_examples=40, derandomize=True, deadline=None)
@given(calls())
def test_the_reference_and_both_oracles_agree(drawn):
    compare(*drawn)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STORED)
def test_every_option_of_every_stack(name):
    for seed, option in enumerate(options_of(STORED[name].layers)):
        for sizes in (Sizes(), Sizes(rest=(2, 1), heads=(2, 1))):
            compare(
                name, draw_call(np.random.default_rng(seed), "float64", STORED[name].layers, sizes, option)
            )


#: The libraries that run the reference. Few examples, because some of them compile for each shape.
@pytest.mark.parametrize("library", ["numpy", "torch", "jax", "strict", "dask"])
@settings(max_examples=8, derandomize=True, deadline=None)
@given(drawn=calls())
def test_portable_backends_agree_with_the_oracle(library, drawn):
    found = judge(load(f"{library}-portable"), Case("drawn", "", "stacks", drawn[0], ("STACK-1",), drawn[1]))
    assert found.status == "pass", found


def draw_form(random, name, sizes, option):
    """Draw a call of the gradients of a form."""
    call = draw_call(random, "float64", FORMS[name].layers, sizes, option)
    shape = output_shapes(name, call)["output"]
    call["d_output"] = random.integers(-4, 5, shape) / 4.0
    return call | {"d_lse": random.integers(-4, 5, shape[:-1]) / 4.0}


@pytest.mark.parametrize("name", [name for name in FORMS if f"{name}_vjp" in OPERATIONS])
def test_every_option_of_the_gradients_of_a_form(name):
    for seed, option in enumerate(options_of(FORMS[name].layers)):
        for sizes in (Sizes(), Sizes(rest=(2, 1), heads=(2, 1))):
            compare(f"{name}_vjp", draw_form(np.random.default_rng(seed), name, sizes, option))


def test_every_option_of_attention_is_one_of_every_stack_and_drawn():
    own = {"key_lengths"}  # a length that pages require
    for form in STORED.values():
        assert set(OPERATIONS["attention"].options) <= set(form.arguments)
        assert {*form.arrays} & own == set()
    drawn = set()
    for option in OPTIONS:
        for name in ("packed_quantized_attention", "paged_quantized_attention"):
            if option in options_of(STORED[name].layers):
                drawn |= set(
                    draw_call(np.random.default_rng(0), "float32", STORED[name].layers, Sizes(), option)
                )
    asked = {"return_lse", "return_weights", "return_max"}
    assert set(OPERATIONS["attention"].options) - drawn == asked


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_table": np.array([[9, 0], [1, 1]])}, r"block_table: expected 0 to 2, got 0 to 9 \[PAGE-8\]"),
        ({"query_starts": np.array([0, 2, 1])}, r"query_starts: expected boundaries .* \[PACK-6\]"),
        ({"key_lengths": np.array([5, 1])}, r"key_lengths: expected 0 to 4, got 1 to 5 \[PAGE-8\]"),
        (
            {"query_offset": np.array([0, 1]), "query_positions": np.arange(3)},
            r"query_positions: .* \[ERR-18\]",
        ),
    ],
)
def test_a_refusal_names_argument_and_rule(changes, message):
    call = {
        "query": np.zeros((1, 3, 1)),
        "key_pages": np.zeros((3, 1, 2, 1)),
        "value_pages": np.zeros((3, 1, 2, 1)),
        "query_starts": np.array([0, 2, 3]),
        "block_table": np.array([[1, 2], [0, -1]]),
        "key_lengths": np.array([4, 1]),
    }
    results_of("packed_paged_attention", call)
    with pytest.raises(ArgumentError, match=message):
        results_of("packed_paged_attention", call | changes)


@pytest.mark.parametrize("name", STORED)
def test_arrays_of_float32_are_computed_in_float64_too(name):
    call = draw_call(np.random.default_rng(1), "float32", STORED[name].layers, Sizes())
    arrays = {key: x for key, x in call.items() if isinstance(x, np.ndarray)}
    wide = {key: x.astype(np.float64) for key, x in arrays.items() if x.dtype == np.float32}
    result = results_of(name, call)["output"]
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, results_of(name, call | wide)["output"])


def test_no_list_of_a_case_holds_a_key_twice():
    """Where one does, SPARSE-8 alone is judged, which is no MUST."""
    calls = (item for item in whole_suite() if isinstance(item, Case) and "key_indices" in item.arguments)
    lists = [case for case in calls if case.misuse is None and case.rules != ("SPARSE-8",)]
    assert [case.name for case in lists if breach_of(["distinct"], case.arguments)] == []
    assert {case.arguments["key_indices"].dtype.name for case in lists} >= {"uint16", "uint32", "uint64"}
    assert len(lists) > 500


@pytest.mark.parametrize(
    ("name", "rule", "variant", "option"),
    [
        ("packed_attention", "PACK-5", "bottom-right", "causality"),
        ("packed_attention_vjp", "PACK-5", "bottom-right", "causality"),
        ("packed_attention", "MASK-6", "uniform", "segments"),
    ],
)
def test_the_oracles_agree_on_a_variant_of_packed_rows(name, rule, variant, option):
    sizes = Sizes(keys=(3, 2, 4), rest=(2, 1))
    drawn = draw_form(np.random.default_rng(5), "packed_attention", sizes, option)
    call = {argument: x for argument, x in drawn.items() if argument in OPERATIONS[name].arguments}
    plain, first = (exact.evaluate(name, call, shown) for shown in (None, variant))
    second = rational.evaluate(name, call, {rule: variant})
    for output in plain:
        np.testing.assert_array_equal(first[output].values, second[output], strict=True)
    assert any(not np.array_equal(first[output].values, plain[output].values) for output in plain)


def test_packed_rows_take_no_other_sequence():
    call = draw_form(np.random.default_rng(5), "packed_attention", Sizes(), "nothing")
    with pytest.raises(OracleError, match="variant: expected one that keeps"):
        exact.evaluate("packed_attention_vjp", call, "uniform")
    sizes = Sizes(rest=(2, 0))
    draws = [draw_form(np.random.default_rng(5), "packed_attention", sizes, "sinks") for _ in "ab"]
    draws[1]["d_lse"][..., -2:] = draws[1]["d_output"][..., -2:, :] = 1e6
    budgets = [budget("packed_attention_vjp", call, "float64") for call in draws]
    for name, allowed in budgets[0].items():
        np.testing.assert_array_equal(allowed, budgets[1][name])
    sizes = Sizes(queries=(2, 2), keys=(3, 3))
    draws = [draw_call(np.random.default_rng(5), "float64", ("packed",), sizes) for _ in "ab"]
    draws[1]["value"][..., 3:, :] = 1e6
    first, second = (
        budget("packed_attention", call | {"key_lengths": 0}, "float64", uniform_rows=True)["output"]
        for call in draws
    )
    np.testing.assert_array_equal(first[:, :2], second[:, :2])
    assert (first[:, 2:] < second[:, 2:]).all()


@pytest.mark.parametrize("name", ["latent_attention", "packed_attention", "paged_quantized_attention"])
def test_results_of_half_precision_are_rounded_once_and_an_lse_is_not(name):
    call = draw_call(np.random.default_rng(1), "float16", OPERATIONS[name].layers, Sizes())
    arrays = [call.pop(array) for array in OPERATIONS[name].arrays]
    results = load("numpy-portable").companions[name](*arrays, **call, return_lse=True, return_max=True)
    assert [result.dtype.name for result in results] == ["float16", "float32", "float32"]


def test_new_positions_are_appended_where_the_table_has_room():
    call = draw_call(np.random.default_rng(2), "float64", ("paged",), Sizes(spare=2), "window", "sinks")
    heads, depth = call["key_pages"].shape[1], call["key_pages"].shape[-1]
    new = np.random.default_rng(3).integers(-4, 5, (2, 3, heads, 2, 8)) / 4.0
    call |= {"new_key": new[0, ..., :depth], "new_value": new[1, ..., : call["value_pages"].shape[-1]]}
    compare("paged_attention", call)
    room = call["block_table"].shape[-1] * call["key_pages"].shape[2]
    with pytest.raises(ArgumentError, match=rf"key_lengths: expected 0 to {room - 2}, got .* \[PAGE-8\]"):
        results_of("paged_attention", call | {"key_lengths": np.array([0, 0, room - 1])})
    more = {name: np.repeat(call[name][..., :1, :], room + 1, axis=-2) for name in ("new_key", "new_value")}
    with pytest.raises(ArgumentError, match=r"new_key: expected no more positions .*, got 1 more \[PAGE-8\]"):
        results_of("paged_attention", call | more)


NEAR = np.array([[1 / 3], [np.nextafter(1 / 3, 1)]])  # (S, 1)
CODES = np.array([[[127], [-127]]])  # (1, S, 1)
PAGE = {"block_table": np.array([0]), "key_lengths": 2}
OF_LATENT = {"latent_scales": NEAR, "key_weight": np.zeros((1, 1, 1)), "value_weight": np.ones((1, 1, 1))}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("quantized_attention", {"key_codes": 0 * CODES, "value_codes": CODES}),
        ("paged_quantized_attention", {"key_pages": 0 * CODES[None], "value_pages": CODES[None], **PAGE}),
        (
            "low_precision_attention",
            {"query_codes": CODES[:, :1], "key_codes": 0 * CODES, "value_codes": CODES},
        ),
        (
            "quantized_latent_attention",
            {"latent_codes": CODES[0], "key_rotary": np.zeros((2, 1)), **OF_LATENT},
        ),
        (
            "paged_quantized_latent_attention",
            {"latent_pages": CODES, "key_rotary_pages": np.zeros((1, 2, 1)), **PAGE, **OF_LATENT},
        ),
    ],
)
def test_the_second_oracle_does_not_round_decoded_numbers(name, call):
    """QUANT-8, QUANT-10: two decoded values differ in digits that float64 does not hold."""
    queries = {x: np.zeros((1, 1, 1)) for x in ("query", "query_rotary") if x in OPERATIONS[name].arguments}
    scales = {"query_scales": np.ones((1, 1)), "value_scales": NEAR}
    scales = {x: array for x, array in scales.items() if x in OPERATIONS[name].arguments}
    output = rational.evaluate(name, queries | scales | call)["output"]
    assert output.item() == 127 * (NEAR[0, 0] - NEAR[1, 0]) / 2  # the difference is exact


def test_a_served_kernel_of_one_scale_that_is_causal_alone_has_enough_values_in_the_quick_part():
    operation = "packed_paged_quantized_attention"
    constraints = Constraints(value_depth="key", scales="tensor", encoding="int8", always={"is_causal": True})
    needed = {"query_starts", "block_table", "key_lengths", "key_scales", "value_scales", "encoding"}
    kept = needed | {"is_causal", "scale", "softcap", "sinks", *OPERATIONS[operation].arrays}
    cases = [case for case in fitted_cases(constraints, quick=True) if case.operation == operation]
    own = [case for case in cases if isinstance(case, Case) and not case.misuse and {*case.arguments} <= kept]
    taken = [case for case in own if not fits(constraints, case.arguments, operation)]
    assert len(taken) >= FEWEST_VALUES["quick"]
