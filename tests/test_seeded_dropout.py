"""Dropout by a seed: the bound of chance, the reference, the relations and the adapter."""

import math
import re
from dataclasses import replace
from fractions import Fraction
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
from tests_support import whole_suite

import attnspec
from attnspec.backends import load
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.relations.chance import FALSE_ALARM, Count, describe_improbable, mask_of
from attnspec.reference import ArgumentError, attention, attention_vjp, seeded_dropout_attention
from attnspec.reference.dropout import seeded_dropout_attention_vjp

ITEMS = [item for item in whole_suite() if item.operation.startswith("seeded_dropout")]
RANDOM = np.random.default_rng(1)
QUERY, KEY, VALUE = (RANDOM.normal(size=shape) for shape in ((2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 3)))


def exact_tail(count, trials, p):
    """Return the probability of a count that is at least as large, or as small, whichever is asked for."""
    share = Fraction(p)
    side = range(count, trials + 1) if count > trials * share else range(count + 1)
    return float(sum(math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in side))


@pytest.mark.parametrize("p", [0.5, 0.125, 0.75])
@pytest.mark.parametrize("trials", [1, 7, 64, 200])
def test_the_bound_is_above_the_exact_tail_and_not_far_above(trials, p):
    for count in range(trials + 1):
        bound, exact = Count("", count, trials, p, p).chance, exact_tail(count, trials, p)
        assert exact <= bound * (1 + 1e-12)
        # Within a factor of the square root of the trials, so that a check loses little.
        assert bound <= 1 or bound <= 20 * math.sqrt(trials) * exact
    assert Count("", 0, trials, p, p).chance == pytest.approx((1 - p) ** trials)


def test_a_count_within_the_bounds_is_not_improbable():
    assert Count("", 50, 100, 0.4, 0.5).chance == 1
    assert Count("", 51, 100, 0.4, 0.5).chance < 1
    assert Count("", 39, 100, 0.4, 0.5).chance < 1
    assert Count("", 1, 10, 0.0, 0.0).chance == 0
    assert Count("", 0, 0, 0.5, 0.5).chance == 1
    # One count of n heads in n throws: 2**-n has to fall below the chance, halved for both sides.
    most = math.floor(math.log2(2 / FALSE_ALARM))
    assert describe_improbable([Count("heads", most, most, 0.5, 0.5)]) is None
    assert "heads" in describe_improbable([Count("heads", most + 1, most + 1, 0.5, 0.5)])
    # Of two counts, each has half of the chance.
    fair = Count("fair", 5, 10, 0.5, 0.5)
    assert describe_improbable([fair, Count("heads", most + 1, most + 1, 0.5, 0.5)]) is None
    assert "heads" in describe_improbable([fair, Count("heads", most + 2, most + 2, 0.5, 0.5)])
    with pytest.raises(ArgumentError, match="seed"):
        seeded_dropout_attention(QUERY, KEY, VALUE, dropout_p=0.5, seed=-1)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_the_reference_is_attention_with_the_drawn_mask(p):
    kept = np.random.default_rng(9).random((2, 4, 5, 6)) >= p
    rate = p if p < 1 else 0.0
    given = {"is_causal": True, "query_offset": 1}
    found = seeded_dropout_attention(QUERY, KEY, VALUE, dropout_p=p, seed=9, return_lse=True, **given)
    wanted = attention(QUERY, KEY, VALUE, dropout_mask=kept, dropout_rate=rate, return_lse=True, **given)
    for own, its in zip(found, wanted, strict=True):
        assert np.array_equal(own, its)
    d_output = np.ones_like(found[0])
    gradients = seeded_dropout_attention_vjp(QUERY, KEY, VALUE, d_output, dropout_p=p, seed=9, **given)
    its = attention_vjp(QUERY, KEY, VALUE, d_output, dropout_mask=kept, dropout_rate=rate, **given)
    for own, other in zip(gradients, its, strict=True):
        assert np.array_equal(own, other)


def test_the_chapter_states_the_number_of_checks_by_chance():
    by_chance = [item for item in ITEMS if item.rules[0] in ("DROP-7", "DROP-8", "DROP-9")]
    page = (Path(attnspec.__file__).parent / "dropout.md").read_text(encoding="utf-8")
    found = re.search(r"one of the (\w+) checks of a run\s+with at most \$`([\d.]+) \\cdot", page)
    assert found.groups() == ("nine", f"{len(by_chance) * FALSE_ALARM * 1e9:.2g}")
    assert {item.dtype for item in by_chance} == {"float32"}


def test_the_mask_of_a_call_is_found_in_slices():
    item = next(item for item in ITEMS if item.rules[0] == "DROP-9")
    case = item.calls[1]
    arguments = case.arguments
    shape = (*arguments["query"].shape[:-1], arguments["key"].shape[-2])
    assert arguments["value"].shape[-1] < shape[-1]
    drawn = np.random.default_rng(arguments["seed"]).random(shape) >= arguments["dropout_p"]
    assert np.array_equal(mask_of(load("numpy-portable"), case), drawn)
    whole = load("numpy-portable")

    def short(query, key, value, *, dropout_p, seed):
        function = whole.companions["seeded_dropout_attention"]
        return function(query, key, value, dropout_p=dropout_p, seed=seed)[..., 1:]

    backend = replace(whole, companions={"seeded_dropout_attention": short})
    related = next(item for item in ITEMS if item.rules[0] == "DROP-8")
    verdict = judge(backend, related)
    assert (verdict.status, verdict.rule) == ("fail", "SHAPE-3")


def test_the_adapter_leaves_the_generator_of_torch_as_it_was():
    torch = pytest.importorskip("torch")
    function = load("torch-math").companions["seeded_dropout_attention"]
    arrays = [torch.as_tensor(array, dtype=torch.float32) for array in (QUERY, KEY, VALUE)]
    before = torch.random.get_rng_state()
    first, again, other = (function(*arrays, dropout_p=0.5, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def drawn(seed, p, shape):
    return np.random.default_rng(seed).random(shape) >= p


def by_seeds(axis, factor):
    """Return a wrong mask that seeds each place on an axis with the seed and a multiple of its index."""

    def mask(seed, p, shape, _):
        parts = np.delete(shape, axis)
        return np.stack([drawn(seed + factor * place, p, parts) for place in range(shape[axis])], axis)

    return mask


def repeated(axis, period):
    return lambda seed, p, shape, _: drawn(seed, p, shape).take(np.arange(shape[axis]) % period, axis)


def moved_by(option):
    return lambda seed, p, shape, options: drawn(seed + (options.get(option) is not None), p, shape)


#: Wrong masks, and the check that shows each.
WRONG = {
    "the lower twenty bits": ("many-seeds-1", lambda seed, p, shape, _: drawn(seed % 2**20, p, shape)),
    "all bits but one": ("many-seeds-1", lambda seed, p, shape, _: drawn(seed & ~(1 << 27), p, shape)),
    "float32": ("many-seeds-1", lambda seed, p, shape, _: drawn(int(np.float32(seed)), p, shape)),
    "a thousand heads": ("many-seeds-1", by_seeds(-3, 1000)),
    "seed and row": ("many-seeds-1", by_seeds(-2, 1)),
    "seed and weight": (
        "other-seeds-1",
        lambda seed, p, shape, _: drawn(7, p, 10**6)[seed % 10**5 :][: np.prod(shape)].reshape(shape),
    ),
    "rows three apart": ("neighbours-1", repeated(-2, 3)),
    "heads seven apart": ("neighbours-2", repeated(-3, 7)),
    "entries five apart": ("neighbours-2", repeated(-4, 5)),
    "never rarely": (
        "share-of-dropped-weights-0-01-1",
        lambda seed, p, shape, _: drawn(seed, p if p > 1 / 64 else 0, shape),
    ),
    "at most nine in ten": (
        "share-of-dropped-weights-0-95-1",
        lambda seed, p, shape, _: drawn(seed, min(p, 0.9), shape),
    ),
    **{
        option: (f"same-mask-with-{option.replace('_', '-')}-1", moved_by(option))
        for option in ["scale", "softcap", "bias", "mask", "query_offset", "window", "key_lengths", "sinks"]
    },
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_mask_fails(name):
    check, mask = WRONG[name]

    @wraps(seeded_dropout_attention)
    def wrong(query, key, value, *, dropout_p, seed, **options):
        kept = mask(seed, dropout_p, (*query.shape[:-1], key.shape[-2]), options)
        return attention(query, key, value, dropout_mask=kept, dropout_rate=dropout_p, **options)

    backend = replace(load("numpy-portable"), companions={"seeded_dropout_attention": wrong})
    item = next(item for item in ITEMS if item.id == f"dropout-{check}")
    assert judge(backend, item).status == "fail"


def test_a_function_and_its_gradients_are_both_offered(tmp_path):
    operation = "seeded_dropout_attention"
    functions = (f"{x} = reference.function({x!r})" for x in (operation, f"{operation}_vjp"))
    lines = "from attnspec import reference", *functions
    (tmp_path / "dropping.py").write_text("\n".join(lines))
    companions = f'[backend.companions]\n{operation}_vjp = "dropping:{operation}_vjp"\n'
    described = f'[backend]\nfunction = "dropping:{operation}"\noperation = "{operation}"\n{companions}'
    (tmp_path / "attnspec.toml").write_text(described)
    assert {*load(str(tmp_path)).companions} == {operation, f"{operation}_vjp"}
