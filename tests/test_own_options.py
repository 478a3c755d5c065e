"""Parameters of a function of its own: reported with a suggestion, or options taken in another way."""

import functools
import inspect
from dataclasses import replace

import numpy as np
import pytest
from conventions import of_both_sides, of_keys, of_keys_and_one, of_left, of_window_that_closes, with_padding
from descriptions import BY_KEYS, BY_LEFT, QKV
from tests_support import command

from attnspec import OPERATIONS
from attnspec.backends import Backend, BackendError, Unsupported, describe, load, load_library
from attnspec.backends.check import check_backend
from attnspec.backends.user.convention import Convention
from attnspec.backends.user.masks import with_own_mask
from attnspec.backends.user.signature import (
    explain_unknown_parameters,
    note_unknown_parameters,
    unknown_parameters,
)
from attnspec.backends.user.slopes import distances_of, linear_bias, slopes_of
from attnspec.conformance import check
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find
from attnspec.operations.aliases import ALIASES, meant
from attnspec.reference import alibi_bias, attention, latent_attention

NAMES = {"query": "q", "key": "k", "value": "v", "is_causal": "causal"}


def kernel(wrong=""):
    """Make a kernel that counts distances from the last query and the last key, or a wrong one."""

    def attend(q, k, v, *, causal=False, alibi_slopes=None):
        queries, keys = q.shape[-2], k.shape[-2]
        first = keys - queries
        options = {"is_causal": causal, "query_offset": first}
        if alibi_slopes is not None:
            slopes = np.float64(alibi_slopes)[:, None, None]
            dtype = q.dtype if wrong == "rounded" else np.int64
            distances = (np.arange(queries)[:, None] + first).astype(dtype) - np.arange(keys).astype(dtype)
            distances = {
                "signed": distances,
                "from the beginning": np.abs(distances - first),
                "in a tile": np.abs(distances) % 64,
            }.get(wrong, np.abs(distances))
            shared = k.shape[-3]
            slopes = {
                "reversed": slopes[::-1],
                "of key heads": np.repeat(slopes[:shared], len(slopes) // shared, 0),
                "twice": 2 * slopes,
            }.get(wrong, slopes)
            options["bias"] = -slopes * distances
        return attention(q, k, v, **options, dtype=q.dtype)

    return describe(attend, names=NAMES, slopes="alibi_slopes", dialect={"MASK-3": "bottom-right"})


@pytest.mark.parametrize(
    "wrong", ["", "signed", "from the beginning", "in a tile", "reversed", "of key heads", "twice"]
)
def test_slopes_of_a_kernel_are_judged(wrong):
    report = check(kernel(wrong), rules=["SCORE-4"])
    assert report.good == (not wrong), report.text
    judged = [verdict for verdict in report.report.results.verdicts if verdict.status in ("pass", "fail")]
    assert len(judged) > 10
    assert wrong or {verdict.status for verdict in judged} == {"pass"}


@pytest.mark.parametrize(("wrong", "status"), [("", "deviation"), ("rounded", "fail")])
def test_positions_that_are_held_in_half_precision_are_found(wrong, status):
    relation = find("scores-distances-that-half-precision-rounds-attention-1-bfloat16")
    backend = replace(kernel(wrong), dtypes=("bfloat16", "float32"))
    assert judge(backend, relation).status == status
    assert judge(load("numpy-portable"), relation).reason.endswith("takes no slopes in place of a bias")


def test_slopes_are_those_of_the_bias_of_alibi():
    query, key = np.ones((2, 6, 3, 4)), np.ones((2, 6, 5, 4))
    positions = np.tile([4, 0, 9, 9, 1], (2, 1))
    for given in ({}, {"query_offset": np.array([2, 9])}, {"key_positions": positions}):
        bias = alibi_bias(query, key, slopes=2.0 ** -np.arange(6), **given)
        call = {"query": query, "key": key, "bias": bias, **given}
        assert slopes_of(call).tolist() == [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]
    assert slopes_of(call | {"bias": 0 * bias}).tolist() == [0] * 6


@pytest.mark.parametrize(
    ("bias", "why"),
    [
        (np.ones((3, 5)), "none of ALiBi"),
        (np.full((3, 5), -np.inf), "none of ALiBi"),
        (np.zeros((3, 5), int), "a bias of int64"),
        (np.zeros((4, 5)), "a bias of the shape"),
    ],
)
def test_another_bias_is_no_case_for_slopes(bias, why):
    with pytest.raises(Unsupported, match=why):
        slopes_of({"query": np.ones((2, 3, 4)), "key": np.ones((2, 5, 4)), "bias": bias})


def test_distances_are_those_of_places_in_a_sequence():
    packed = {
        "query": np.ones((1, 4, 2)),
        "key": np.ones((1, 5, 2)),
        "query_starts": np.array([0, 1, 3]),
        "key_starts": np.array([0, 3, 5]),
    }
    no = np.nan
    beginning = [[0, 1, 2, no, no], [no, no, no, 0, 1], [no, no, no, 1, 0], [no] * 5]
    np.testing.assert_array_equal(distances_of(packed), beginning)
    np.testing.assert_array_equal(distances_of(packed, from_end=True)[0], [2, 1, 0, no, no])
    paged = {"query": np.ones((2, 1, 1, 2)), "block_table": np.zeros((2, 2), int)}
    paged |= {"key_pages": np.ones((3, 1, 2, 2)), "key_lengths": np.array([4, 2])}
    np.testing.assert_array_equal(distances_of(paged), [[[3, 2, 1, 0]], [[1, 0, 1, 2]]])
    rows = packed | {name: paged[name] for name in ("block_table", "key_pages", "key_lengths")}
    del rows["key_starts"]
    np.testing.assert_array_equal(distances_of(rows)[:3], [[3, 2, 1, 0], [0, 1, 2, 3], [1, 0, 1, 2]])
    assert slopes_of(rows | {"bias": linear_bias(rows)}).tolist() == [0.25]
    at = rows | {"key_positions": np.array([[0, 1, 2, 3], [9, 8, 7, 6]])}  # of the keys of each sequence
    np.testing.assert_array_equal(distances_of(at)[:3], [[3, 2, 1, 0], [9, 8, 7, 6], [8, 7, 6, 5]])
    causal = at | {"is_causal": True, "bias": linear_bias(at)}
    written = with_own_mask(causal, Convention(causal_in_mask=True), {}, np)
    np.testing.assert_array_equal(np.isinf(written["bias"][0, :3]), [[False] * 4, [True] * 4, [True] * 4])


@pytest.mark.parametrize(("first", "rule"), [(0, ""), ("keys - queries", 'MASK-3 = "bottom-right"')])
def test_init_finds_from_where_distances_are_counted(first, rule, here):
    (here / "own.py").write_text(
        "import numpy as np\n\nfrom attnspec.reference import attention\n\n\n"
        "def attend(q, k, v, alibi_slopes=None):\n"
        "    queries, keys = q.shape[-2], k.shape[-2]\n"
        "    slopes = np.zeros(1) if alibi_slopes is None else alibi_slopes\n"
        f"    distances = np.arange(queries)[:, None] + {first} - np.arange(keys)\n"
        "    bias = -slopes[:, None, None] * np.abs(distances)\n"
        "    return attention(q, k, v, bias=bias, dtype=q.dtype)\n"
    )
    text = command("init", "./own.py:attend", status=0).output
    assert 'slopes = "alibi_slopes"' in text
    assert rule in text
    assert bool(rule) == ("[backend.dialect]" in text)


def test_slopes_beside_a_bias_are_refused():
    def attend(q, k, v, bias=None, alibi_slopes=None):
        """Attend."""

    with pytest.raises(BackendError, match="slopes: expected no name of a bias beside it, got bias"):
        describe(attend, names={**NAMES, "bias": "bias"}, slopes="alibi_slopes")


def test_a_parameter_of_slopes_has_a_hint():
    def attend(query, key, value, alibi_slopes=None):
        """Attend."""

    assert 'write slopes = "alibi_slopes" in attnspec.toml' in check(attend, rules=["SCORE-4"]).text


@pytest.mark.parametrize(
    ("function", "keys", "passes"),
    [(of_keys, BY_KEYS, True), (of_left, BY_LEFT, True), (of_keys_and_one, BY_KEYS, False)],
)
def test_a_window_of_one_number_is_judged(function, keys, passes):
    backend = describe(function, dtypes=["float32"], **keys)
    verdicts = check(backend, rules=["MASK-8"]).report.results.verdicts
    assert ("MASK-8" not in {verdict.rule for verdict in verdicts if verdict.bad}) == passes
    assert sum(verdict.status in ("pass", "deviation", "fail") for verdict in verdicts) >= 5


@pytest.mark.parametrize(
    ("function", "kind", "window", "message"),
    [
        (of_keys, "keys", (1, 1), "closes the right side of a window by causality alone"),
        (of_keys, "keys", (1.5, 0), "takes a window as one integer, got 1.5"),
        (of_both_sides, "both", (1, 2), "takes a window of as many keys on both sides"),
        (of_window_that_closes, "keys", (1, None), "ends at the position of the query"),
        (of_window_that_closes, "keys", (None, 0), "takes a window as one integer, got None"),
        (of_both_sides, "both", (0, 0), "opens a side of a window by 0"),
    ],
)
def test_a_window_that_one_number_cannot_express_is_unsupported(function, kind, window, message):
    own = next(own for own in inspect.signature(function).parameters if "window" in own)
    names = QKV | {"window": own} | ({"is_causal": "causal"} if function is of_keys else {})
    backend = describe(function, names=names, window=kind, open_side=0)
    with pytest.raises(Unsupported, match=message):
        backend.attention(*np.ones((3, 1, 1, 3, 2)), window=window)
    with pytest.raises(BackendError, match="window: expected sides or left or keys or both, got 'wide'"):
        describe(function, names=names, window="wide")


def test_a_mask_of_keys_has_the_lengths_too():
    keys = {"names": QKV | {"mask": "key_padding_mask"}, "mask": "ignore", "mask_of_keys": True, "axes": 4}
    backend = describe(with_padding, dtypes=["float32"], **keys)
    report = check(backend, rules=["MASK-1", "MASK-9"], quick=True).report
    judged = [verdict for verdict in report.results.verdicts if verdict.status != "unsupported"]
    assert not any(verdict.bad and "refused" not in verdict.traits for verdict in judged)
    assert {"mask", "key_lengths"} <= {trait for verdict in judged for trait in verdict.traits}

    def of_the_first_entry(q, k, v, key_padding_mask=None):
        if key_padding_mask is not None:
            key_padding_mask = np.repeat(key_padding_mask[:1], len(q), 0)
        return with_padding(q, k, v, key_padding_mask)

    wrong = check(describe(of_the_first_entry, dtypes=["float32"], **keys), rules=["MASK-9"], quick=True)
    assert not wrong.good
    assert "`key_lengths` (`key_padding_mask`) that differ" in str(wrong)
    arrays = np.ones((3, 1, 2, 3, 2), np.float32)
    arrays[2] = np.arange(3)[:, None]
    random = np.array([[True, False, True], [True, True, True], [True, True, True]])
    for options, message in (
        ({"mask": random}, "got one that differs between queries or heads"),
        ({"mask": np.ones(3, int)}, "got one of int64"),
        ({"mask": np.ones((5, 3), bool)[None, None, :1].repeat(4, 0)}, r"got the shape \(4, 1, 1, 3\)"),
        ({"key_lengths": 4}, "got none from 0 to the number of keys"),
    ):
        with pytest.raises(Unsupported, match=message):
            backend.attention(*arrays, **options)
    np.testing.assert_array_equal(backend.attention(*arrays, key_lengths=1), 0 * arrays[2])


def test_an_offset_of_0_is_no_offset_to_a_function_aligned_at_the_end():
    def of_steps(q, k, v, *, causal=False, query_offset=None, lens=None):
        at = k.shape[-2] - q.shape[-2] if query_offset is None else query_offset
        return attention(q, k, v, is_causal=causal, query_offset=at, key_lengths=lens, dtype=q.dtype)

    names = QKV | {"is_causal": "causal", "key_lengths": "lens"}
    backend = describe(of_steps, names=names, dialect={"MASK-3": "bottom-right"}, per_entry=True)
    report = check(backend, cases=["caching-steps-with-a-cache-key-lengths-21"])
    assert report.good, report.text


def test_a_required_past_is_empty_where_a_call_has_none():
    lengths = []

    def cached(query, key, value, past_key, past_value):
        lengths.append((past_key.shape[-2], key.shape[-2]))
        joined = (np.concatenate(pair, -2) for pair in ((past_key, key), (past_value, value)))
        return attention(query, *joined)

    backend = describe(cached, past=["past_key", "past_value"])
    query, key = np.ones((3, 4)), np.ones((5, 4))
    for options in ({}, {"query_offset": 2}):
        assert backend.attention(query, key, key, **options).shape == (3, 4)
    assert lengths == [(0, 5), (2, 3)]


def test_shapes_of_weights_are_permutations_of_their_letters():
    said = {"operation": "latent_attention", "shapes": {"key_weight": "Dc, Hq*Dv"}}
    with pytest.raises(
        BackendError, match=r"shapes: expected the letters Hq, Dc, D in some order .*Dc, Hq\*Dv"
    ):
        describe(latent_attention, **said)


MODULE = """
import numpy as np

from attnspec.backends import Backend, load_library


def kernel(query, key, value, causal=None, attn_mask=None, softmax_scale=None):
    return query * 0


def typo(query, key, value, is_casual=False):
    return query


def anything(query, key, value, **options):
    return query


def fine(query, key, value, *, scale=None, _workspace=None):
    return query


def rope(features, theta=10000.0):
    return features


by_hand = Backend("mine", load_library("numpy"), kernel, companions={"rotary": rope})
told = Backend("mine", load_library("numpy"), kernel, ignore=("causal", "attn_mask", "softmax_scale"))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of somebody's with a module that no other test has imported."""
    (tmp_path / "with_names.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "with_names", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kernel", ("causal", "attn_mask", "softmax_scale")),
        ("typo", ("is_casual",)),
        ("anything", ("**options",)),
        ("fine", ()),
        ("by_hand", ("causal", "attn_mask", "softmax_scale", "rotary: theta")),
        ("told", ()),
    ],
)
def test_what_is_not_understood(folder, name, expected):
    assert load(f"with_names:{name}").not_understood == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kernel", "not understood: causal (is_causal?), attn_mask (mask or bias?), softmax_scale (scale?);"),
        ("typo", "not understood: is_casual (is_causal?);"),
        ("anything", "**options (the signature does not show what it takes: list it in names);"),
        ("by_hand", "softmax_scale (scale?), rotary: theta;"),
    ],
)
def test_what_is_said_of_it(folder, name, said):
    text = explain_unknown_parameters(load(f"with_names:{name}"))
    assert said in text
    assert "no case tests this" in text
    assert 'ignore = ["' in text
    assert explain_unknown_parameters(load("with_names:fine")) == ""


def test_a_companion_is_not_advised_to_use_names_which_are_of_attention():
    def rotary(features, theta=10000.0):
        return features

    alone = Backend("mine", load_library("numpy"), companions={"rotary": rotary})
    said = explain_unknown_parameters(note_unknown_parameters(alone))
    assert "names" not in said
    assert said.endswith('Give each its canonical name, or ignore it: ignore = ["theta"]')


def test_a_configuration_maps_and_ignores(folder):
    names = '[backend]\nfunction = "with_names:kernel"\n{}\n[backend.names]\nis_causal = "causal"\n'
    (folder / "attnspec.toml").write_text(names.format(""))
    assert load(str(folder)).not_understood == ("attn_mask", "softmax_scale")
    (folder / "attnspec.toml").write_text(names.format('ignore = ["attn_mask"]'))
    assert load(str(folder)).not_understood == ("softmax_scale",)
    text = '[backend]\nfunction = "with_names:anything"\nignore = ["**options"]\n'
    (folder / "attnspec.toml").write_text(text)
    assert load(str(folder)).not_understood == ()


def test_what_is_ignored_has_to_be_names():
    numpy = load("numpy-portable")
    broken = Backend("mine", load_library("numpy"), numpy.attention, ignore="causal")
    with pytest.raises(BackendError, match=r"ignore: expected names of parameters, .*, got 'causal'"):
        check_backend("mine", broken)

    def kernel(query, key, value, *, causal=False, dropout_p=0.0):
        return query

    assert unknown_parameters(functools.partial(kernel, causal=True)) == ("dropout_p",)
    backend = load("numpy-portable")
    assert backend.not_understood == ()

    def strange(query, key, value, *, enable_gqa=True):
        return query

    strange = replace(backend, attention=strange)
    said = explain_unknown_parameters(note_unknown_parameters(strange))
    assert "enable_gqa (the numbers of heads determine this);" in said
    over_codes = OPERATIONS["quantized_attention"].arguments
    assert set(ALIASES) <= {*OPERATIONS["attention"].arguments, *over_codes}
    assert not {theirs for names in ALIASES.values() for theirs in names} & set(ALIASES)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("sm_scale", ("scale",)),
        ("logits_soft_cap", ("softcap",)),
        ("sliding_window", ("window",)),
        ("one_sided_window", ("window",)),
        ("Attn_Bias", ("bias",)),
        ("segment_ids", ("query_segment_ids", "key_segment_ids")),
        ("quer", ("query",)),
        ("lower_triangular", ("is_causal",)),
        ("BLOCK_M", ()),
        ("teapot", ()),
        ("dropout_p", ()),
    ],
)
def test_what_a_name_may_stand_for(name, ours):
    assert meant(name) == ours
