"""The sizes call kernels of forms and of stacks by what these store: correct ones pass."""

from dataclasses import replace
from functools import partial, wraps
from pathlib import Path

import numpy as np
import pytest
from tests_support import attnspec, command

from attnspec import OPERATIONS
from attnspec.backends import Unsupported, load
from attnspec.backends.attention_of_form import FORMS, LOW_PRECISION, attention_of_form
from attnspec.backends.backend import no_attention
from attnspec.backends.constraints import Constraints
from attnspec.backends.stored_codes import ENCODINGS
from attnspec.conformance import observe
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.formula import Formula
from attnspec.reference import attention, attention_vjp

PORTABLE = load("numpy-portable")
SINGLE = (
    "quantized_attention",
    "block_sparse_attention",
    "listed_attention",
    "latent_attention",
    LOW_PRECISION,
)


def of_form(form, function, dtypes=PORTABLE.dtypes, **changes):
    """A backend with a function for one form alone, as attention."""
    changes |= {"attention": no_attention, "companions": {form: function}, "dtypes": dtypes}
    return attention_of_form(replace(PORTABLE, **changes))


def statuses(backend, cases):
    """The statuses of some cases, each judged as a run does."""
    return [judge(backend, replace(item)).status for item in cases]


def cases(group, most=2**24, **formula):
    """The sized cases of a group that take no long time, with some numbers in their formula."""
    return [
        item
        for item in sized_cases()
        if item.group == f"sizes: {group}" and item.work <= most
        if all(getattr(item.formula, name) == number for name, number in formula.items())
    ]


@pytest.mark.parametrize("form", FORMS[3:])
def test_a_correct_kernel_passes(form):
    few = 4 if form in SINGLE else 1
    chosen = [item for group in ("codes", "covering", "sampled") for item in cases(group, 2**23)[::5][:few]]
    found = statuses(of_form(form, PORTABLE.companions[form]), chosen)
    assert {*found} <= {"pass", "unsupported"}
    assert found.count("pass") > 0.6 * len(found)


CORRECT = {
    "codes_decoded_to_the_dtype_of_the_query": "quantized_attention",
    "scales_multiplied_by_two_factors": "quantized_attention",
    "weights_of_eight_bits_raised": LOW_PRECISION,
    "listed_keys_gathered": "listed_attention",
    "latent_absorbed": "latent_attention",
    "latent_absorbed_and_stored": "latent_attention",
    "latent_part_by_part": "latent_attention",
}


@pytest.mark.parametrize("name", CORRECT)
def test_a_kernel_that_computes_otherwise_passes(name):
    form, whole = CORRECT[name], entry(name).backend()
    backend = of_form(form, whole.companions[form], whole.dtypes, accuracy=whole.accuracy)
    chosen = [*cases("codes")[::7], *cases("covering", 2**22)[::60], *cases("decode", 2**22)[::9]]
    found = statuses(backend, chosen)
    assert {*found} <= {"pass", "unsupported"}
    assert found.count("pass") > 0.7 * len(found)


@pytest.mark.parametrize("name", ["numpy-portable", "latent_gradients_absorbed"])
def test_gradients_of_latent_vectors_pass(name):
    whole = PORTABLE if name == "numpy-portable" else entry(name).backend()
    own = {form: whole.companions[form] for form in ("latent_attention", "latent_attention_vjp")}
    backend = attention_of_form(replace(whole, attention=no_attention, companions=own))
    chosen = [*cases("backward", 2**27)[:5], *cases("backward-of-some", 2**26)]
    found = statuses(backend, chosen)
    assert {*found} <= {"pass", "unsupported"}
    assert found.count("pass") > 0.5 * len(found)


def test_weights_of_8_bits_are_allowed_beside_queries_in_codes_alone():
    item = next(item for item in cases("codes", 2**27) if item.dtype == "bfloat16" and not item.named)
    short = entry("weights_of_eight_bits_raised").backend()
    right = short.companions[LOW_PRECISION]
    backend = of_form(LOW_PRECISION, right, ("bfloat16",), accuracy="cast")
    assert judge(backend, item).status == "pass"

    def of_numbers(query, key_codes, value_codes, *, key_scales, value_scales, return_lse=False):
        ones = np.ones((1,), query.dtype)
        codes = np.rint(np.asarray(query, np.float64) * 4).astype(np.int8)
        options = {"key_scales": key_scales, "value_scales": value_scales, "return_lse": return_lse}
        return right(ones / 4, codes, key_codes, value_codes, **options)

    assert judge(of_form("quantized_attention", of_numbers, ("bfloat16",)), item).status == "fail"


@pytest.mark.parametrize("granularity", ["", "tensor", "head", "token"])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    "form", ["quantized_attention", "paged_quantized_attention", "packed_quantized_latent_attention"]
)
def test_each_encoding_and_shape_of_scales(form, encoding, granularity):
    right, seen = PORTABLE.companions[form], []

    @wraps(right)
    def only(*arrays, **options):
        if options["encoding"] != encoding:
            raise NotImplementedError(options["encoding"])
        seen.extend(options[name] for name in options if name.endswith("_scales"))
        return right(*arrays, **options)

    backend = of_form(form, only, constraints=Constraints(scales=granularity))
    random = np.random.default_rng(0)
    shapes = ((2, 4, 3, 64), (2, 2, 400, 64), (2, 2, 400, 32))
    query, key, value = (random.integers(-3, 4, shape) / 2 for shape in shapes)
    result = backend.attention(query, key, value)
    np.testing.assert_allclose(result, attention(query, key, value), rtol=1e-12, atol=1e-14)
    several = {"": 3, "token": 3, "head": 1 if "latent" in form else 2, "tensor": 1}[granularity]
    assert [len(np.unique(scales)) for scales in seen] == [several] * len(seen)


def test_other_numbers_are_codes_of_8_bits_with_one_scale():
    item = cases("covering")[0]
    seen = []

    @wraps(PORTABLE.companions["quantized_attention"])
    def look(*arrays, **options):
        seen.append(options)
        return PORTABLE.companions["quantized_attention"](*arrays, **options)

    assert judge(of_form("quantized_attention", look), item).status == "pass"
    assert seen[0]["encoding"] == "int8"
    assert {float(x) for name in ("key_scales", "value_scales") for x in seen[0][name].ravel()} == {1 / 64}
    third = np.full((1, 1, 2, 4), 1 / 3)
    with pytest.raises(Unsupported, match="more digits than codes of 8 bits hold"):
        of_form("quantized_attention", look).attention(third, third, third)


def test_a_list_stands_for_masks_that_the_function_does_not_take():
    right = PORTABLE.companions["listed_attention"]

    def plain(query, key, value, *, key_indices, return_lse=False):
        return right(query, key, value, key_indices=key_indices, return_lse=return_lse)

    backend = of_form("listed_attention", plain)
    for named in ({"is_causal"}, {"window", "is_causal"}, {"key_lengths"}, {"mask"}, set()):
        found = [x for x in cases("codes") + cases("covering") if {*x.named} - {"query_offset"} == named]
        judged = [judge(backend, replace(item)) for item in found[:6]]
        several = {"heads with one list have several masks"}
        assert all(x.status == "pass" or x.reason in several for x in judged), (named, judged)
        assert any(x.status == "pass" for x in judged)


def test_blocks_are_given_as_a_mask_or_as_lists():
    right = PORTABLE.companions["block_sparse_attention"]

    def masked(query, key, value, *, query_block, key_block, block_mask, is_causal=False):
        blocks = {"query_block": query_block, "key_block": key_block, "block_mask": block_mask}
        seen.append(block_mask)
        return right(query, key, value, is_causal=is_causal, **blocks)

    def listed(query, key, value, *, query_block, key_block, block_counts, block_indices, is_causal=False):
        blocks = {"query_block": query_block, "key_block": key_block}
        seen.append(block_counts < block_indices.shape[-1])
        blocks |= {"block_counts": block_counts, "block_indices": block_indices}
        return right(query, key, value, is_causal=is_causal, **blocks)

    formula = Formula(300, 300, 16, 16, heads=2, key_heads=1, options={"is_causal": True})
    item = replace(cases("covering")[0], formula=formula, dtype="float32")
    for function in (masked, listed):
        seen = []
        assert judge(of_form("block_sparse_attention", function), item).status == "pass"
        assert 0 < np.mean(seen[0]) < 1  # some blocks are not active


@pytest.mark.parametrize("layers", ["packed", "packed_paged", "paged"])
def test_blocks_are_shared_by_sequences_of_one_row(layers):
    form = f"{layers}_block_sparse_attention"
    random = np.random.default_rng(0)
    query, key, value = (random.integers(-3, 4, (3, 2, keys, 8)) / 2 for keys in (300, 400, 400))
    options = {"is_causal": True, "key_lengths": np.array([400, 130, 257]), "query_offset": 100}
    options |= {"query_lengths": np.array([200, 300, 129])}
    result = of_form(form, PORTABLE.companions[form]).attention(query, key, value, **options)
    np.testing.assert_allclose(result, attention(query, key, value, **options), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"profile": "tf32"}, "may be rounded in its profile"),
        ({"profile": "flushed"}, "may be rounded in its profile"),
        ({"dialect": {"SCORE-2": "one"}}, "default scale of another depth"),
    ],
)
def test_what_latent_vectors_cannot_stand_for_is_declined(changes, reason):
    query, key = np.ones((1, 4, 3, 40), np.float32), np.ones((1, 2, 5, 40), np.float32)
    backend = partial(of_form, "latent_attention", PORTABLE.companions["latent_attention"])
    with pytest.raises(Unsupported, match=reason):
        backend(**changes).attention(query, key, key)
    wide = np.zeros((1, 512, 1, 512), np.float32)
    with pytest.raises(Unsupported, match="would be too large"):
        backend().attention(wide, wide, wide)


def test_gradients_that_heads_may_store_before_they_are_added_are_declined():
    own = {form: PORTABLE.companions[form] for form in ("latent_attention", "latent_attention_vjp")}
    backend = attention_of_form(replace(PORTABLE, attention=no_attention, companions=own))
    item = next(item for item in cases("backward", 2**28) if item.formula.heads > item.formula.key_heads)
    assert judge(backend, replace(item, dtype="bfloat16")).reason.startswith("the gradients of heads that")
    assert judge(backend, replace(item, dtype="float32")).status == "pass"


def test_gradients_of_codes_are_declined():
    backend = of_form("quantized_attention", PORTABLE.companions["quantized_attention"])
    verdict = judge(backend, cases("backward")[0])
    assert verdict.status == "unsupported"
    assert "gradients of quantized_attention are not an operation" in verdict.reason


RANDOM = np.random.default_rng(4)
# Each code holds such numbers. The depth is large enough for a rotary part.
ARRAYS = [RANDOM.integers(-3, 4, shape) / 4 for shape in ((2, 4, 5, 35), (2, 2, 21, 35), (2, 2, 21, 6))]
OPTIONS = {
    "alone": {"softcap": 2.0, "scale": 0.3},
    "causal": {"is_causal": True, "query_offset": np.array([16, 3])},
    "window": {"window": (4, 1), "sinks": RANDOM.normal(size=4)},
    "lengths": {"key_lengths": np.array([17, 0]), "query_lengths": np.array([5, 2]), "is_causal": True},
    "lengths and sinks": {"query_lengths": np.array([0, 3]), "sinks": RANDOM.normal(size=4)},
    "nothing": {"query_lengths": 0},
    "ids": {"query_segment_ids": np.ones((2, 5), int), "key_segment_ids": RANDOM.integers(0, 2, (2, 21))},
    "positions": {
        "query_positions": RANDOM.integers(0, 9, (2, 5)),
        "key_positions": RANDOM.integers(-1, 9, (2, 21)),
        "is_causal": True,
    },
    "mask": {"mask": RANDOM.random((2, 1, 5, 21)) < 0.7, "bias": RANDOM.normal(size=(5, 21))},
}


def by_form(form, **changes):
    """The portable backend with a form alone, as attention."""
    names = (form, f"{form}_vjp")
    companions = {name: x for name, x in PORTABLE.companions.items() if name in names}
    return attention_of_form(replace(PORTABLE, attention=no_attention, companions=companions, **changes))


#: Each form with each option, and three options of each stack of two or more.
CALLS = [
    (form, option)
    for number, form in enumerate(FORMS)
    for place, option in enumerate(OPTIONS)
    if len(OPERATIONS[form].layers) < 2 or (place - number) % 3 == 0
]


@pytest.mark.parametrize(("form", "option"), CALLS)
def test_a_call_has_the_results_of_attention(form, option):
    arrays, options = ARRAYS, OPTIONS[option]
    layers = OPERATIONS[form].layers
    if option == "mask" and "packed" in layers and "paged" not in layers:
        with pytest.raises(Unsupported, match="a mask of several packed sequences"):
            by_form(form).attention(*arrays, **options)
        arrays = [array[:1] for array in arrays]
        options = {name: x[:1] if x.ndim == 4 else x for name, x in options.items()}
    results = by_form(form).attention(*arrays, **options, return_lse=True)
    for result, expected in zip(results, attention(*arrays, **options, return_lse=True), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("form", [form for form in FORMS if f"{form}_vjp" in OPERATIONS])
def test_a_call_of_gradients_has_those_of_attention(form, option):
    options = OPTIONS[option] | {"d_lse": RANDOM.normal(size=(2, 4, 5))}
    d_output = RANDOM.normal(size=(2, 4, 5, 6))
    backend = by_form(form)
    if form == "packed_attention" and option in ("mask", "lengths and sinks"):
        with pytest.raises(Unsupported, match=r"its sink would get|a mask of several packed sequences"):
            backend.function("attention_vjp")(*ARRAYS, d_output, **options)
        return
    results = backend.function("attention_vjp")(*ARRAYS, d_output, **options)
    for result, expected in zip(results, attention_vjp(*ARRAYS, d_output, **options), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-13)


def test_pages_are_aligned_at_the_end_without_an_offset():
    paged = PORTABLE.companions["paged_attention"]

    def decode(query, key_pages, value_pages, block_table, key_lengths, *, is_causal=False):
        options = {"block_table": block_table, "key_lengths": key_lengths, "is_causal": is_causal}
        return paged(query, key_pages, value_pages, **options)

    backend = by_form("paged_attention")
    backend = attention_of_form(
        replace(backend, attention=no_attention, companions={"paged_attention": decode})
    )
    options = {"is_causal": True, "key_lengths": np.array([21, 7]), "query_offset": np.array([16, 2])}
    np.testing.assert_allclose(
        backend.attention(*ARRAYS, **options), attention(*ARRAYS, **options), rtol=1e-12
    )
    with pytest.raises(Unsupported, match="aligns this call otherwise"):
        backend.attention(*ARRAYS, is_causal=True)


def test_a_kernel_without_an_offset_is_asked_for_calls_that_it_aligns():
    packed = PORTABLE.companions["packed_attention"]

    def at_end(query, key, value, *, query_starts, key_starts, is_causal=False):
        options = {"query_starts": query_starts, "key_starts": key_starts, "is_causal": is_causal}
        return packed(query, key, value, **options, query_offset=np.diff(key_starts) - np.diff(query_starts))

    declared = {"companions": {"packed_attention": at_end}, "dialect": {"PACK-5": "bottom-right"}}
    backend = attention_of_form(replace(PORTABLE, attention=no_attention, **declared))
    result = backend.attention(*ARRAYS, is_causal=True, query_offset=16)
    np.testing.assert_allclose(result, attention(*ARRAYS, is_causal=True, query_offset=16), rtol=1e-12)
    with pytest.raises(Unsupported, match="aligns this call otherwise"):
        backend.attention(*ARRAYS, is_causal=True)


@pytest.mark.parametrize("form", FORMS[:3])
def test_a_sized_case_is_judged_and_its_observation_is_that_of_the_form(form):
    item = next(case for case in sized_cases() if case.group == "sizes: covering" and case.formula.keys > 40)
    backend = by_form(form)
    assert judge(backend, item).status == "pass"
    right = backend.companions[form]

    @wraps(right)
    def larger(*arrays, **options):
        output, lse = right(*arrays, **options)
        return 1.01 * output, lse

    wrong = replace(PORTABLE, attention=no_attention, companions={form: larger})
    assert judge(attention_of_form(wrong), item).bad
    shape = (*item.case.arguments["query"].shape[:-1], item.formula.value_depth)
    assert observe(wrong, item.case)["output"].shape == shape
    views = next(case for case in sized_cases() if case.layout)
    assert "no strides of their own" in judge(backend, views).reason


def test_the_command_finds_a_wrong_table_at_real_sizes(here):
    source = (Path(__file__).parent / "served.py").read_text(encoding="utf-8")
    Path("served.py").write_text(source)
    command("init", "served.py:decode", status=0)
    case = "sizes-covering-1"
    attnspec("check", ".", "--sizes", "--case", case, cwd=here, status=0)
    wrong = source.replace('"block_table": page_table', '"block_table": np.sort(page_table)')
    assert wrong != source
    Path("served.py").write_text(wrong)
    run = attnspec("check", ".", "--sizes", "--case", "sizes-covering-29", cwd=here, status=1)
    assert "calls of attention are made as calls of paged_attention" in run.stdout
