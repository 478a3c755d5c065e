"""The search by symptom: what readers type, in their words, and the page that answers it."""

import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from built_site import SITE

from attnspec import find_rule

FINDINGS = SITE.parent / "backends" / "findings"
#: What readers type, and rules of which one has to be among the first three results or in a symptom there.
SEARCHES = tomllib.loads(Path(__file__).with_name("searches.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def first_three(site, tmp_path_factory):
    """The first three results of each search, as the script of the pages finds them."""
    if shutil.which("node") is None:
        pytest.skip("no node")
    results = site.search(SEARCHES, tmp_path_factory.mktemp("search"))
    return {query: addresses for query, (addresses, _) in zip(SEARCHES, results, strict=True)}


def entries():
    from pages.symptoms import read_symptoms

    return read_symptoms()


def test_symptoms_are_found_in_the_words_of_readers(first_three):
    from pages.whys import read_whys

    rules_of = {f"symptoms.html#{symptom.place}": symptom.rules for symptom in entries()}
    rules_of |= {f"questions.html#{why.place}": why.rules or (why.place,) for why in read_whys()}
    missed = {}
    for query, wanted in SEARCHES.items():
        answers = {
            answer
            for address in first_three[query]
            for answer in rules_of.get(address, (re.sub(r"^rules/|\.html.*", "", address),))
        }
        if not answers & set(wanted.split()):
            missed[query] = first_three[query]
    assert len(SEARCHES) > 700
    assert len(missed) * 25 <= len(SEARCHES), missed


def test_results_of_little_worth_are_left_out(first_three):
    place = "questions.html#how-do-i-cite-it-in-a-paper-is-there-a-doi"
    assert first_three["is there a paper or doi"] == [place]


def test_each_question_of_why_has_rules_that_exist_and_pages(site):
    from pages.whys import read_whys

    text = site.page("questions")
    whys = read_whys()
    assert len({why.place for why in whys}) == len(whys) > 10
    for why in whys:
        assert [find_rule(rule).id for rule in why.rules] == [*why.rules]
        assert f'id="{why.place}"' in text


def test_each_symptom_has_rules_that_exist_and_a_thread():
    symptoms = entries()
    rows = "".join(path.read_text(encoding="utf-8") for path in (FINDINGS / "families").glob("*.py"))
    assert len(symptoms) >= 60
    assert len({symptom.place for symptom in symptoms}) == len(symptoms)
    for symptom in symptoms:
        assert all(find_rule(rule) for rule in symptom.rules)
        for rule, _, name in (way.partition(":") for way in symptom.variants):
            assert " " in name or name in {variant.name for variant in find_rule(rule).variants}, symptom.text
        assert symptom.threads, symptom.text
        for name in symptom.findings:
            assert (FINDINGS / f"{name}.py").is_file() or f'"{name}"' in rows, name
        for thread in symptom.threads:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+#[0-9]+", thread)


def test_the_page_of_symptoms_names_the_libraries_that_show_the_variant(site):
    text = site.page("symptoms")
    place = 'id="the-output-is-nan-when-all-keys-of-a-query-are-masked"'
    row = text.partition(place)[2].partition("</tr>")[0]
    assert '<a href="libraries/torch.html">PyTorch</a>, ' in row
    assert "libraries/ncnn" not in row
    assert '<a href="findings/torch.html#mha_fast_path">torch/mha_fast_path</a>' in row
    assert '<a href="findings/families/empty_row.html">' in row
    assert 'href="https://github.com/pytorch/pytorch/issues/41508"' in row


def test_a_symptom_may_be_a_variant_of_another_rule_or_a_deviation(site):
    from pages.symptoms import _with_variant

    first, _, _, gradients = entries()[:4]
    added = replace(site.columns[0], backend="flax-nnx", ways={"MASK-2": {"a": ("added", "")}})
    text = ("", "in training gradients of its head are NaN")
    declared = replace(site.columns[0], backend="jax-nn", ways={"GRAD-10": {"a": text}})
    known = SimpleNamespace(keepers=lambda: {"flax-nnx": added, "jax-nn": declared})
    assert [name for name, _ in _with_variant(first, known)] == ["flax"]
    assert [name for name, _ in _with_variant(gradients, known)] == ["jax"]


def test_the_data_of_the_search_are_small(site):
    assert (site.folder / "html" / "_static" / "names.js").stat().st_size < 500_000
