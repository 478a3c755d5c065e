"""The codebook oracle agrees with the exact one, and at any length a lost key is told from rounding."""

import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from attnspec import OPERATIONS
from attnspec.conformance.judge.dtypes import in_dtype
from attnspec.conformance.relations.relation import Relation
from attnspec.conformance.sizes.codebook.exponentials import Split
from attnspec.conformance.sizes.codebook.rows import Block, tasks
from attnspec.conformance.sizes.codebook.sums import Rows, keys_of, over
from attnspec.conformance.sizes.codebook.words import intervals
from attnspec.conformance.suite import groups
from attnspec.formula import Formula, octets
from attnspec.reference import attention
from attnspec.reference.budget.attention import MASKING, repeat_heads
from attnspec.reference.budget.budget import budget
from attnspec.reference.exact.evaluate import evaluate
from attnspec.reference.exact.head import allowed_pairs
from attnspec.reference.masking import allowed_keys

ROOT = Path(__file__).parents[1]
OPTIONS = (
    {},
    {"is_causal": True},
    {"is_causal": True, "window": (5, None)},
    {"window": (3, 2), "query_offset": (4, -3)},
    {"window": (None, 2), "query_offset": 125},
    {"key_lengths": (20, 130), "is_causal": True, "query_offset": (100, 90)},
    {"query_lengths": (0, 7)},
    {"segments": 7},
    {"segments": 7, "is_causal": True, "query_offset": 121},
    {"sinks": True, "window": (2, 0)},
    {"softcap": 2.0},
    {"scale": -0.3},
    {"scale": 0.0},
    {"mask": ("B", "L", "S")},
    {"mask": ("S",), "is_causal": True, "query_offset": 60},
    {"bias": ("H", "L", "S")},
    {"bias": ("L", "S"), "mask": ("B", "H", "L", "S"), "sinks": True, "softcap": 3.0},
    {"dropout_mask": ("B", "H", "L", "S"), "dropout_rate": 0.25},
    {"dropout_mask": ("L", "S"), "dropout_rate": 0.5, "is_causal": True, "query_offset": 60, "sinks": True},
)


def problem(options):
    """Make a problem whose keys fill more than one tile, small enough for the exact oracle."""
    return Formula(9, 130, 6, 5, batch=(2,), heads=4, key_heads=2, words=4, seed=3, options=options)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_each_value_is_that_of_the_exact_oracle(options):
    """In float64 the outputs are correctly rounded, or one unit off with dropout."""
    want = evaluate("attention", problem(options).arguments("float64"))
    for task in tasks(problem(options), "float64"):
        block = task()
        output = want["output"].values[block.head][block.rows]
        lse = want["lse"].values[block.head][block.rows]
        units = 1 if "dropout_rate" in options else 0
        assert (np.abs(block.output - output) <= units * np.spacing(np.abs(output))).all()
        there = lse > -np.inf
        assert (block.lse[~there] == -np.inf).all()
        off = np.abs(block.lse[there] - lse[there])
        assert (off <= 4 * np.spacing(np.maximum(1, np.abs(lse[there])))).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_each_budget_is_at_least_that_of_the_rule(options, dtype):
    """A budget is never below that of NUM-3, and at most 1.7 times as large."""
    accuracy = "cast" if dtype in ("float16", "bfloat16") else "full"
    want = budget("attention", problem(options).arguments(dtype), dtype, accuracy=accuracy)
    for task in tasks(problem(options), dtype, accuracy=accuracy):
        block = task()
        for name, found in (("output", block.output_budget), ("lse", block.lse_budget)):
            least = want[name][block.head][block.rows]
            assert (found >= least * (1 - 2**-12)).all()
            assert (found <= 1.7 * least).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_no_budget_is_lost_in_rows_far_below_the_largest_score(dtype):
    formula = problem({"scale": 40.0, "is_causal": True})
    least = budget("attention", formula.arguments(dtype), dtype, accuracy="full")["output"]
    for task in tasks(formula, dtype):
        block = task()
        assert (block.output_budget >= least[block.head][block.rows] * (1 - 2**-12)).all()


@pytest.mark.parametrize("options", [one for one in OPTIONS if not {"mask", "bias"} & set(one)], ids=str)
def test_intervals_are_the_allowed_pairs(options):
    found = problem(options)
    shape = (2, 4, found.queries, found.keys)
    for entry in range(2):
        low, high = intervals(options, found.queries, found.keys, entry)
        j = np.arange(found.keys)
        inside = (j >= low[:, None]) & (j < high[:, None])
        assert (inside == allowed_pairs(found.given("float64"), shape, (entry, 0))).all()


@dataclass(frozen=True)
class Long:
    formula: Formula
    arguments: dict[str, Any]
    blocks: dict[int, tuple[Block, int]]

    def share(self, block, place, key):
        query, found = (self.arguments[name][0, 0] for name in ("query", "key"))
        row = block.rows[place]
        score = query[row].astype(np.float64) @ found[key].astype(np.float64) / np.sqrt(self.formula.depth)
        return float(np.exp(score - block.lse[place]))

    def value(self, key):
        return self.arguments["value"][0, 0, key].astype(np.float64)


def long_of(formula, dtype, rows):
    found = {}
    for task in tasks(formula, dtype):
        wanted = set(rows) & set(task.args[0].rows.tolist())  # type: ignore[attr-defined] # the rows of the block
        if wanted:
            block = task()
            found |= {row: (block, int(np.flatnonzero(block.rows == row)[0])) for row in wanted}
    return Long(formula, formula.arguments("float32"), found)


@pytest.fixture(scope="module")
def long():
    formula = Formula(2**20, 2**20, 64, 64, words=8, options={"is_causal": True})
    return long_of(formula, "float64", (0, 1, 127, 128, 70001, 2**19, 2**20 - 1))


def lost(output, p, value, _other):
    return (output - p * value) / (1 - p)


def doubled(output, p, value, _other):
    return (output + p * value) / (1 + p)


def displaced(output, p, value, other):
    return output + p * (other - value)


@pytest.mark.parametrize("wrong", [lost, doubled, displaced])
def test_one_key_of_a_million_is_told_in_float64(long, wrong):
    random = np.random.default_rng(1)
    for row, (block, place) in long.blocks.items():
        keys = {0, row, row // 128 * 128, *random.integers(0, row + 1, 5).tolist()}
        for key in keys if row else ():
            output, other = block.output[place], long.value(key - 1 if key else 1)
            off = np.abs(wrong(output, long.share(block, place, key), long.value(key), other) - output)
            assert (off > block.output_budget[place]).any(), (row, key)


def test_the_result_of_another_row_is_told(long):
    for block, place in long.blocks.values():
        if len(block.rows) > 1:
            other = block.output[place - 1 if place else 1]
            assert (np.abs(other - block.output[place]) > block.output_budget[place]).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_window_that_is_off_by_one_is_told(dtype):
    formula = Formula(2**20, 2**20, 64, 64, words=8, options={"is_causal": True, "window": (255, None)})
    long = long_of(formula, dtype, (5000, 2**17 - 1, 2**17 + 128, 2**20 - 200))
    for block, _ in long.blocks.values():
        for wrong, distance in ((doubled, 256), (lost, 255)):
            told = []
            for place, row in enumerate(block.rows.tolist()):
                output, key = block.output[place], row - distance
                off = np.abs(wrong(output, long.share(block, place, key), long.value(key), None) - output)
                told.append((off > block.output_budget[place]).any())
            # In float32 a key of a small weight is not told, but some row of the tile tells it.
            assert all(told) if dtype == "float64" else any(told)


def test_the_lse_of_one_key_is_its_score():
    formula = Formula(48, 191, 1, 4, words=16, seed=687, options={"is_causal": True})
    block = next(tasks(formula, "float32"))()
    query, key = (formula.arguments("float64")[name][0, 0] for name in ("query", "key"))
    assert block.lse[0] == query[0, 0] * key[0, 0]
    zeros = replace(formula, options={"segments": 1, "query_offset": 0})
    found = [task() for task in tasks(zeros, "float32")]
    lse = np.concatenate([one.lse for one in found])
    assert (lse == query[:, 0] * key[-48:, 0]).all()
    assert (lse == 0).any()


def test_octets_are_those_of_the_program_in_c(tmp_path):
    text = (ROOT / "spec" / "generator.md").read_text(encoding="utf-8")
    first, later = octets(0, 0, 8).tolist(), octets(7, 3, 4, start=1_000_000_007).tolist()
    assert f"are {', '.join(map(str, first))}." in text
    assert f"are {', '.join(map(str, later))}." in " ".join(text.split())
    program = re.search(r"```c\n(.*?)```", text, re.DOTALL)
    assert program is not None
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    loop = 'for (int i = 0; i < 40; i++) printf("%d ", octet(9, 5, i + 3));'
    main = f"#include <stdio.h>\nint main(void) {{ {loop} }}\n"
    (tmp_path / "octets.c").write_text(program[1] + main)
    subprocess.run([compiler, "-o", tmp_path / "octets", tmp_path / "octets.c"], check=True)
    printed = subprocess.run([tmp_path / "octets"], check=True, capture_output=True, text=True).stdout
    assert [int(word) for word in printed.split()] == octets(9, 5, 40, start=3).tolist()


@pytest.mark.parametrize("options", [{"segments": 1}, {"window": (1, 0)}, {"window": (200, -199)}], ids=str)
def test_values_that_are_all_zero_have_a_mean_of_exactly_zero(options):
    formula = Formula(4096, 4096, 16, 64, seed=284, options=options)
    values, seen = formula.value[0, 0], 0
    low, high = intervals(options, 4096, 4096, 0)
    for task in tasks(formula, "float32"):
        block = task()
        for place, row in enumerate(block.rows.tolist()):
            none = (values[low[row] : high[row]] == 0).all(axis=0)
            seen += int(none.sum())
            assert (block.output[place][none] == 0).all()
            if high[row] - low[row] == 1:
                value = values[low[row]].astype(np.float64)
                assert (np.abs(block.output[place] - value) <= 2 * np.spacing(np.abs(value))).all()
    assert seen


@pytest.mark.parametrize(
    ("low", "high"),
    [(3, 60), (0, 128), (99, 300), (128, 8192), (1, 8190), (127, 8449), (130, 9984), (0, 10000), (300, 9999)],
)
@pytest.mark.parametrize("rest", [0.0, 2.0**-30])
def test_sums_are_those_over_the_keys_one_by_one(low, high, rest):
    """Numerators are exact. Sizes, which only budgets use, are at most a 32nd or so too large."""
    random = np.random.default_rng(high)
    words = random.integers(0, 3, 10000).astype(np.uint8)
    value = (random.integers(-64, 65, (10000, 5)) / 64).astype(np.float32)
    # Powers of two, so that sums in any order are exact.
    first = 2.0 ** random.integers(-6, 0, (2, 3))
    weights = Split(first, first * rest)
    rows = Rows(np.array([1, 0], np.uint8), np.array([low, low]), np.array([high, high]))
    found = over(keys_of(words, value, 3), weights, rows, [slice(0, 2)])
    for place, word in enumerate((1, 0)):
        by_key = first[word][words[low:high]]
        units = value[low:high].astype(np.float64) * 64
        assert found.first[place].tolist() == (by_key @ units).tolist()
        if rest:
            assert found.rest[place].tolist() == (by_key * rest @ units).tolist()
        sizes = by_key @ np.concatenate([np.abs(units), units**2], axis=1)
        most = 1 / 32 if high - low >= 64 * 128 else 0
        assert (found.sizes[place] >= sizes * (1 - 1e-6)).all()
        assert (found.sizes[place] <= sizes * (1 + most + 1e-6)).all()


#: The files with large problems, and `layouts`, which has some.
_GROUPS = (
    "option of every size", "integers of every size", "bias of another dtype and every size",
    "empty rows of every size", "large masks in pairs", "tile without an allowed key",
    "tiles at one end without an allowed key", "rows of a tile differ", "end at the edge of a tile",
    "ends at the edges of tiles", "maximum over tiles", "largest number among the values",
    "index past 16 bits", "strides of every size", "strides of options", "option over four tiles",
    "large options of scores in pairs", "whole tiles of queries", "option past every count",
    "integers of many entries", "groups of any size",
)  # fmt: skip
#: The scores of a tile are far above those of another one, so that only some keys count.
_STEEP = "steep scores over tiles"


def of_groups(*names):
    """The cases of some groups in float32."""
    return [
        item
        for group in groups()
        if group.name.partition(":")[0] in names
        for item in group.items()
        if not isinstance(item, Relation) and item.dtype == "float32"
    ]


CASES = of_groups(*_GROUPS)
_BY_GROUP = [[case for case in CASES if case.group.partition(":")[0] == name] for name in _GROUPS]
SAMPLE = [case for cases in _BY_GROUP for case in Random(5).sample(cases, min(len(cases), 5))]
_OF_OPTIONS = ("large masks", "large options", "option of", "option over", "tile without")
MASKED = [case for case in CASES if case.group.startswith(_OF_OPTIONS)]


def losses(case):
    """Return by how many budgets the row changes that loses a key, for each allowed pair, and the pairs."""
    given = in_dtype(case.arguments, "float64")
    kept = np.asarray(given.pop("dropout_mask", True)) / (1 - given.pop("dropout_rate", 0.0))
    _, weights = attention(**given, return_weights=True)
    mask = {name: x for name, x in given.items() if name in MASKING}
    allowed = np.broadcast_to(allowed_keys(weights.shape, **mask), weights.shape)
    value = repeat_heads(given["value"], weights.shape)
    output = (kept * weights) @ value
    budgets = budget("attention", case.arguments, case.dtype)["output"]
    # A row that loses its only key is 0.
    rest = np.where(weights < 1, 1 - weights, np.inf)
    found = np.zeros(weights.shape)
    for column in range(value.shape[-1]):
        whole = output[..., column, None]
        less = (whole - kept * weights * value[..., None, :, column]) / rest
        found = np.maximum(found, np.abs(less - whole) / (budgets[..., column, None] + 1e-300))
    return found, allowed


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_key_that_is_lost_shows(case):
    """Each allowed key of each row, those at the edges of tiles and the last one among them."""
    found, allowed = losses(case)
    assert (found[allowed] > 1).all()


@pytest.mark.parametrize("case", of_groups(_STEEP), ids=lambda case: case.name)
def test_a_key_that_is_lost_shows_where_scores_are_steep(case):
    """Each key of the tile with the largest scores."""
    found, allowed = losses(case)
    tiles = np.arange(allowed.shape[-1]) // 64
    if ": far" in case.group:  # all scores are alike
        assert (found[allowed] > 1).all()
        return
    highest = tiles == tiles[-1 if ": rises" in case.group else 0]
    assert allowed[..., highest].all()
    assert (found[..., highest] > 1).all()
    assert (found[..., ~highest] < 1).any()


def test_there_is_a_case_of_each_group():
    assert all(_BY_GROUP)
    assert of_groups(_STEEP)
    # With large scores a few keys take all of a row, and the loss of another one does not show.
    case = next(case for case in CASES if case.group == "option of every size: nothing")
    found, allowed = losses(replace(case, arguments=case.arguments | {"scale": 40.0}))
    assert (found[allowed] < 1).mean() > 0.3


@pytest.mark.parametrize("case", Random(6).sample(MASKED, 70), ids=lambda case: case.name)
def test_each_option_matters(case):
    """Alone and in pairs: the result without it is another one."""
    whole = attention(**in_dtype(case.arguments, "float64"))
    own = budget("attention", case.arguments, case.dtype)["output"]
    for name in set(case.arguments) - set(OPERATIONS["attention"].arrays):
        without = OPERATIONS["attention"].together(name)
        less = {key: x for key, x in case.arguments.items() if key not in without}
        allowed = own + budget("attention", less, case.dtype)["output"]
        assert (np.abs(attention(**in_dtype(less, "float64")) - whole) > 2 * allowed).any(), name
