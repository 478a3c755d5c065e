"""The smallest calls of the quick part, which `attnspec check --smoke` judges."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from tests_support import fitted_cases

from attnspec import OPERATIONS, Case, reference
from attnspec.backends.constraints import Constraints, fits
from attnspec.backends.user.function import describe
from attnspec.conformance.gallery import wrong_entries
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.results import FEWEST_VALUES
from attnspec.conformance.run.cases import Cases
from attnspec.conformance.run.plan import Outline, Selection, index, plan_of
from attnspec.conformance.run.smallest import calls_of_arguments, smallest
from attnspec.conformance.suite import items
from attnspec.dtypes import SHORT
from attnspec.operations.stacks import FORMS

WIDE = {"float32", "float64"}
#: Outputs that the judge asks of every call.
_ASKED = {"return_lse", "return_weights", "return_attention_factor"}


def arguments_of(outline):
    words = {"linear bias"} & {*outline.traits}
    return {(call.operation, name) for call in outline.calls for name in (*call.arguments, *words)}


def is_small(outline):
    """Whether a call has numbers of a small case, and none that show little."""
    little = {"special numbers", "empty axes", "empty row"} & {*outline.traits}
    single = not outline.related and not outline.refusal and not little
    return single and outline.dtype in WIDE and 40 <= outline.numbers <= 1000


def is_bare(outline):
    """Whether a call is of a form and has no option but a scale, lengths and causality."""
    if outline.refusal or not outline.calls:
        return False
    (operation, arguments) = outline.calls[0]
    options = {*OPERATIONS["attention"].options} - {"scale", "key_lengths", "is_causal"}
    return bool(OPERATIONS[operation].layers) and not {*arguments} & options


def test_sums_in_half_precision_fail_among_the_smallest_calls_in_each_form_and_dtype():
    plan = plan_of(Selection(quick=True, smoke=True))
    (entry,) = (entry for entry in wrong_entries() if entry.name == "output_added_in_half")
    failing = set()
    for outline in plan:
        if "equal terms" in outline.group:
            verdict = judge(entry.backend(), Cases().find(outline.name, outline.group))
            failing |= {(verdict.operation, verdict.dtype)} if verdict.status == "fail" else set()
    decoded = {"quantized_attention", "latent_attention"}  # the reference computes their arrays in float32
    assert failing >= {*product({"attention", *FORMS} - decoded, SHORT)}


def test_the_plainest_window_is_not_closed_on_the_left():
    """Of one key for each query, most bugs of a window show nothing."""
    single = [
        x for x in index() if x.quick and not x.related and not x.refusal and x.calls and x.dtype in WIDE
    ]
    names = calls_of_arguments(single)
    plainest = {}
    for outline in sorted(single, key=lambda x: len(x.calls[0].arguments)):
        if outline.name in names and "window" in outline.calls[0].arguments:
            plainest.setdefault(outline.calls[0].operation, outline)
    assert len(plainest) > 20
    assert {name for name, x in plainest.items() if "closed on the left" in x.traits} == set()


@pytest.mark.parametrize("operation", ["attention_vjp", "packed_attention_vjp"])
def test_gradients_have_groups_of_several_heads_and_several_tiles(operation):
    plan = plan_of(Selection(quick=True, smoke=True))
    sizes = [x.sizes for x in plan if x.sizes and x.calls[0].operation == operation and not x.refusal]
    assert any(1 < key_heads < heads for _, heads, key_heads, *_ in sizes)
    assert any(min(queries, keys) > 32 for *_, queries, keys, _, _ in sizes)


def test_gradients_have_rows_without_keys_by_each_option():
    options = {*OPERATIONS["attention"].names("masks")}
    plan = plan_of(Selection(quick=True, smoke=True))
    calls = [x.calls[0] for x in plan if "empty row" in x.traits and "gradient" in x.traits]
    shown = [call.arguments for call in calls if call.operation == "attention_vjp"]
    assert {"mask", "bias", "key_lengths", "query_lengths", "window", "is_causal"} <= options
    for option in ("mask", "bias", "key_lengths", "query_lengths"):
        assert any({*arguments} & options == {option} for arguments in shown)
    for option in ("window", "is_causal"):
        assert any({*arguments} & options == {option, "query_offset"} for arguments in shown)


def test_the_smallest_calls_are_few_small_and_quick_and_touch_what_single_calls_can():
    plan = plan_of(Selection(quick=True, smoke=True))
    quick = plan_of(Selection(quick=True))
    counts = [
        sum(x.calls[:1] != () and x.calls[0].operation == "attention" for x in own) for own in (plan, quick)
    ]
    assert counts[0] < 0.2 * counts[1]
    assert len(plan) < 0.36 * len(quick)  # of all operations, of which a function has one or two
    assert {*plan} <= {*quick}
    few = {
        (operation, name)
        for outline in quick
        for operation, name in (arguments_of(outline) if is_small(outline) else ())
        if f"{name} of 0" not in outline.traits
    }
    small = Counter(outline.calls[0].operation for outline in plan if is_small(outline) and is_bare(outline))
    of_forms = {outline for outline in plan if is_bare(outline) and small[outline.calls[0].operation] < 20}
    wide = [outline for outline in plan if outline.dtype not in SHORT]
    large = [outline for outline in wide if outline.numbers > 1000 and arguments_of(outline) <= few]
    # Calls in several tiles have a test of their own.
    large = [outline for outline in large if max(outline.sizes[3:5], default=0) <= 32]
    assert len({*large} - of_forms) <= 4, (
        "all but four, which fill tiles and pages, and those whose argument or form has no smaller call"
    )
    for trait in ("rising past 64 keys", "unequal sequences", "whole pages"):
        assert any(trait in outline.traits for outline in plan)
    assert {outline.dtype for outline in plan if outline.dtype not in SHORT} == WIDE
    touched = {rule for outline in plan for rule in outline.rules}
    of_single = {rule for outline in quick if not outline.related for rule in outline.rules}
    assert len(of_single - touched) < 6
    small = [outline for outline in quick if outline.numbers <= 1000 and outline.dtype in WIDE]
    assert {call.operation for outline in plan for call in outline.calls} >= {
        call.operation for outline in small for call in outline.calls if not call.operation.endswith("_vjp")
    }
    assert {name for name, form in OPERATIONS.items() if not form.stacked} <= {
        call.operation for outline in small for call in outline.calls
    }


@pytest.mark.parametrize("tile", [64, 128])
def test_each_option_of_attention_is_in_a_smallest_call_of_several_tiles_of_queries_and_of_keys(tile):
    plan = plan_of(Selection(quick=True, smoke=True))
    tiled = [outline for outline in plan if min(outline.sizes[3:5], default=0) > tile]
    shown = {name for outline in tiled for _, name in arguments_of(outline)}
    assert shown >= {*OPERATIONS["attention"].options} - _ASKED - {"scale", "return_max"}
    causal = [outline.sizes for outline in plan if "is_causal" in outline.traits and outline.sizes]
    assert any(keys > queries + 32 and queries > 1 for *_, queries, keys, _, _ in causal)
    groups = {outline.group for outline in plan if "strides of key and value" in outline.traits}
    assert groups >= {"strides: column major and key", "strides: positions first and value"}
    special = ["special numbers" in outline.traits for outline in plan]
    assert special == sorted(special), "NaN comes last"


def test_each_argument_of_each_operation_is_in_one_of_the_smallest_calls():
    plan = plan_of(Selection(quick=True, smoke=True))
    shown = {
        (call.operation, name)
        for outline in plan
        if not outline.refusal and not outline.related and outline.numbers <= 8192
        for call in outline.calls
        for name in call.arguments
    }
    every = {(name, own) for name, form in OPERATIONS.items() for own in form.arguments if own not in _ASKED}
    assert every - shown == set()


def test_a_score_that_rises_by_much_over_tiles_is_in_one_of_the_smallest_calls():
    """A kernel that rescales only after a large rise is right in all calls of small scores."""
    kinds = {"large scores", "rising past 64 keys"}
    steep = [x for x in index() if x.name in smallest() and kinds <= {*x.traits}]
    assert any("huge numbers" not in x.traits for x in steep)


@pytest.mark.parametrize("least", [1, 33])
@pytest.mark.parametrize("several", ["heads", "entries"])
@pytest.mark.parametrize(
    ("operation", "option"), [*product(("attention", "attention_vjp"), ("mask", "bias"))]
)
def test_one_mask_and_one_bias_for_several_heads_or_entries_are_in_the_smallest_calls(
    operation, option, several, least
):
    """Kernels that join batch entries and heads on one axis repeat such a mask along it."""
    chosen = (x for x in index() if x.name in smallest() and option in x.calls[0].arguments)
    single = (x for x in chosen if not (x.refusal or x.related))
    names = [x.name for x in single if x.calls[0].operation == operation]
    calls = [case.arguments for case in items(names=names) if case.arguments["query"].ndim == 4]
    shapes = [
        (call["query"].shape[:2], call[option].shape, (call["query"].shape[2], call["key"].shape[2]))
        for call in calls
    ]
    shapes = [shape for shape in shapes if min(shape[0]) > 1 and min(shape[2]) >= least]
    one = ["entries", "heads"].index(several)
    assert any(own == (*axes[:one], 1, *axes[one + 1 :], *pairs) for axes, own, pairs in shapes)


@pytest.mark.parametrize(
    "group",
    [
        "window whose edge crosses tiles",
        "diagonal that crosses tiles",
        *(
            f"entries that end before others: {x}"
            for x in ("longest first", "shortest first", "mask", "bias")
        ),
        "rows that rise by much and by little: keys",
        "distances that half precision rounds",
        "linear bias of more keys: causality",
        "masked gradients of many more keys: causality",
        *(f"linear bias of many keys in a form: {form}" for form in ("packed_attention", "paged_attention")),
        *(
            f"window whose edge crosses tiles: {side}"
            for side in ("right, open left", "right, from the query")
        ),
        "sequences across tiles: the longest fills its own",
    ],
)
def test_what_blind_trials_showed_to_pass_is_in_some_of_the_smallest_calls(group):
    assert any(x.name in smallest() for x in index() if x.group.startswith(group))


def test_a_causal_gradient_over_tiles_with_more_keys_than_queries_is_in_one_of_the_smallest_calls():
    """The first tile of queries that sees a tile of keys is found from the difference of these numbers.

    Few kernels give the gradient of a scale, which another such call asks for.
    """
    options = {*OPERATIONS["attention"].options}
    chosen = (x for x in index() if x.name in smallest())
    causal = [x for x in chosen if {*x.calls[0].arguments} & options == {"is_causal"}]
    causal = [x for x in causal if "return_d_scale" not in x.calls[0].arguments]
    sizes = [x.sizes[3:5] for x in causal if x.calls[0].operation == "attention_vjp" and x.sizes]
    assert any(queries > 16 and keys - queries >= 16 for queries, keys in sizes)


def test_a_linear_bias_of_each_group_is_in_one_of_the_smallest_calls():
    """Distances may be counted from the first positions or from the last, and for later keys too."""
    chosen = smallest()
    linear = [
        x for x in index() if "linear bias" in x.traits and x.quick and x.dtype in WIDE and x.numbers <= 8192
    ]
    groups = {(x.group, call.operation) for x in linear if not x.related for call in x.calls}
    shown = {(x.group, call.operation) for x in linear if x.name in chosen for call in x.calls}
    assert {group for group, _ in groups} >= {"linear bias in a form: the last query at the last key"}
    assert groups == shown


def test_an_argument_is_beside_few_others_in_one_of_the_smallest_calls():
    plan = plan_of(Selection(quick=True, smoke=True))
    of = [(call, outline) for outline in plan if not outline.refusal for call in outline.calls]
    fewest = {}
    for call, outline in of:
        for name in (*call.arguments, *({"linear bias"} & {*outline.traits})):
            own = fewest.get((call.operation, name), len(call.arguments))
            fewest[call.operation, name] = min(own, len(call.arguments))
    assert fewest["attention_vjp", "softcap"] == 5, "query, key, value, d_output and the softcap"
    assert fewest["attention", "linear bias"] == 4
    assert fewest["paged_attention", "new_key"] == 7
    assert fewest["paged_attention", "window"] == 6
    # Also where calls with more arguments are part of the quick run.
    quick = {outline.name for outline in index() if outline.calls and len(outline.calls[0].arguments) > 6}
    names = calls_of_arguments(index(), quick)
    alone = [call for outline in index() if outline.name in names for call in outline.calls]
    assert 6 in {len(own) for name, own in alone if name == "paged_attention" and "window" in own}
    assert fewest["quantized_attention", "value_zero_points"] == 6


def test_a_kernel_that_decodes_and_has_few_options_has_twenty_of_the_smallest_calls():
    constraints = Constraints(axes=4, heads="equal", value_depth="key", one_query=True, scales="token")
    cases = fitted_cases(constraints, quick=True, smoke=True)
    for operation in ("latent_attention", "quantized_attention", "paged_attention"):
        arguments = OPERATIONS[operation].arguments
        kept = {"scale", "key_lengths", "encoding", "block_table", *OPERATIONS[operation].arrays}
        kept |= {name for name in arguments if name.endswith(("_scales", "_zero_points"))}
        own = [case for case in cases if case.operation == operation and isinstance(case, Case)]
        taken = [case for case in own if not (case.misuse or fits(constraints, case.arguments, operation))]
        assert sum({*case.arguments} <= kept for case in taken) >= 20, operation


def test_a_kernel_with_few_arguments_has_enough_values_among_the_smallest_calls():
    operation = "packed_paged_attention"
    own = {"query_starts", "block_table", "key_lengths", "is_causal", "scale", *OPERATIONS[operation].arrays}
    plan = plan_of(Selection(quick=True, smoke=True))
    plain = [outline for outline in plan if outline.calls and not outline.refusal and outline.dtype in WIDE]
    calls = [outline.calls[0] for outline in plain]
    taken = [call for call in calls if call.operation == operation and {*call.arguments} <= own]
    assert len(taken) > FEWEST_VALUES["smoke"], "of the wide dtypes alone"


def padded_to_eight_keys(query, key, value, *, is_causal=False):
    """Fill the last block of keys with zeros, which causality is to disallow."""
    pad = [(0, 0)] * (key.ndim - 2) + [(0, -key.shape[-2] % 8), (0, 0)]
    shown = None if is_causal else np.arange(key.shape[-2] + pad[-2][1]) < key.shape[-2]
    key, value = np.pad(key, pad), np.pad(value, pad)
    return reference.attention(query, key, value, mask=shown, is_causal=is_causal, dtype=query.dtype)


def test_causality_in_place_of_the_mask_of_a_last_block_fails_among_the_smallest_calls():
    backend, made = describe(padded_to_eight_keys), Cases()
    takes = {"query", "key", "value", "is_causal"}
    plan = [
        outline
        for outline in plan_of(Selection(quick=True, smoke=True))
        if outline.dtype == "float32" and not outline.refusal and not outline.related
        if all(call.operation == "attention" and {*call.arguments} <= takes for call in outline.calls)
    ]
    failing = [x for x in plan if judge(backend, made.find(x.name, x.group)).status == "fail"]
    assert failing


def test_a_sum_over_a_thousand_keys_is_in_the_smallest_calls_in_each_dtype_of_half_precision():
    """Few keys hide an accumulator of half precision beside the rounding of weights."""
    having = [x for x in index() if x.name in smallest() and x.sizes and x.sizes[4] > 1000]
    assert {x.dtype for x in having if x.calls[0].operation == "attention"} >= {*SHORT}


def test_the_quick_part_has_each_dtype_of_groups_of_half_precision_alone():
    of_groups: dict[tuple[str, str], list[Outline]] = {}
    for outline in index():
        of_groups.setdefault((outline.name.partition("-")[0], outline.group), []).append(outline)
    short = [cases for (_, name), cases in of_groups.items() if name and {x.dtype for x in cases} <= {*SHORT}]
    assert len(short) > 20
    for cases in short:
        assert {x.dtype for x in cases if x.quick} == {x.dtype for x in cases}, cases[0].group


def test_a_causal_step_of_several_queries_at_unequal_lengths_is_in_one_of_the_smallest_calls():
    """With one query, or equal lengths, an offset of the longest sequence for all is right."""
    traits = {"key_lengths by entry", "query_offset by entry", "is_causal"}
    steps = [
        x for x in index() if x.name in smallest() and traits <= {*x.traits} and "softcap" not in x.traits
    ]
    assert any(x.sizes[3] > 1 for x in steps if x.calls[0].operation == "attention")
