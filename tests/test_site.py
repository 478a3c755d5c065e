"""The site: the pages that Sphinx reads, and what the search finds."""

import json
import lzma
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from built_site import ASSETS, SITE
from tests_support import pairs

from attnspec import CHAPTERS, __version__, cases, find_rule, rules
from attnspec.backends.names import ADAPTERS, LIBRARY_NAMES, PORTABLE, SEPARATE, backends_of, library_of
from attnspec.conformance.render.html.matrix import column_data
from attnspec.conformance.render.html.page import Links

SCRIPTS = SITE.parent / "backends" / "findings"
sys.path.append(str(SITE))

from check import problems  # noqa: E402 - the modules of the site are found now
from pages.chapters import relink  # noqa: E402
from pages.known import in_own_cases  # noqa: E402
from pages.page import sentence  # noqa: E402


def test_every_rule_has_a_page_with_its_section(site):
    for rule in rules():
        text = site.page(f"rules/{rule.id}")
        assert f"# {rule.id} {rule.title}\n" in text
        assert f"cite as <code>attnspec {__version__}, {rule.id}</code>" in text
        for variant in rule.variants:
            assert f"{{#{variant.name}}}" in text, rule.id
        for case in cases():
            if case.rules[0] == rule.id:
                assert f'id="{case.id}"' in text
                assert text.count(f'data-case="{case.id}"') == 5
    text = site.page("rules/MASK-6").partition("{.sentence}\n")[2]
    assert text.startswith("For a query with no allowed key, the output and the weights MUST be 0")
    reasons = text.partition("## Who does what")[0]
    assert "MASK-7" not in reasons.partition("\n[")[0]
    assert "[MASK-13]: page:MASK-13.html" in reasons
    assert len([*(site.folder / "source" / "spec").glob("*.md")]) > 20
    assert len([*(site.folder / "source" / "guide").glob("*.md")]) > 5


def test_links_and_sentences_lead_into_the_site():
    text = "`[x](y.md)`\n\n```python\na[0](b)\n```\n\n[a](masking.md)\n\n[MASK-6]: masking.md#m\n"
    new = relink(text, "spec/softmax.md", "rules/SOFT-1", lambda path, _place: path)
    assert "`[x](y.md)`" in new
    assert "a[0](b)" in new
    assert "[a](../spec/masking.md)" in new
    assert sentence("a `x < y` of MASK-6 & more", "../", frozenset(["MASK-6"])) == (
        'a <code>x &lt; y</code> of <a href="../rules/MASK-6.html">MASK-6</a> &amp; more'
    )


def test_names_are_unique_and_searched_without_markup(site):
    pages = {page.path for page in site.part.pages} | {"results/compare"}
    seen = set()
    for name in site.names:
        assert (name.kind, name.name) not in seen, name
        seen.add((name.kind, name.name))
        assert name.address.partition("#")[0].removesuffix(".html") in pages, name
    kinds = {kind for kind, _ in seen}
    assert kinds == {
        "rule", "variant", "case", "operation", "argument", "entry", "finding", "library", "term", "page",
        "section", "question", "symptom",
    }  # fmt: skip
    assert {("rule", "MASK-6"), ("variant", "MASK-6:uniform"), ("finding", "jax/float64")} <= seen
    assert {("term", "ALiBi"), ("term", "Window"), ("library", "openvino"), ("page", "Changes")} <= seen
    from pages.search import WORDS

    assert set(WORDS) <= {(name.kind, name.name) for name in site.names}
    for name in site.names:
        assert not re.search(r"[$`\\]|\]\(|\*\*", name.name + name.title), name
    questions = {name.name: name for name in site.names if name.kind == "question"}
    assert len(questions) > 15
    assert questions["Is a window inclusive?"].title.startswith("yes, at both bounds")
    assert questions["Is a window inclusive?"].address == "rules/MASK-8.html"
    assert 'href="rules/MASK-8.html"' in site.page("questions")


def test_every_library_has_a_page_and_portable_code_is_kept_apart(site):
    names = {*ADAPTERS, *SEPARATE, *PORTABLE}
    assert {backend for library in LIBRARY_NAMES for backend in backends_of(library)} == names
    findings = {name.name.partition("/")[0] for name in site.names if name.kind == "finding"}
    assert findings <= {name.name for name in site.names if name.kind == "library"} == set(LIBRARY_NAMES)
    own, _, portable = site.page("libraries/index").partition("## Portable code")
    rows = {row.partition('.html"')[0]: row for row in own.split('<a href="') if ".html" in row}
    assert "not run" in rows["jax"]
    assert "none" in rows["torch"]
    assert "portable code on JAX" in portable
    assert "say nothing about the attention functions of the library" in portable
    page = site.page("libraries/jax")
    assert page.index("jax-nn-jit") < page.index("portable code on JAX")
    assert "page:../spec/frameworks.html#jax-nn-dot-product-attention" in page
    assert page.count("no stored results") == 3


def test_the_package_of_every_stored_result_leads_to_the_library_of_its_backend():
    stored = sorted((SITE / "results").glob("*.jsonl.xz"))
    assert len(stored) > 20
    for path in stored:
        lines = lzma.decompress(path.read_bytes()).decode().splitlines()
        subjects = [json.loads(line)["subject"] for line in lines if line.startswith('{"subject"')]
        assert subjects, path.name
        for subject in subjects:
            library = library_of(subject["library"])
            assert library == library_of(subject["name"]), path.name
            assert library in LIBRARY_NAMES, path.name


def _folder(folder, **pages):
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(
            f"<!doctype html><html><body>{body}</body></html>", encoding="utf-8"
        )
    return folder


def test_the_check_finds_what_is_wrong_with_a_folder(tmp_path):
    good = '<h1 id="a">x</h1><a href="two.html#b">two</a> <a href="https://example.org">out</a>'
    assert problems(_folder(tmp_path, one=good, two='<p id="b">y</p>')) == []
    bad = {
        '<a href="three.html">x</a>': "leads nowhere",
        '<a href="two.html#c">x</a>': "leads nowhere",
        '<a href="#c">x</a>': "leads nowhere",
        '<p id="a"></p><p id="a"></p>': "occurs twice",
        '<script src="https://example.org/x.js"></script>': "from elsewhere",
        '<link rel="stylesheet" href="//example.org/x.css">': "from elsewhere",
        '<img src="missing.png">': "leads nowhere",
        f"<p>{'x' * 300_000}</p>": "at most",
    }
    for body, said in bad.items():
        found = problems(_folder(tmp_path, one=body))
        assert len(found) == 1, body[:60]
        assert said in found[0]


def test_pages_are_checked_for_links_anchors_and_styles_from_elsewhere(tmp_path):
    folder = _folder(tmp_path, one='<p id="b">y</p>')
    assert problems(folder, ["one.html#b", "one.html"]) == []
    assert problems(folder, ["one.html#c"]) == ["names: one.html#c leads nowhere"]
    assert problems(folder, ["two.html#c"]) == ["names: two.html#c leads nowhere"]
    assert problems(folder, ["two.html#c"], {"two.html"}) == []
    (tmp_path / "site.css").write_text("a { background: url(https://example.org/x.png) }", encoding="utf-8")
    assert "from elsewhere" in problems(_folder(tmp_path, one="x"))[0]


def test_a_link_to_the_repository_needs_its_address(tmp_path):
    from publish import finish

    page = tmp_path / "one.html"
    page.write_text("<html><head></head><body><footer></footer></body></html>", encoding="utf-8")
    finish(tmp_path)
    assert "<a" not in page.read_text(encoding="utf-8")
    finish(tmp_path, repository="https://example.org/x")
    assert '<a href="https://example.org/x">' in page.read_text(encoding="utf-8")


def test_formulas_become_mathml():
    sys.path.append(str(SITE / "extensions"))
    from mathml import mathml

    text = mathml(r"\begin{aligned} a &= \mathrm{pos} \\ c &= d \end{aligned}", block=True)
    assert text.count("<mtr>") == 2
    assert text.count("<mtd>") == 4
    assert "<mi>pos</mi>" in text
    nested = mathml(r"x = \begin{cases} a & b \\ c & d \end{cases} + y", block=True)
    assert nested.count("<mtr>") == 2
    with pytest.raises(ValueError, match="LaTeX"):
        mathml(r"\unknown{x}", block=False)


#: What readers typed, and a page that has to be among the first three suggestions.
ASKED = pairs("asked")


def test_the_words_that_readers_type_find_the_page(site, tmp_path):
    if shutil.which("node") is None:
        pytest.skip("no node")
    *results, (nothing, _) = found = site.search([*ASKED, "zzyzzx"], tmp_path)
    rows = zip(ASKED.items(), results, strict=True)
    assert {query: those for (query, address), (those, _) in rows if address not in those} == {}
    assert nothing == []
    assert [absent for _, absent in found if absent] == ["LSE-1", "MASK-99"]


def test_a_rule_says_who_keeps_it_and_what_the_others_do(site):
    text = site.page("rules/MASK-6").partition("## Who does what")[2].partition("## ")[0]
    rows = [
        re.sub("<[^>]+>", "", row).strip()
        for row in re.findall(r"<tr><td>.*?</td></tr>", re.sub("</td><td[^>]*>", " | ", text))
    ]
    assert rows[0] == "keeps the rule | torch-sdpa 2"
    assert "fails, and declares nothing | ncnn-sdpa 1.5 (1 of 2)" in rows
    assert rows[-1] == "does not offer what the rule is about | 1 backendmlx-fast 1.5"
    # Two variants, each with its condition. A case of another rule counts only if it alone shows one.
    (both,) = (row for row in rows if row.startswith("uniform: with a mask, the row"))
    assert "; nan: with a bias, the row is NaN" in both
    assert both.endswith("| onnxruntime-mha 1 (1 of 2)")
    (nan,) = (row for row in rows if row.startswith("nan: "))
    assert nan.endswith("| torch-mha 2 (1 of 2), tokamax-xla 1 (1 of 3)")
    assert "jax-portable" not in text
    assert "<code>jax-nn</code>" in text.partition("Without stored results: ")[2]
    assert '<td data-label="backends">' in text
    assert "## Who does what" not in site.page("rules/SOFT-1")


def test_the_page_of_a_rule_says_of_each_backend_what_the_matrix_says(site):
    from pages.rules import ways_of

    backends = [column for column in site.columns if column.backend != "jax-portable"]
    # The golden vector also tests MASK-1, which this backend does not offer.
    without = replace(
        backends[0], counts={"MASK-1": Counter(unsupported=1)}, cases={"masking-empty-first-float32": "p"}
    )
    backends.append(in_own_cases(without, {"masking-empty-first-float32": ("MASK-6", "MASK-1")}))
    marks = {
        "keeps the rule": "p",
        "does not offer what the rule is about": "u",
        "was not judged on it in the stored results": "n",
    }
    number = 0
    for rule in rules():
        for way in ways_of(rule, backends):
            for column, _ in way.backends:
                number += 1
                assert column.letters[rule.id] in marks.get("" if way.variants else way.text, "fdsm")
    assert number >= len(backends)
    assert backends[-1].results_of("MASK-1") == {"unsupported": 1}
    rule = find_rule("MASK-1")
    some = Counter({"pass": 2, "unsupported": 5})
    (way,) = ways_of(rule, [replace(backends[0], counts={"MASK-1": some}, tested={}, ways={})])
    assert (way.text, way.backends[0][1]) == ("keeps the rule", " (2 of 7 cases)")


def test_the_readme_shows_what_the_suite_prints_of_its_function(tmp_path):
    readme = (SITE.parent / "README.md").read_text(encoding="utf-8")
    code = readme.partition("This is `my_attention.py`:\n\n```python\n")[2].partition("```")[0]
    (tmp_path / "my_attention.py").write_text(code, encoding="utf-8")
    command = "attnspec check ./my_attention.py:attention --case masking-empty-first-float32"
    run = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1, run.stderr
    shown = readme.partition("```text\n")[2].partition("```")[0]
    assert " ".join(shown.split()) in " ".join(run.stdout.split())


def test_a_window_that_is_a_number_of_keys_is_marked(site):
    (row,) = re.findall(r'<tr id="window">.*', site.page("operations/attention"))
    own, _, counts = row.partition("as a number of keys")
    assert "<code>window_size</code>" in own
    assert "<code>sliding_window</code>" in counts
    assert "<code>sliding_window</code>" not in own


@pytest.mark.parametrize("path", ["rules/index", "findings/index", "cases/masking"])
def test_long_tables_have_a_filter_with_a_count(site, path):
    text = site.page(path)
    kind = re.search(r'data-filter="(\w+)"', text)[1]
    assert f'class="data {kind}' in text
    assert '<output for="filter"' in text
    assert "placeholder=" in text


def test_the_front_page_has_true_figures(site):
    text = site.page("index")
    assert text.count('<section class="card">') == 3
    assert "pip install --editable .\nattnspec check ./my_attention.py:attention" in text
    assert '<pre class="shot" tabindex="0">MASK-6 A row with nothing to attend to gives zero\n' in text
    assert f"{len(rules())} rules in {len(CHAPTERS)} chapters" in text
    promises = sum("Rank: promise\n" in path.read_text(encoding="utf-8") for path in SCRIPTS.rglob("*.py"))
    (bugs,) = re.findall(r"(\d+) of the \d+ break a documented promise", text)
    assert int(bugs) >= promises > 3
    # Of the stored runs, one is of portable code.
    assert "Results of 6 functions of 5 libraries, one version of each" in text
    assert "portable code on 1 library, 1 of them not among these" in text
    from pages.front import figures
    from pages.known import Known

    runs = ("torch-sdpa", "torch-portable", "numpy-portable")
    columns = tuple(replace(site.columns[0], backend=name) for name in runs)
    known = Known(SITE.parent, {}, (), (), (), {}, (), (), {}, (), columns)
    assert "portable code on 2 libraries, 1 of them not among these" in figures(known)[-1]
    found = sum(name.kind == "finding" for name in site.names)
    alone = [path for path in SCRIPTS.rglob("*.py") if path.parent.name not in ("families", SCRIPTS.name)]
    assert f"{found} findings about released libraries: {len(alone)} have a script each" in site.page("index")
    assert f"\n{found} findings: behaviours of" in site.page("findings/index")
    own = sum(name.kind == "finding" and name.name.startswith("jax/") for name in site.names)
    assert f"\n{own} findings: behaviours of" in site.page("findings/jax")
    assert f"[{own} findings](page:../findings/jax.html): " in site.page("libraries/jax")
    assert f">{own} findings</a>" in site.page("libraries/index").partition("findings/jax.html")[2]


def test_pages_of_libraries_can_be_corrected_and_read(site):
    text = site.page("libraries/mlx").partition("## Correct or update this page")[2]
    assert "python -m tools.store_results" in text
    assert "guide/contributing.html#add-a-backend-or-a-library" in text
    assert '<table class="data gallery">' in site.page("gallery/MASK-6")
    style = re.sub(r"\s+", " ", (ASSETS / "attnspec.css").read_text(encoding="utf-8"))
    assert "table.gallery td:first-child code { white-space: nowrap; }" in style
    assert "table.values pre { white-space: pre;" in style
    (column,) = (column for column in site.columns if column.backend == "onnxruntime-mha")
    cells = column_data(column, [*column.cases], Links(lambda rule: rule))["cells"]
    assert cells["MASK-6"]["counts"] == {"deviation": 1, "pass": 1}
    # The example of the deviation stands for two cases, of which one is of another rule.
    assert cells["MASK-6"]["others"] == 1
