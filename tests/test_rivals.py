"""The page on acceptance rules agrees with its figures, and these with a part that is measured again."""

from pathlib import Path

import numpy as np
import pytest

from tools.rivals.closeness import close, exceeding_neither, normalised_error, similar
from tools.rivals.frameworks import JAX_NN, KERNELBENCH, OPINFO
from tools.rivals.kernels import FLASH_ATTENTION, GGML
from tools.rivals.measure import RIVALS, lets_through, own_cheats
from tools.rivals.page import OWN, letters_of, page, read, store
from tools.rivals.rival import Trial
from tools.rivals.subjects import cheats, right, subject, wrong

#: As they stand in the sources.
PAGE = Path(__file__).parent.parent / "conformance" / "acceptance.md"
README = Path(__file__).parent.parent / "README.md"
ONE = np.ones((1, 2), np.float32)
TRIAL = Trial({"query": ONE, "key": ONE, "value": ONE})
#: Ten entries: options that the samples have and that they lack, shapes, numbers, and a correct one.
PART = (
    "inverted_polarity",
    "no_shift",
    "key_heads_tiled",
    "causal_flag_without_effect",
    "bias_without_effect",
    "window_dropped_without_another_mask",
    "given_scale_without_effect",
    "empty_rows_are_nan",
    "scale_dropped_beside_a_mask",
    "everything_in_float64",
)


def test_the_pages_have_the_stored_figures(tmp_path):
    assert PAGE.read_text(encoding="utf-8") == page(read())
    figures = read()
    assert figures.rules == (*(rival.name for rival in RIVALS), OWN)
    for group, members in (("wrong", wrong()), ("cheats", cheats()), ("correct", right())):
        assert sorted(getattr(figures, group)) == sorted(one.name for one in members)
        assert {len(letters) for letters in getattr(figures, group).values()} == {len(figures.rules)}
    store(figures, tmp_path / "figures.json")
    assert read(tmp_path / "figures.json") == figures
    figures = read()
    text = " ".join(README.read_text(encoding="utf-8").split())
    numbers = [sum(x != "-" for x in figures.letters("wrong", rule).values()) for rule in figures.rules]
    sentence = f"let {min(numbers[:-1])} to {max(numbers[:-1])} of {len(figures.wrong)} wrong implementations"
    assert sentence in text
    assert f"The ordinary run of attnspec lets {numbers[-1]} through" in text


@pytest.mark.parametrize("rival", OPINFO, ids=lambda rival: rival.name)
def test_a_part_that_is_measured_again_has_the_stored_letters(rival):
    measured = letters_of([*map(subject, PART), *cheats()], [rival])[rival.name]
    figures = read()
    stored = {group: figures.letters(group, rival.name) for group in ("wrong", "cheats", "correct")}
    assert measured == {name: x for group in stored.values() for name, x in group.items() if name in measured}
    assert {"-", "="} <= set(measured.values())


def test_what_the_suite_lets_through_is_as_stored():
    figures = read()
    own = figures.letters("wrong", OWN)
    assert {name for name, letter in own.items() if letter != "-"} == lets_through(own)
    assert not own_cheats()
    assert set(figures.letters("cheats", OWN).values()) == {"-"}


@pytest.mark.parametrize(
    ("accepts", "good", "bad"),
    [
        (close(0.1, 0.0), ONE + np.float32(0.09), ONE + np.float32(0.11)),
        (close(0.0, 0.1), ONE * np.float32(1.09), ONE * np.float32(1.11)),
        (close(0.1, 0.1), ONE, ONE.astype(np.float64)),
        (close(0.1, 0.1, nan_equal=True), ONE, ONE * np.nan),
        (exceeding_neither(0.1, 0.2, 1.0), ONE * np.float32(1.19), ONE * np.float32(1.21)),
        (exceeding_neither(0.1, 0.1, 0.5), ONE * np.float32([[1, 9]]), ONE * 9),
        (normalised_error(0.01), ONE * np.float32(1.05), ONE * np.float32(1.2)),
        (similar(0.99), ONE * 7, ONE * np.float32([[1, 2]])),
        (similar(0.99), ONE, ONE * 0),
        (FLASH_ATTENTION[0].accepts, ONE, ONE + np.float32(1e-3)),
    ],
)
def test_a_rule_accepts_what_is_close_and_nothing_else(accepts, good, bad):
    assert accepts((good,), TRIAL)
    assert not accepts((bad,), TRIAL)
    assert not accepts((good[:, :1],), TRIAL)


def test_the_inputs_are_the_same_in_each_run_and_have_the_options_of_the_source():
    for rivals in (GGML, JAX_NN, KERNELBENCH):
        first, second = (rivals[0].draw() for _ in range(2))
        assert all((a.given["query"] == b.given["query"]).all() for a, b in zip(first, second, strict=True))
    assert any(not trial.given["key"].flags.c_contiguous for trial in GGML[0].draw())
    options = {name for trial in JAX_NN[0].draw() for name, given in trial.given.items() if given is not None}
    assert {"bias", "mask", "is_causal", "window", "query_lengths", "key_lengths", "return_lse"} <= options
