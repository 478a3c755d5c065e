"""The site builds with every link checked, its notebooks run, and the search by symptom finds the page."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest
from built_site import BASE, SITE

from attnspec import find_rule


def test_a_sample_of_the_site_builds_with_what_a_host_needs(sample):
    text = (sample / "rules" / "MASK-6.html").read_text(encoding="utf-8")
    assert "A row with nothing to attend to gives zero" in text
    assert (sample / "results" / "torch-sdpa.html").is_file()
    pages = [path for path in sample.rglob("*.html") if "files" not in path.parts]
    assert len(pages) > 20
    for path in pages:
        name, text = path.relative_to(sample).as_posix(), path.read_text(encoding="utf-8")
        (about,) = re.findall('<meta name="description" content="([^"]+)">', text)
        assert 25 < len(about) < 400, name
        assert f'<meta property="og:description" content="{about}">' in text
        (icon,) = re.findall('<link rel="icon" [^>]*href="([^"]+)">', text)
        assert (path.parent / icon).is_file(), name
        assert '<a href="https://example.org/code">' in text, name
        if name != "404.html":
            place = re.sub("(^|/)index.html$", r"\1", name)
            assert re.findall('<link rel="canonical" href="([^"]+)"', text) == [f"{BASE}/{place}"]
            (image,) = re.findall(f'<meta property="og:image" content="{BASE}/([^"]+)">', text)
            assert (sample / image).is_file()
    text = (sample / "rules" / "MASK-6.html").read_text(encoding="utf-8")
    assert '<meta name="description" content="For a query with no allowed key, the output' in text
    assert (sample / ".nojekyll").is_file()
    assert f"Sitemap: {BASE}/sitemap.xml" in (sample / "robots.txt").read_text(encoding="utf-8")
    spaces = {"map": "http://www.sitemaps.org/schemas/sitemap/0.9", "atom": "http://www.w3.org/2005/Atom"}
    site_map, feed = (ET.parse(sample / path) for path in ("sitemap.xml", "results/feed.xml"))
    listed = [each.text for each in site_map.iterfind("map:url/map:loc", spaces)]
    assert {f"{BASE}/", f"{BASE}/rules/MASK-6.html", f"{BASE}/results/"} <= {*listed}
    assert f"{BASE}/404.html" not in listed
    links = [each.get("href") for each in feed.iterfind(".//atom:link", spaces)]
    assert len(links) > 3
    assert all(link.startswith(f"{BASE}/results/") for link in links)
    # It is shown for any address, however deep.
    assert f'<base href="{BASE}/">' in (sample / "404.html").read_text(encoding="utf-8")
    assert (sample / "files" / "LICENSE").is_file()


def test_released_versions_stay_beside_the_newest_site(sample, tmp_path):
    def put(*version):
        command = [sys.executable, str(SITE / "publish.py"), str(sample), str(tmp_path), *version]
        subprocess.run(command, check=True)

    put("--version", "2026.12.1")
    (tmp_path / "old.html").touch()
    put()
    assert not (tmp_path / "old.html").exists()
    assert (tmp_path / "index.html").is_file()
    assert (tmp_path / ".nojekyll").is_file()
    assert (tmp_path / "2026.12.1" / "rules" / "MASK-6.html").is_file()


NAMES = ("000", "001", "002", "003", "004", "merging")


@pytest.fixture(scope="module")
def made():
    sys.path.append(str(SITE))
    from notebooks import notebooks

    return notebooks(Path(SITE).parent)


def run(cell, scope):
    """Run a cell as Jupyter does: the value of its last expression is shown."""
    tree = ast.parse(cell["source"])
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), scope)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), scope) if last else None


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_its_first_cell_to_its_last(made, name):
    scope = {}
    cells = made[name]["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 4
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in code:
        if not cell["outputs"]:
            run(cell, scope)
        elif cell["outputs"][0]["output_type"] == "error":
            with pytest.raises(Exception, match=r"\[[A-Z]+-\d+\]") as raised:
                run(cell, scope)
            assert raised.type.__name__ == cell["outputs"][0]["ename"]
        else:
            assert repr(run(cell, scope)) == cell["outputs"][0]["data"]["text/plain"]


def test_the_site_has_the_notebooks(site, made):
    assert [*made] == [*NAMES]
    for name in NAMES:
        path = f"files/notebooks/{name}.ipynb"
        assert (site.folder / "html" / path).is_file()
        page = "recipes" if name == "merging" else "notebooks"
        assert f"page:../{path}" in site.page(f"spec/{page}")


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
