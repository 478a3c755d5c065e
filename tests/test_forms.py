"""Packed and paged attention: kernels of strangers, right and wrong, in Python and in C."""

import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from test_cli import attnspec

from attnspec.backends import describe, load
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import items
from attnspec.reference import attention, packed_attention, packed_attention_vjp, paged_attention

EXAMPLES = Path(__file__).parents[1] / "examples"
FORMS = {"packed": "PACK-", "paged": "PAGE-"}
#: In each example, a line and what to write instead, and the rules of which one then fails.
BUGS = {
    "packed": (
        ("np.arange(q.shape[1])[:, None] + offset", "np.arange(q.shape[1])[:, None]", {"PACK-5"}),
        ("starts[-1] > rows.shape[1]", "False", {"PACK-6"}),
        ("slice(starts[g], starts[g + 1])", "slice(starts[g], starts[-1])", {"PACK-1", "PACK-2"}),
        ("np.full((heads, rows), -np.inf, wide)", "np.zeros((heads, rows), wide)", {"PACK-2", "PACK-3"}),
        (
            "np.zeros((heads, rows, value.shape[-1]), wide)",
            "np.full((heads, rows, value.shape[-1]), np.nan)",
            {"PACK-3"},
        ),
    ),
    "paged": (
        ("length - t * size))", "size))", {"PAGE-1", "PAGE-4", "PAGE-5"}),
        ("length - queries if query_offset is None", "0 if query_offset is None", {"PAGE-7"}),
        ("read.min() < 0 or read.max() >= pages", "False", {"PAGE-8"}),
        ("block_table[entry][: -(-length // size)]", "block_table[entry]", {"PAGE-1", "PAGE-3"}),
        ("x[page][group, there]", "x[block_table.flat[t]][group, there]", {"PAGE-1"}),
    ),
}


@cache
def about(prefix):
    return [one for one in items() if any(rule.startswith(prefix) for rule in one.rules)]


def verdicts(backend, prefix):
    return [judge(backend, one) for one in about(prefix)]


def described(name, *changes):
    """The kernel of an example, with some changes of its source."""
    source = (EXAMPLES / name / "kernel.py").read_text()
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    module = {"__name__": name}
    exec(compile(source, f"{name}.py", "exec"), module)
    operation = f"{name}_attention"
    return describe(module["attention"], name=name, axes=4, companions={operation: module[operation]})


@pytest.mark.parametrize("name", FORMS)
def test_an_example_in_python_conforms(name):
    found = verdicts(described(name), FORMS[name])
    assert {one.status for one in found} - {"unsupported"} == {"pass"}
    assert sum(one.status == "pass" for one in found) > 40


@pytest.mark.parametrize("name", FORMS)
def test_the_folder_of_an_example_is_judged_by_its_name(name):
    run = attnspec("check", EXAMPLES / name, "-k", f"{FORMS[name]}1", "--dtype", "float32")
    assert run.returncode == 0, run.stdout
    assert f"{FORMS[name]}1" in run.stdout


@pytest.mark.parametrize(("name", "bug"), [(name, bug) for name, bugs in BUGS.items() for bug in bugs])
def test_an_example_with_a_bug_fails_under_its_rule(name, bug):
    old, new, rules = bug
    found = verdicts(described(name, (old, new)), FORMS[name])
    assert {one.rule for one in found if one.status in ("fail", "error", "should not met")} & rules


def test_the_example_in_c_conforms(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) is installed")
    words = ["-O2", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "packed", EXAMPLES / "packed.c", "-lm"]
    subprocess.run([compiler, *words], check=True)
    found = verdicts(load(f"program:{tmp_path / 'packed'}"), FORMS["packed"])
    assert {one.status for one in found} - {"unsupported"} == {"pass"}
    assert sum(one.status == "pass" for one in found) > 40


def test_sequences_aligned_at_their_end_are_a_variant():
    """As `flash_attn_varlen_func` aligns them. Undeclared, it is named; declared, it is verified."""
    ahead = "np.diff(key_starts) - np.diff(query_starts)"
    given = "np.broadcast_to(query_offset, len(query_starts) - 1)"
    backend = described(
        "packed", (given, f"{ahead} if type(query_offset) is int and not query_offset else {given}")
    )
    undeclared = [one for one in verdicts(backend, "PACK-5") if one.status == "fail"]
    assert undeclared
    assert {(one.rule, one.variant) for one in undeclared} >= {("PACK-5", "bottom-right")}
    declaring = replace(backend, dialect={"PACK-5": "bottom-right"})
    declared = verdicts(declaring, "PACK-")
    assert {one.status for one in declared} == {"pass", "deviation", "unsupported"}
    assert {one.rule for one in declared if one.status == "deviation"} == {"PACK-5"}


def drawn(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape)


def test_packed_attention_is_attention_of_each_sequence():
    query, key, value = drawn(4, 9, 3), drawn(2, 8, 3), drawn(2, 8, 2)
    queries, keys, offsets = [0, 3, 3, 8], [0, 4, 6, 7], np.array([1, 0, -2])
    found = packed_attention(
        query, key, value, query_starts=queries, key_starts=keys, query_offset=offsets, is_causal=True
    )
    for g, offset in enumerate(offsets.tolist()):
        own, other = slice(queries[g], queries[g + 1]), slice(keys[g], keys[g + 1])
        alone = attention(query[:, own], key[:, other], value[:, other], query_offset=offset, is_causal=True)
        np.testing.assert_allclose(found[:, own], alone, rtol=1e-13, atol=1e-15)
    assert not found[:, 8:].any()


def test_the_gradients_of_packed_attention_are_differences():
    query, key, value, g = drawn(2, 5, 2), drawn(1, 4, 2), drawn(1, 4, 3), drawn(2, 5, 3)
    starts = {"query_starts": [0, 2, 4], "key_starts": [0, 1, 4]}
    sinks = drawn(2)
    gradients = packed_attention_vjp(query, key, value, g, sinks=sinks, **starts)
    arrays = [query, key, value, sinks]
    for place, gradient in enumerate(gradients):
        for at in np.ndindex(gradient.shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = [x.copy() for x in arrays]
                moved[place][at] += step
                sides.append((g * packed_attention(*moved[:3], sinks=moved[3], **starts)).sum())
            np.testing.assert_allclose(gradient[at], (sides[0] - sides[1]) / 2e-6, rtol=1e-5, atol=1e-8)


def test_paged_attention_is_attention_over_gathered_positions():
    query, new_key, new_value = drawn(2, 4, 2, 3), drawn(2, 2, 3, 3), drawn(2, 2, 3, 2)
    key_pages, value_pages = drawn(6, 2, 2, 3), drawn(6, 2, 2, 2)
    table, lengths = np.array([[5, 0, 2], [1, 3, 4]]), [3, 0]
    options = {"block_table": table, "key_lengths": lengths, "new_key": new_key, "new_value": new_value}
    found = paged_attention(query, key_pages, value_pages, left_padding=[1, 0], is_causal=True, **options)
    for entry, (length, padding) in enumerate(zip(lengths, (1, 0), strict=True)):
        arrays = []
        for pages, new in ((key_pages, new_key), (value_pages, new_value)):
            held = np.concatenate([pages[page] for page in table[entry]], axis=1)[:, :length]
            arrays.append(np.concatenate([held, new[entry]], axis=1)[:, padding:])
        end = length + 3 - padding
        alone = attention(query[entry], *arrays, is_causal=True, query_offset=end - 2)
        np.testing.assert_allclose(found[entry], alone, rtol=1e-13, atol=1e-15)
