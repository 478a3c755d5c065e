"""The gallery: its entries, those of edges, their bases, the kill matrix, and that the judge agrees."""

import re
from collections import Counter
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
from tests_support import about, quick_suite, whole_suite

from attnspec import rules
from attnspec.conformance.gallery import KINDS, NEEDS, correct, correct_entries, edges, entry, wrong_entries
from attnspec.conformance.gallery.bases.online import TILED
from attnspec.conformance.gallery.bases.splitting import DECODING
from attnspec.conformance.gallery.edges import memory
from attnspec.conformance.gallery.edges.entries import CALLS, SHOWN, Sized, at, on
from attnspec.conformance.gallery.entry import entries_of, wrong
from attnspec.conformance.gallery.kills import FILE, Kill, broken_rule
from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import find
from attnspec.conformance.suite.edges import AT_EDGES
from attnspec.conformance.suite.options import OPTIONS
from attnspec.conformance.suite.problem import Shape
from attnspec.conformance.verdict import Verdict
from attnspec.reference.call import STEPS
from tools import kill_matrix
from tools.diagnosis import SAMPLE, Counts, Naming, count, report
from tools.gallery import Measurement, kills, page, read, store
from tools.kill_matrix import Finding, convict, problems


def test_entries_have_names_sentences_rules_classes_and_steps():
    every = [*wrong_entries(), *correct_entries()]
    assert max(Counter(one.name for one in every).values()) == 1
    assert max(Counter(one.sentence for one in every).values()) == 1
    assert all(one.sentence.endswith(".") for one in every)
    assert len(wrong_entries()) >= 80
    assert len(correct_entries()) >= 15
    assert {one.rule for one in wrong_entries()} == {rule.id for rule in rules()}
    assert {one.kind for one in wrong_entries()} == set(KINDS)
    assert all(len(one.steps) == 1 for one in wrong_entries())
    assert all(re.fullmatch(r"|[\w.-]+/[\w.-]+#\d+", one.seen) for one in wrong_entries())
    assert not any(one.rule or one.kind for one in correct_entries())
    assert not entry("one_key_at_a_time").backend().has("attention", "return_weights")
    assert entry("one_key_at_a_time").backend().has("attention", "return_lse")
    with pytest.raises(ValueError, match="step: expected one of"):
        wrong("no_such_step", "MASK-1", "R")(lambda call: call)
    from attnspec.conformance import gallery

    assert gallery.inverted_polarity.name == "attnspec.conformance.gallery:inverted_polarity"
    with pytest.raises(AttributeError):
        gallery.no_such_entry  # noqa: B018 - the access is what is tested


def test_what_was_measured_is_stored_of_every_entry(tmp_path):
    assert set(read().kills) == {one.name for one in wrong_entries()}, "run `python -m tools.gallery --write`"
    rows = re.findall(r"^\| `(\w+)` ", page(read()), re.MULTILINE)
    assert sorted(rows) == sorted(one.name for one in (*wrong_entries(), *correct_entries()))
    names = {item.name for item in whole_suite()}
    stored = {kill.case or kill.other for kill in read().kills.values()}
    assert {name for name in stored - names if name and not name.startswith("sizes-")} == set()
    store(read(), tmp_path / "kills.json")
    assert (tmp_path / "kills.json").read_text(encoding="utf-8") == FILE.read_text(encoding="utf-8")
    assert 300 < read().diagnosis.entries <= len(wrong_entries()[::SAMPLE])
    assert not read().diagnosis.wrongly


def test_an_entry_that_survives_is_kept_and_shown_as_one_and_a_correct_one_is_not_kept():
    survivor = Finding("no_shift", "SOFT-2", "", 9, 0.0, {}, 1.0)
    killed = Finding("inverted_polarity", "MASK-1", "a-case", 9, 0.0, {}, 1.0)
    correct = Finding("plain", "", "", 9, 0.0, {}, 1.0)
    found = kills([survivor, killed, correct], [survivor, killed])
    assert found == {"no_shift": Kill("", quick=False), "inverted_polarity": Kill("a-case", quick=True)}
    text = page(Measurement({**read().kills, **found}, read().diagnosis))
    assert re.search(r"^\| `no_shift` .* \|  \| no \|$", text, re.MULTILINE)
    assert re.search(r"^\| `inverted_polarity` .* \| a-case \| yes \|$", text, re.MULTILINE)


#: Entries are confirmed in parts.
PARTS = 24


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.sample(1)
def test_every_wrong_entry_breaks_its_rule_in_the_case_that_is_stored(part):
    stored = dict(list(read().kills.items())[part::PARTS])
    assert {entry(name).needs for name, kill in stored.items() if not kill.case} <= set(NEEDS)
    left = {name: kill.case for name, kill in stored.items() if kill.case}
    # A busy machine may run threads one after the other, so a race may need several tries.
    for _ in range(10):
        left = {name: left[name] for name in kill_matrix.unconfirmed_entries(left)} if left else {}
    assert left == {}


@pytest.mark.exhaustive
def test_entries_fail_elsewhere_and_correct_ones_pass():
    late = {name: kill for name, kill in read().kills.items() if not kill.case}
    assert all(kill.other for kill in late.values())
    assert list(kill_matrix.unconfirmed_kills(late)) == []
    # The whole of it takes minutes, and is the matrix.
    part = quick_suite()[::16]
    assert len({item.name.partition("-")[0] for item in part}) > 5
    findings = kill_matrix.acquit(correct_entries(), part)
    assert problems(findings.values()) == []
    assert all(one.tried for one in findings.values())


def test_what_is_not_confirmed_is_named():
    found = Kill("", quick=False, other="masking-boolean-mask-keys-3-float32", reported="MASK-1")
    named = {
        "inverted_polarity": found,
        "masks_counted": replace(found, reported="MASK-2"),
        "values_one_late": replace(found, other="no-such-case"),
    }
    assert list(kill_matrix.unconfirmed_kills(named)) == ["masks_counted", "values_one_late"]
    named = {"values_one_late": "masking-no-keys-float32", "empty_rows_are_nan": "no-such-case"}
    assert list(kill_matrix.unconfirmed_entries(named)) == ["values_one_late", "empty_rows_are_nan"]


def test_every_entry_takes_the_arguments_of_its_step():
    """An entry of other arguments would raise, and its calls would be unsupported."""
    for one in (*wrong_entries(), *correct_entries()):
        for step, function in one.steps.items():
            own = [each for each in signature(STEPS[step]).parameters.values() if each.default is each.empty]
            options = {each.name: each for each in own if each.kind is each.KEYWORD_ONLY}
            signature(function).bind(*own[: len(own) - len(options)], **options)


def test_what_needs_more_than_the_suite_may_survive_and_says_so():
    survivor = Finding("a", "MASK-1", "", 9, 0.0, {}, 1.0)
    needy = replace(survivor, needs="sizes")
    assert problems([needy]) == []
    assert needy.as_it_should
    assert problems([survivor]) == ["a survives: no case of 9 says that MASK-1 is broken"]
    assert NEEDS["sizes"] in kill_matrix.summary([needy])
    assert NEEDS["sizes"] not in kill_matrix.summary([survivor])
    (one,) = [one for one in wrong_entries() if one.needs == "sizes"][:1]
    everything = {each.name: Kill("", quick=False) for each in wrong_entries()}
    text = page(Measurement(everything, read().diagnosis))
    assert re.search(rf"^\| `{one.name}` .* \| needs sizes \| no \|$", text, re.MULTILINE)


def test_a_correct_entry_that_is_none_is_noticed():
    part = [find("softmax-002-float32"), find("masking-empty-last-float32")]
    (found,) = kill_matrix.acquit([entry("values_one_late")], part).values()
    assert found.broken
    assert problems([found])[0].startswith("values_one_late is correct, but fails: ")


def test_the_matrix_says_what_the_judge_says_in_processes_of_its_own():
    name = "window_implies_causal"
    found = convict(entry(name), sorted(about("MASK-8"), key=lambda item: item.name))
    assert found.as_it_should
    verdict = judge(entry(name).backend(), find(found.killed_by))
    assert (verdict.status, verdict.rule) == ("fail", "MASK-8")
    (found,) = kill_matrix.matrix(["inverted_polarity"], (), quick=True, workers=1)
    assert found.as_it_should
    assert found.first_failure > 0
    case = find("masking-boolean-mask-keys-3-float32")
    assert list(kill_matrix.kills_by(["inverted_polarity", "no_shift"], [case])) == [
        ("inverted_polarity", case.name, "MASK-1")
    ]


@pytest.mark.parametrize(
    ("status", "rule", "breaks"),
    [
        ("fail", "MASK-1", True),
        ("error", "MASK-1", True),
        ("should not met", "NUM-9", True),
        ("unsupported", "NUM-10", True),  # a MAY that is not shown
        ("unsupported", "", False),
        ("deviation", "MASK-6", False),
        ("pass", "", False),
    ],
)
def test_a_rule_of_any_level_counts_as_broken(status, rule, breaks):
    assert bool(broken_rule(Verdict("b", "c", "", ("X-1",), status, rule=rule))) == breaks


def test_what_survives_or_has_the_wrong_rule_is_listed():
    found = convict(entry("inverted_polarity"), ())
    assert problems([found]) == ["inverted_polarity survives: no case of 0 says that MASK-1 is broken"]
    assert "MASK-1 is broken by no entry" in kill_matrix.unbroken_rules([found])
    assert kill_matrix.acquit([entry("plain")], ())["plain"].as_it_should
    filed = Finding("a", "MASK-1", "", 3, 0.1, {"MASK-3": "c"}, 1.0)
    alarm = Finding("b", "", "", 3, 0.1, {"NUM-3": "c"}, 1.0)
    assert problems([filed, alarm]) == [
        "a has the wrong rule: it breaks MASK-3 by c, and no case of 3 says that MASK-1 is broken",
        "b is correct, but fails: NUM-3 by c",
    ]
    assert not any(one.as_it_should for one in (filed, alarm))
    killed = Finding("c", "MASK-1", "c", 3, 0.1, {}, 1.0)
    assert "wrong: 2, killed under their own rule: 1" in kill_matrix.summary([filed, alarm, killed])


def test_an_error_of_the_judge_says_where_it_happened(monkeypatch):
    def broken_judge(*_):
        raise KeyError("no")

    monkeypatch.setattr("tools.kill_matrix.judge", broken_judge)
    with pytest.raises(KeyError) as caught:
        convict(entry("inverted_polarity"), [find("softmax-002-float32")])
    assert "inverted_polarity by softmax-002-float32" in caught.value.__notes__[0]


def test_right_and_wrong_names_of_the_diagnosis_are_counted():
    counts = count([Naming("a", ("a", "b"), ("b",)), Naming("b", ("a",), ()), Naming("c", (), ())])
    assert counts == Counts(3, rightly=0, several=1, nothing=1, wrongly={"b": ("a",)}, twins={"a": ("b",)})
    assert report(counts).splitlines() == [
        "diagnosis: 3 entries, 0 named rightly, 1 as one of several, 1 wrongly, 1 not named",
        "without the entry itself: 1 named as another",
        "b is named a",
        "a is named b",
    ]


BASES = (*correct.LOOPS, *correct.WINDOWS, *correct.SPLITS)
EDGES = entries_of(*edges.MODULES)
SHAPES = (
    Shape((2, 4), 133, 300, 4, 3, 2),
    Shape((2, 4), 1, 300, 4, 3, 2),
    Shape((1, 2), 7, 128, 3, 5),
    Shape((2, 2, 1), 64, 64, 72, 80),
)


def off(name, sized):
    """How far what an entry gives is from what the plain one gives, relative to the largest number."""
    return apart(name, sized.arguments, entry("plain").backend().attention(**sized.arguments))


def apart(name, arguments, wanted):
    """The same where it is known what the plain one gives."""
    return max(map(_apart, entry(name).backend().attention(**arguments), wanted))


def _apart(got, wanted):
    finite = np.isfinite(wanted)
    if got.shape != wanted.shape or not np.array_equal(got[~finite], wanted[~finite], equal_nan=True):
        return np.inf
    if not np.isfinite(got[finite]).all():
        return np.inf
    return np.abs(got[finite] - wanted[finite]).max(initial=0) / max(np.abs(wanted[finite]).max(initial=0), 1)


@pytest.mark.parametrize("options", AT_EDGES)
@pytest.mark.sample(14)
def test_bases_are_correct_past_their_tiles(options):
    # Scores of 2000 lose as many digits as they have before the point.
    limit = 1e-9 if "far" in options or "large" in options else 1e-13
    for shape in SHAPES:
        arguments = Sized(shape, options).arguments
        wanted = entry("plain").backend().attention(**arguments)
        assert [base.name for base in BASES if apart(base.name, arguments, wanted) > limit] == []


@pytest.mark.parametrize("base", BASES, ids=lambda one: one.name)
def test_a_base_takes_numbers_that_are_not_finite(base):
    sized = Sized(Shape((2,), 3, 150, 4, 3))
    arguments = sized.arguments
    arguments["value"][0, 140, 0], arguments["value"][1, 3, 1] = np.inf, np.nan
    arguments["key"][1, 70] = np.inf
    arguments["mask"] = np.arange(150) != 70
    got, wanted = (entry(each).backend().attention(**arguments) for each in (base.name, "plain"))
    assert max(map(_apart, got, wanted)) < 1e-13
    assert not np.isfinite(wanted[0]).all()


@pytest.mark.parametrize("sized", CALLS, ids=str)
@pytest.mark.sample(14)
def test_the_call_that_is_stored_shows_the_entry(sized):
    unseen = [name for name in CALLS[sized] if off(name, sized) < 1e-10]
    assert unseen == []


def test_entries_of_edges_have_calls_bases_options_and_sizes():
    needy = {one.name for one in wrong_entries() if one.needs == "sizes"}
    assert needy == set(SHOWN)
    assert len(needy) >= 80
    assert {one.needs for one in wrong_entries()} <= {"", *NEEDS}
    assert sum(map(len, CALLS.values())) == len(SHOWN)
    rules = {one.rule for one in EDGES}
    assert {option.rule for option in OPTIONS.values()} <= rules
    for base in (*TILED, *DECODING):
        assert sum(one.name.endswith(base.name) for one in EDGES) >= 8
    assert len(EDGES) >= 100
    made = on("row_tiles", "SOFT-3", "G", *TILED)(_nothing_visited)
    assert [one.name for one in made] == [f"_nothing_visited_{base.name}" for base in TILED]
    (sized,) = at("factor", "SCORE-3", "K", 7)(_scale_of_some)
    assert (sized.name, sized.sentence) == ("_scale_of_7", "Scale by 7.")
    assert sized.steps["factor"](None) == 7.0
    with pytest.raises(ValueError, match="step: expected one of"):
        at("no_such_step", "SCORE-3", "K", 7)(_scale_of_some)


def _nothing_visited(_one, _call):
    """Visit nothing."""
    return []


def _scale_of_some(size, _call):
    """Scale by {}."""
    return float(size)


ENTRIES = entries_of(memory)


@pytest.mark.parametrize(
    "name",
    [
        "causal_tiles_of_64_queries_as_if_of_32",
        "causal_tiles_of_32_by_their_first_query",
        "causal_tiles_of_32_queries_by_32_keys_without_the_offset",
        "window_in_tiles_of_64_queries_by_32_keys_as_if_square",
    ],
)
def test_the_tiles_of_packed_sequences_are_those_of_each_sequence_whatever_its_offset(name):
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 2, 300, 4))
    starts, offset, backend = (0, 10, 110), 77, entry(name).backend()
    options = {"window": (60, None)} if "window" in name else {"is_causal": True}
    packed = backend.companions["packed_attention"](
        query[:, :110], key, value, query_starts=np.array(starts), key_starts=np.array([0, 100, 300]),
        query_offset=np.array([offset, offset]), **options,
    )  # fmt: skip
    for rows, keys in ((slice(0, 10), slice(0, 100)), (slice(10, 110), slice(100, 300))):
        parts = (query[:, rows], key[:, keys], value[:, keys])
        alone = backend.attention(*parts, query_offset=offset, **options)
        assert np.allclose(packed[:, rows], alone, rtol=0, atol=1e-13)


def test_each_of_them_is_right_when_called_once():
    sized = Sized(Shape((2, 2), 40, 150, 4, 16), "causal")
    wanted = entry("plain").backend().attention(**sized.arguments)
    for one in ENTRIES:
        found = zip(one.backend().attention(**sized.arguments), wanted, strict=True)
        assert all(np.allclose(got, good, rtol=0, atol=1e-13) for got, good in found), one.name
