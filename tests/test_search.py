"""The search finds a failing call, reduces it and stores it. It finds nothing in a correct implementation."""

import re
from dataclasses import replace
from inspect import Parameter, Signature

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests_support import attnspec

from attnspec import OPERATIONS
from attnspec.backends import BackendError, load
from attnspec.backends.backend import no_attention
from attnspec.backends.constraints import Constraints
from attnspec.conformance.gallery import entry
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.render.text import verdict_text
from attnspec.conformance.run.search import calls, calls_of_form, search, store
from attnspec.golden import read_cases
from attnspec.sizes import misfits

PORTABLE = load("numpy-portable")


@pytest.mark.parametrize(
    ("name", "needed", "most"),
    [
        ("key_heads_tiled", (), 12),
        ("sink_scaled", ("sinks",), 6),
        ("causal_bottom_right", ("is_causal",), 12),
        ("lse_to_base_two", (), 4),
        ("lse_of_the_last_tile", (), 40),  # of more keys than a tile
        ("nan_spreads_to_the_head", (), 12),
    ],
)
@pytest.mark.sample(3)
def test_a_bug_is_found_and_made_small(name, needed, most):
    found = search(replace(entry(name).backend(), companions={}), 400)
    assert found is not None
    arguments = found.case.arguments
    assert found.verdict.bad
    assert set(needed) <= set(arguments)
    assert len(arguments) == 3 + len(needed), "nothing that it does not take"
    assert sum(arguments[array].size for array in ("query", "key", "value")) <= most


def test_a_bug_in_half_precision_is_found():
    found = search(entry("softmax_in_half").backend(), 400)
    assert found is not None
    assert found.case.dtype in ("float16", "bfloat16")
    taken = set()

    def attention(query, key, value, *, scale=None, mask=None):
        taken.update(name for name, thing in (("scale", scale), ("mask", mask)) if thing is not None)
        return PORTABLE.attention(query, key, value, scale=scale, mask=mask)

    assert search(replace(PORTABLE, attention=attention, companions={}), 100) is None
    assert taken == {"scale", "mask"}


def test_another_seed_draws_other_calls():
    asked = {}

    def searched(seed):
        seen = asked[seed] = []

        def attention(query, key, value):
            seen.append(query.tobytes())
            return PORTABLE.attention(query, key, value)

        assert search(replace(PORTABLE, attention=attention, companions={}), 20, seed=seed) is None

    for seed in (1, 2):
        searched(seed)
    assert asked[1] != asked[2]


@pytest.mark.parametrize("name", ["plain", "tiles_with_a_running_maximum", "everything_in_float64"])
@pytest.mark.sample(2)
def test_of_what_is_correct_nothing_is_found(name):
    assert search(entry(name).backend(), 150, seed=3) is None


@settings(
    max_examples=60,
    database=None,
    derandomize=True,  # no test depends on chance
    suppress_health_check=list(HealthCheck),
    deadline=None,
)
@given(st.data())
def test_every_call_is_legal_and_takes_what_the_backend_has(data):
    backend = replace(PORTABLE, dtypes=("float32",))
    case = data.draw(calls(backend))
    assert misfits(case.operation, case.arguments) == []
    assert case.dtype == "float32"


def test_gradients_of_latent_vectors_are_drawn():
    names = set()

    @settings(max_examples=20, database=None, derandomize=True, deadline=None)
    @given(calls_of_form(replace(PORTABLE, dtypes=("float32",)), "latent_attention"))
    def draw(case):
        names.add(case.operation)
        assert misfits(case.operation, case.arguments) == []
        assert not judge(PORTABLE, case).bad

    draw()
    assert names == {"latent_attention", "latent_attention_vjp"}


def test_the_counter_example_is_stored_as_a_case_that_can_be_judged_again(tmp_path):
    backend = entry("sink_scaled").backend()
    verdict, call = store(backend, search(backend, 300), tmp_path)
    (path,) = tmp_path.iterdir()
    assert verdict.case == str(path)
    assert any(line.startswith("sinks = ") for line in call)
    text = verdict_text(verdict)
    (case,) = read_cases(path)
    assert judge(backend, case).bad
    assert judge(PORTABLE, case).status == "pass"
    program = "\n".join(re.findall(r"^    (.*)$", text.partition("reproduce:")[2], re.MULTILINE))
    assert str(path) in program
    exec(compile(program, "reproduction", "exec"), {})


def test_a_failure_that_does_not_come_back_is_said_to_be_so():
    random = np.random.default_rng(0)

    def attention(query, key, value):
        output = PORTABLE.attention(query, key, value)
        return output + 1 if random.random() < 0.02 else output

    found = search(replace(PORTABLE, attention=attention, companions={}), 300)
    assert found is not None
    assert not found.verdict.repeatable


def test_from_the_command_line(here):
    name = "attnspec.conformance.gallery:softcap_without_effect"
    run = attnspec("check", name, "--search", "300", cwd=here, status=1)
    assert "in the smallest call that was found" in run.stdout
    (path,) = here.glob("*.json")
    run = attnspec("check", name, "--case", path, cwd=here, status=1)
    assert "1 fail" in run.stdout
    run = attnspec("check", "numpy-portable", "--case", path, cwd=here, status=0)


def test_a_backend_without_a_searched_operation_is_not_passed(here):
    text = "from attnspec.reference import sharded_attention as kernel\n"
    text += "def sharded_attention(query, key, value, *, query_shards, key_shards):\n"
    text += "    return kernel(query, key, value, query_shards=query_shards, key_shards=key_shards)\n"
    (here / "over_ranks.py").write_text(text)
    ended = attnspec("check", "./over_ranks.py:sharded_attention", "--search", "5", cwd=here)
    assert ended.returncode not in (0, 1), ended.stdout
    assert "no operation that --search draws calls of" in ended.stdout + ended.stderr


def kernel(form, *taken):
    """The portable function of a form with few arguments."""
    right, declared = PORTABLE.companions[form], OPERATIONS[form]

    def few(*arrays, **options):
        return right(*arrays, **options)

    kinds = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in declared.arrays]
    required = [argument.name for argument in declared.named if argument.required]
    kinds += [Parameter(name, Parameter.KEYWORD_ONLY) for name in (*required, *taken)]
    few.__signature__ = Signature(kinds)
    return few


_LIMITED = {"depths": (16, 32), "heads": "equal", "one_query": True}


@pytest.mark.parametrize(
    ("form", "taken", "limits"),
    [
        ("quantized_attention", ("key_scales", "value_scales"), _LIMITED),
        ("paged_quantized_attention", ("is_causal",), {}),
        ("packed_quantized_latent_attention", ("latent_scales", "encoding"), _LIMITED),
        ("latent_attention", ("scale",), {"value_depth": "key"}),
        ("block_sparse_attention", ("block_mask",), _LIMITED),
        ("block_sparse_attention", ("block_counts", "block_indices"), {}),
    ],
)
@pytest.mark.sample(3)
def test_calls_are_drawn_for_functions_with_few_arguments_and_sizes(form, taken, limits):
    declared = {"companions": {form: kernel(form, *taken)}, "constraints": Constraints(**limits)}
    backend = replace(PORTABLE, attention=no_attention, **declared)
    assert search(backend, 3) is None  # an error if no call is drawn


def test_a_function_that_takes_no_drawn_call_is_said_to_take_none():
    few = kernel("listed_attention")
    few.__signature__ = Signature([*few.__signature__.parameters.values()][:3])  # without lists
    backend = replace(PORTABLE, attention=no_attention, companions={"listed_attention": few})
    with pytest.raises(BackendError, match="expected a function that takes some drawn call, got none"):
        search(backend, 5)
