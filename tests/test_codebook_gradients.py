"""The gradients by words agree with the exact oracle, and detect errors at any length."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from attnspec.conformance.sizes.chosen import gradients_in_float64, head_call
from attnspec.conformance.sizes.codebook.gradients import gradients
from attnspec.conformance.sizes.codebook.words import intervals, intervals_of_keys
from attnspec.formula import Formula
from attnspec.reference.budget.budget import budget

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"d_lse": True},
    {"is_causal": True},
    {"is_causal": True, "query_offset": 100, "d_lse": True},
    {"is_causal": True, "window": (5, None)},
    {"window": (3, 2), "query_offset": (4, -3)},
    {"window": (None, 2), "query_offset": 125},
    {"window": (150, 140)},
    {"key_lengths": (5, 120), "is_causal": True, "query_offset": (100, 90)},
    {"query_lengths": (0, 7), "d_lse": True},
    {"segments": 7},
    {"segments": 7, "is_causal": True, "query_offset": 121},
    {"sinks": True},
    {"sinks": True, "window": (2, 0), "d_lse": True},
    {"softcap": 2.0},
    {"softcap": 1.0, "sinks": True, "d_lse": True, "is_causal": True},
    {"scale": -0.3},
    {"scale": 0.0},
)
#: L, S, D and Dv. The keys or the queries fill more than one tile, or both do and intervals have whole tiles.
SHAPES = ((9, 130, 6, 5), (150, 9, 6, 5), (140, 400, 16, 12), (400, 130, 12, 16))


def problem(options: dict[str, Any], shape: tuple[int, int, int, int], **sizes: Any) -> Formula:
    """Make a problem of two batch entries and shared heads. Lengths are cut to those of the shape."""
    lengths = {"key_lengths": shape[1], "query_lengths": shape[0]}
    given = {
        name: tuple(min(one, lengths[name]) for one in thing) if name in lengths else thing
        for name, thing in options.items()
    }
    few: dict[str, Any] = {"batch": (2,), "heads": 2, "key_heads": 1, "words": 4, "seed": 3}
    if shape in SHAPES[:2]:
        few |= {"heads": 4, "key_heads": 2}
    few |= sizes
    return Formula(*shape, options=given, **few)


def named(value: Any) -> str:
    """The id of a parameter."""
    return "-".join(value) or "plain" if isinstance(value, dict) else "x".join(map(str, value))


@pytest.mark.parametrize("options", OPTIONS, ids=named)
@pytest.mark.sample(8)
def test_each_gradient_is_that_of_the_exact_oracle(options: dict[str, Any]) -> None:
    """They differ by a few units in the last place of the largest term."""
    evaluate = pytest.importorskip("attnspec.reference.exact.evaluate").evaluate
    for shape in SHAPES[:2]:
        found = problem(options, shape, batch=(2,), heads=2, key_heads=1)
        want = evaluate("attention_vjp", found.arguments_of_gradients("float64"))
        judged = set()
        for part in gradients(found, "float64"):
            values = want[part.name].values[part.head]
            assert part.values.shape == values.shape
            scale = np.abs(want[part.name].values).max(initial=0)
            assert np.abs(part.values - values).max(initial=0) <= 2.0**-48 * scale
            judged.add(part.name)
        assert judged == set(want)


@pytest.mark.parametrize("shape", SHAPES, ids=named)
@pytest.mark.parametrize("options", OPTIONS, ids=named)
@pytest.mark.sample(7)
def test_each_budget_is_at_least_that_of_the_rule(
    options: dict[str, Any], shape: tuple[int, int, int, int]
) -> None:
    """A budget is never below that of GRAD-19, and at most twice as large; four times in float64."""
    some = ("float32", "bfloat16", "float16", "float64") if shape in SHAPES[:2] else ("float32", "float64")
    for dtype in some:
        accuracy = "cast" if dtype in ("float16", "bfloat16") else "full"
        arguments = problem(options, shape).arguments_of_gradients(dtype)
        want = budget("attention_vjp", arguments, dtype, accuracy=accuracy)
        for part in gradients(problem(options, shape), dtype, accuracy=accuracy):
            least = want[part.name][part.head]
            assert (part.budget >= least * (1 - 2**-12)).all(), (dtype, part.name)
            most = 4.0 if dtype == "float64" else 2.0
            assert (part.budget <= most * least).all(), (dtype, part.name)


@pytest.mark.parametrize("shape", SHAPES, ids=named)
@pytest.mark.parametrize("options", OPTIONS, ids=named)
@pytest.mark.sample(8)
def test_intervals_of_keys_are_those_of_rows(
    options: dict[str, Any], shape: tuple[int, int, int, int]
) -> None:
    """The queries of each key are those whose interval has it."""
    found = problem(options, shape)
    for entry in range(2):
        pairs = []
        for bounds, count in ((intervals, found.keys), (intervals_of_keys, found.queries)):
            low, high = bounds(found.options, found.queries, found.keys, entry)
            place = np.arange(count)
            assert ((low >= 0) & (low <= high) & (high <= count)).all()
            pairs.append((place >= low[:, None]) & (place < high[:, None]))
        assert (pairs[0] == pairs[1].T).all()


def test_options_that_differ_from_pair_to_pair_are_refused() -> None:
    """No sum over words allows a mask."""
    with pytest.raises(ValueError, match="no mask, which"):
        next(gradients(problem({"mask": ("S",)}, SHAPES[0]), "float32"))


class Long:
    """The gradients of a long problem with one head, and the parts of single pairs in them."""

    def __init__(self, formula: Formula, dtype: str) -> None:
        self.dtype = dtype
        self.parts = {part.name: part for part in gradients(formula, dtype)}
        given = formula.arguments("float64")
        self.query, self.key, self.value = (given[name][0, 0] for name in ("query", "key", "value"))
        self.g = formula.d_output[0, 0].astype(np.float64)
        self.low, self.high = intervals(formula.options, formula.queries, formula.keys, 0)
        self.of_keys = intervals_of_keys(formula.options, formula.queries, formula.keys, 0)

    @cache  # noqa: B019 - as long as the tests of a problem
    def row(self, i: int) -> tuple[Any, Any, float]:
        """The allowed keys of a row, their weights, and delta."""
        keys = np.arange(self.low[i], self.high[i])
        s = self.key[keys] @ self.query[i] / np.sqrt(self.query.shape[-1])
        p = np.exp(s - s.max())
        p /= p.sum()
        return keys, p, float((p @ self.value[keys]) @ self.g[i])

    def of_pair(self, i: int, j: int) -> dict[str, Any]:
        """What a pair adds to the gradients of its query, its key and its value."""
        keys, p, delta = self.row(i)
        p = p[j - keys[0]]
        t = p * (self.g[i] @ self.value[j] - delta)
        t = t / np.sqrt(self.query.shape[-1])
        return {"d_query": t * self.key[j], "d_key": t * self.query[i], "d_value": p * self.g[i]}

    def told(self, name: str, place: int, moved: Any) -> bool:
        """Whether an error of a row of a gradient is more than its budget."""
        return bool((np.abs(moved) > self.parts[name].budget[place]).any())


#: A weight below this share of the mean weight is not told in float32.
_SMALL = 0.05


def pairs_of(long: Long, count: int = 80) -> list[tuple[int, int]]:
    """Pairs at the edges of tiles, at the ends of intervals, and elsewhere."""
    random = np.random.default_rng(5)
    last = len(long.key) - 1
    keys = [0, 1, 127, 128, 129, last, last - 1, last // 128 * 128, *random.integers(last, size=count)]
    found = []
    for j in map(int, keys):
        low, high = (int(bound[j]) for bound in long.of_keys)
        edge = low // 128 * 128 + 128
        places = {low, high - 1, min(edge, high - 1), int(random.integers(low, high))}
        found += [(i, j) for i in places if long.high[i] - long.low[i] > 1]
    return found


CASES = (
    ({"is_causal": True}, "float64"),
    ({"segments": 300}, "float32"),
    pytest.param(({}, "float64"), marks=pytest.mark.exhaustive),
    pytest.param(({"is_causal": True, "window": (255, None)}, "float32"), marks=pytest.mark.exhaustive),
)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{named(case[0])}-{case[1]}")
def long(request: pytest.FixtureRequest) -> Long:
    """A problem of 16384 rows."""
    options, dtype = request.param
    return Long(Formula(16384, 16384, 64, 64, words=8, options=options), dtype)


def test_a_pair_that_a_long_problem_loses_is_told(long: Long) -> None:
    """A pair counted twice differs by as much. Float32 does not tell pairs of small weights."""
    told: dict[str, list[bool]] = {"d_query": [], "d_key": [], "d_value": []}
    for i, j in pairs_of(long):
        keys, p, _ = long.row(i)
        if long.dtype == "float32" and p[j - keys[0]] * len(keys) < _SMALL:
            continue
        moved = long.of_pair(i, j)
        for name, place in (("d_query", i), ("d_key", j), ("d_value", j)):
            told[name].append(long.told(name, place, moved[name]))
    assert min(map(len, told.values())) > 50
    found = {name: float(np.mean(one)) for name, one in told.items()}
    if long.dtype == "float64":
        assert set(found.values()) == {1.0}
    assert found["d_value"] >= 0.98, found
    assert min(found["d_key"], found["d_query"]) >= 0.85, found


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.sample(1)
def test_a_lost_head_of_a_group_is_told(dtype: str) -> None:
    """The gradients of a key head without one of its query heads, or with one twice, are wrong."""
    formula = Formula(
        600, 600, 64, 64, heads=10, key_heads=1, options={"is_causal": True, "window": (7, None)}
    )
    accuracy = "full" if dtype == "float32" else "cast"
    given = {part.name: part for part in gradients(formula, dtype, accuracy=accuracy)}
    last = head_call(formula.arguments_of_gradients("float64"), (0, 0))
    last |= {name: last[name][9:] for name in ("query", "d_output")}
    of_last = gradients_in_float64(last)
    for name in ("d_key", "d_value"):
        told = (np.abs(of_last[name]) > given[name].budget).any(axis=-1)
        assert told[:590].mean() > (0.75 if dtype == "bfloat16" else 0.98), name


def test_values_of_a_key_without_cotangents_are_exactly_zero() -> None:
    """Nothing of the other queries is left in a key with few queries, wherever it is."""
    formula = Formula(4096, 4096, 16, 1, seed=284, options={"window": (0, 0)})
    parts = {part.name: part for part in gradients(formula, "float32")}
    g = formula.d_output[0, 0, :, 0]
    none = np.flatnonzero(g == 0)
    assert len(none)
    for name in ("d_value", "d_key"):
        assert (parts[name].values[none] == 0).all()
        assert (parts[name].budget[none] == 0).all()
