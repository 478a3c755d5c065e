"""The sizes call kernels of forms and of stacks: a call of attention is stored as the form stores it."""

from dataclasses import replace
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
from tests_support import attnspec, command

from attnspec import OPERATIONS
from attnspec.backends import Unsupported, load
from attnspec.backends.attention_of_form import FORMS, attention_of_form
from attnspec.backends.backend import no_attention
from attnspec.conformance import observe
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.reference import attention, attention_vjp

PORTABLE = load("numpy-portable")
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
    "segments": {
        "query_segment_ids": np.ones((2, 5), int),
        "key_segment_ids": RANDOM.integers(0, 2, (2, 21)),
    },
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
