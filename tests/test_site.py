"""The site: the pages that Sphinx reads, the code to copy, and what the search finds.

Nothing here needs Sphinx or a browser.
"""

import ctypes
import importlib.util
import json
import lzma
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from html_results import verdict, write_run

import attnspec
from attnspec import cases, find_case, rules
from attnspec.backends.names import ADAPTERS, LIBRARY_NAMES, PORTABLE, SEPARATE, backends_of, library_of
from attnspec.case_json import decode, from_json
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import in_each
from attnspec.reference.budget.budget import budget, plain

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
ASSETS = ROOT / "conformance" / "render" / "html" / "assets"
pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not shipped")
sys.path.append(str(SITE))

if SITE.is_dir():
    from check import problems
    from pages.chapters import relink
    from pages.page import sentence


def _stored(folder):
    """Results of backends of libraries: two that keep MASK-6, one that breaks it, one that deviates."""
    runs = {
        "torch-sdpa": ("torch", "2", ["pass", "pass"]),
        "torch-mha": ("torch", "2", ["deviation", "pass"]),
        "ncnn-sdpa": ("ncnn", "1.5", ["pass", "fail"]),
        "mlx-fast": ("mlx", "1.5", ["unsupported"]),
        "jax-portable": ("jax", "1", ["pass"]),
    }
    for name, (library, version, statuses) in runs.items():
        judged = [
            replace(verdict(name, f"c{place}", "MASK-6", status), variant="nan" * (status == "deviation"))
            for place, status in enumerate(statuses)
        ]
        path = folder / f"{name}-{version}-2026-01-31.jsonl"
        yield write_run(path, name, version, judged, library=library)


class Site:
    """The folder that Sphinx reads, and the files beside its pages."""

    def __init__(self, folder, results):
        # A module of the name `build` is installed.
        spec = importlib.util.spec_from_file_location("site_build", SITE / "build.py")
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        self.folder, self.part = folder, build.write_sources(folder, build.read_columns(results))
        self.names = self.part.names

    def page(self, path):
        return (self.folder / "source" / f"{path}.md").read_text(encoding="utf-8")

    def copies(self, case_id):
        """The code to copy of a golden vector, by dtype and format."""
        text = (self.folder / "html" / "_static" / "vectors" / f"{case_id}.js").read_text(encoding="utf-8")
        assert text.startswith(f'attnspecCase("{case_id}",')
        return json.loads(text[text.index(",") + 1 : text.rindex(")")])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    return Site(folder, [*_stored(folder)])


def _arrays(group):
    return [thing for thing in group.values() if isinstance(thing, np.ndarray)]


def _floats(group):
    return [np.asarray(thing, np.float64) for thing in _arrays(group) if thing.dtype.kind == "f"]


#: Cases with booleans, NaN and infinities, no elements, integers, pairs, bfloat16 and a refusal.
CASES = tuple(
    {
        next(case.id for case in cases() if fits(case)): None
        for fits in (
            lambda case: case.id == "masking-empty-first",
            lambda case: any(np.isnan(x).any() for x in _floats(case.arguments)),
            lambda case: any(np.isneginf(x).any() for x in _floats(case.arguments)),
            lambda case: any(x.size == 0 for x in _arrays(case.arguments)),
            lambda case: any(x.dtype.kind == "i" for x in _arrays(case.arguments)),
            lambda case: any(isinstance(x, tuple) for x in case.arguments.values()),
            lambda case: any(x.ndim == 4 for x in _arrays(case.arguments)),
            lambda case: any(str(x.dtype) == "float32" for x in _arrays(case.arguments)),
            lambda case: case.misuse and not case.expected,
        )
    }
)


def _same(name, got, expected):
    __tracebackhide__ = True
    if isinstance(expected, np.ndarray):
        got = np.asarray(got)
        assert got.shape == expected.shape, name
        assert str(got.dtype) == str(expected.dtype), name
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64), err_msg=name)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(got), name
    else:
        assert got == expected, name
        assert type(got) is type(expected), name


def _run(text, case, convert=np.asarray):
    """Run a snippet, and compare what it assigns with the case."""
    scope = {}
    exec(text, scope)
    for name, thing in case.arguments.items():
        _same(name, convert(scope[name]) if isinstance(thing, np.ndarray) else scope[name], thing)
    assert set(scope.get("expected", {})) == set(case.expected)
    for name, array in case.expected.items():
        _same(name, convert(scope["expected"][name]), array)


def _cases(name):
    """A golden vector in each dtype that holds its inputs, as the suite judges it."""
    return {case.dtype: case for case in in_each(find_case(name))}


def test_a_copy_for_numpy_holds_the_numbers_of_its_vector(site):
    for case in cases():
        copies = site.copies(case.id)
        dtype, *_ = (name for name in ("float32", *copies) if name in copies)
        _run(copies[dtype]["numpy"], _cases(case.id)[dtype])


@pytest.mark.parametrize("name", CASES)
def test_a_copy_for_pytorch_holds_the_numbers_of_its_vector(site, name):
    pytest.importorskip("torch")
    for dtype, case in _cases(name).items():
        if dtype != "bfloat16":  # NumPy takes no such tensor
            _run(site.copies(name)[dtype]["torch"], case, lambda tensor: tensor.numpy())


@pytest.mark.parametrize("name", CASES)
def test_a_copy_for_jax_holds_the_numbers_of_its_vector(site, name):
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    try:
        for dtype, case in _cases(name).items():
            _run(site.copies(name)[dtype]["jax"], case)
    finally:
        jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("name", CASES)
def test_a_copy_for_c_compiles_and_holds_the_numbers_of_its_vector(site, name, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    dtype, case = [*_cases(name).items()][-1]
    text = site.copies(name)[dtype]["c"]
    path = tmp_path / "vector.c"
    # Without `static`, the constants are symbols of the library.
    path.write_text(text.replace("static const", "const"), encoding="utf-8")
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(tmp_path / "vector.so"), str(path)], check=True)
    library = ctypes.CDLL(str(tmp_path / "vector.so"))
    types = {"float64": ctypes.c_double, "int64": ctypes.c_int64, "bool": ctypes.c_bool}
    group = {**case.arguments, **{f"expected_{key}": array for key, array in case.expected.items()}}
    compared = 0
    for key, thing in group.items():
        if isinstance(thing, np.ndarray) and thing.size:
            kind = types.get(str(thing.dtype), ctypes.c_float)
            got = list((kind * thing.size).in_dll(library, key))
            np.testing.assert_array_equal(
                got, thing.astype(np.float64).ravel() if thing.dtype != bool else thing.ravel()
            )
            compared += 1
        elif isinstance(thing, float) and not isinstance(thing, bool):
            assert ctypes.c_double.in_dll(library, key).value == pytest.approx(
                thing, rel=0, abs=0, nan_ok=True
            )
            compared += 1
    assert compared or all(array.size == 0 for array in _arrays(group))


@pytest.mark.parametrize("name", CASES)
def test_a_copy_as_json_is_an_entry_of_a_vector_file(site, name):
    for dtype, case in _cases(name).items():
        entry = from_json(json.loads(site.copies(name)[dtype]["json"]))
        for key, array in case.expected.items():
            np.testing.assert_array_equal(entry.expected[key], array)
        assert set(entry.arguments) == set(case.arguments)


@pytest.mark.parametrize("name", CASES)
def test_copies_hold_the_errors_that_the_budget_allows_in_each_dtype(site, name):
    """A budget computed here, without the way by which the site has it."""
    by_dtype = _cases(name)
    assert list(site.copies(name)) == list(by_dtype)
    for dtype, case in by_dtype.items():
        copies, scope = site.copies(name)[dtype], {}
        exec(copies["numpy"], scope)
        allowed = scope.get("allowed", {})
        entry = decode(json.loads(copies["json"]).get("allowed", {}))
        assert set(allowed) == set(entry) == (set() if case.misuse else set(case.expected))
        if not allowed:  # the call must be refused
            continue
        operation, arguments = plain(case.operation, case.arguments)
        accuracy = "cast" if dtype in ("float16", "bfloat16") else "full"
        budgets = budget(operation, arguments, dtype, accuracy=accuracy)
        for output, array in allowed.items():
            ordinary = np.isfinite(array)
            expected = np.broadcast_to(budgets[output], array.shape)
            np.testing.assert_array_equal(array[ordinary], expected[ordinary], err_msg=f"{dtype} {output}")
            np.testing.assert_array_equal(entry[output], array)
            assert f"allowed_{output}" in copies["c"]
            # Only what is not a number has no ordinary budget.
            values = case.expected.get("lse", case.expected[output])
            assert ordinary.all() or not np.isfinite(values).all()


def test_a_result_at_its_allowed_error_passes_and_one_beyond_it_fails(site):
    copies = site.copies("masking-window-both")
    allowed = {
        dtype: decode(json.loads(copies[dtype]["json"])["allowed"])["output"]
        for dtype in ("float16", "float32")
    }
    values = _cases("masking-window-both")["float32"].expected["output"]
    at, beyond = values + allowed["float32"] * 0.99, values + allowed["float32"] * 1.01
    assert compare("output", at, values, allowed["float32"], "float64") <= 1
    assert not isinstance(compare("output", beyond, values, allowed["float32"], "float64"), float)
    assert allowed["float16"].max() > 100 * allowed["float32"].max()


def test_every_rule_has_a_page_with_its_sentence_variants_and_vectors(site):
    for rule in rules():
        text = site.page(f"rules/{rule.id}")
        assert f"# {rule.id} {rule.title}\n" in text
        for variant in rule.variants:
            assert f"{{#{variant.name}}}" in text, rule.id
        for case in cases():
            if case.rules[0] == rule.id:
                assert f"({case.id})=\n" in text
                assert text.count(f'data-case="{case.id}"') == 5


def test_the_section_of_a_rule_ends_at_the_next_heading(site):
    text = site.page("rules/MASK-6").partition("{.sentence}\n")[2]
    assert text.startswith("For a query with no allowed key, the output and the weights MUST be 0")
    reasons = text.partition("## Who does what")[0]
    assert "MASK-7" not in reasons.partition("\n[")[0]
    assert "[MASK-13]: page:MASK-13.html" in reasons


def test_links_in_code_are_kept_and_others_lead_into_the_site():
    text = "`[x](y.md)`\n\n```python\na[0](b)\n```\n\n[a](masking.md)\n\n[MASK-6]: masking.md#m\n"
    new = relink(text, "spec/softmax.md", "rules/SOFT-1", lambda path, _place: path)
    assert "`[x](y.md)`" in new
    assert "a[0](b)" in new
    assert "[a](../spec/masking.md)" in new


def test_names_are_unique_and_their_pages_exist(site):
    pages = {page.path for page in site.part.pages} | {"results/compare"}
    seen = set()
    for name in site.names:
        assert (name.kind, name.name) not in seen, name
        seen.add((name.kind, name.name))
        assert name.address.partition("#")[0].removesuffix(".html") in pages, name
    kinds = {kind for kind, _ in seen}
    assert kinds == {
        "rule", "variant", "case", "operation", "argument", "entry", "finding", "library", "term", "page",
        "section", "question",
    }  # fmt: skip
    assert {("rule", "MASK-6"), ("variant", "MASK-6:uniform"), ("finding", "jax/float64")} <= seen
    assert {("term", "ALiBi"), ("term", "Window"), ("library", "openvino"), ("page", "Changes")} <= seen


def test_every_chapter_and_guide_has_a_page(site):
    # A link to a file of the repository that is not there raises.
    assert len([*(site.folder / "source" / "spec").glob("*.md")]) > 20
    assert len([*(site.folder / "source" / "guide").glob("*.md")]) > 5


def test_sentences_keep_code_and_link_rules():
    assert sentence("a `x < y` of MASK-6 & more", "../", frozenset(["MASK-6"])) == (
        'a <code>x &lt; y</code> of <a href="../rules/MASK-6.html">MASK-6</a> &amp; more'
    )


def test_every_library_with_a_finding_or_a_backend_has_a_page(site):
    names = {*ADAPTERS, *SEPARATE, *PORTABLE}
    assert {backend for library in LIBRARY_NAMES for backend in backends_of(library)} == names
    findings = {name.name.partition("/")[0] for name in site.names if name.kind == "finding"}
    assert findings <= {name.name for name in site.names if name.kind == "library"} == set(LIBRARY_NAMES)


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


def test_portable_code_is_kept_apart_from_the_library_that_it_runs_on(site):
    own, _, portable = site.page("libraries/index").partition("## Portable code")
    rows = {row.partition('.html"')[0]: row for row in own.split('<a href="') if ".html" in row}
    assert "not run" in rows["jax"]
    assert "none" in rows["torch"]
    assert "portable code on JAX" in portable
    assert "say nothing about the attention functions of the library" in portable
    page = site.page("libraries/jax")
    assert page.index("jax-nn-jit") < page.index("portable code on JAX")
    assert page.count("no stored results") == 2


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


def test_a_name_without_its_anchor_is_found(tmp_path):
    folder = _folder(tmp_path, one='<p id="b">y</p>')
    assert problems(folder, ["one.html#b", "one.html"]) == []
    assert problems(folder, ["one.html#c"]) == ["names: one.html#c leads nowhere"]


def test_styles_from_elsewhere_are_found(tmp_path):
    (tmp_path / "site.css").write_text("a { background: url(https://example.org/x.png) }", encoding="utf-8")
    assert "from elsewhere" in problems(_folder(tmp_path, one="x"))[0]


def test_formulas_become_mathml():
    pytest.importorskip("latex2mathml")
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


def test_the_site_has_the_version_of_the_standard(site):
    assert attnspec.__version__ in site.page("index")
    assert "results/compare.html" in site.page("index")


#: What readers typed, and a page that has to be among the first three suggestions.
ASKED = {
    "flash-attn": "spec/calls.html#flashattention",
    "FlashAttention": "spec/calls.html#flashattention",
    "flash attention": "spec/calls.html#flashattention",
    "vLLM": "spec/calls.html#vllm",
    "cudnn": "spec/calls.html#cudnn",
    "dialects": "spec/dialects.html",
    "enable_gqa": "rules/HEAD-1.html",
    "repeat_interleave": "rules/HEAD-1.html",
    "head mapping": "rules/HEAD-1.html",
    "gqa head mapping": "rules/HEAD-1.html",
    "GQA": "rules/HEAD-1.html",
    "causal different lengths": "rules/MASK-3.html",
    "fully masked row": "rules/MASK-6.html",
    "empty row": "rules/MASK-6.html",
    "empty rwo": "rules/MASK-6.html",
    "sliding window": "rules/MASK-8.html",
    "Is a window inclusive?": "rules/MASK-8.html",
    "softcap order": "rules/SCORE-5.html",
    "allowed error": "rules/NUM-3.html",
    "tolerances bf16": "rules/NUM-3.html",
    "deterministic": "rules/NUM-9.html",
    "backward": "rules/GRAD-1.html",
    "compare": "results/compare.html",
    "compare my results": "results/compare.html",
    "export": "guide/offline.html",
    "attnspec.h": "guide/offline.html",
    "header": "guide/offline.html",
    "softmax_scale": "operations/attention.html#scale",
    "mask-6": "rules/MASK-6.html",
    "softmx": "rules/SOFT-1.html",
}


def test_the_words_that_readers_type_find_the_page(site, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    program = (
        f"const {{ prepare, search }} = require({json.dumps(str(ASSETS / 'search.js'))});"
        "globalThis.attnspecNames = (rows) => { const index = prepare(rows);"
        f"const said = {json.dumps([*ASKED, 'zzyzzx'])}.map((query) => search(index, query, 3));"
        "console.log(JSON.stringify(said.map(({ found }) => found.map((one) => one.address)))); };"
    )
    path = tmp_path / "search.js"
    names = (site.folder / "html" / "_static" / "names.js").read_text(encoding="utf-8")
    path.write_text(program + names, encoding="utf-8")
    done = subprocess.run([node, str(path)], check=True, capture_output=True, text=True)
    *found, nothing = json.loads(done.stdout)
    missed = {
        query: those
        for (query, address), those in zip(ASKED.items(), found, strict=True)
        if address not in those
    }
    assert missed == {}
    assert nothing == []


def test_words_of_readers_belong_to_names_that_exist(site):
    from pages.search import WORDS

    assert set(WORDS) <= {(name.kind, name.name) for name in site.names}


def test_what_the_search_shows_has_no_markup(site):
    for name in site.names:
        assert not re.search(r"[$`\\]|\]\(|\*\*", name.name + name.title), name


def test_every_frequently_asked_question_is_found_with_its_answer(site):
    questions = {name.name: name for name in site.names if name.kind == "question"}
    assert len(questions) > 15
    assert questions["Is a window inclusive?"].title.startswith("yes, at both bounds")
    assert questions["Is a window inclusive?"].address == "rules/MASK-8.html"


def test_a_rule_says_who_keeps_it_and_what_the_others_do(site):
    text = site.page("rules/MASK-6").partition("## Who does what")[2].partition("## ")[0]
    rows = [
        re.sub("<[^>]+>", "", row).strip()
        for row in re.findall(r"<tr><td>.*?</td></tr>", re.sub("</td><td[^>]*>", " | ", text))
    ]
    assert rows[0] == "keeps the rule | torch-sdpa 2"
    assert "fails, and declares nothing | ncnn-sdpa 1.5 (1 of 2)" in rows
    assert [row for row in rows if row.startswith("nan: ") and row.endswith("| torch-mha 2 (1 of 2)")]
    assert rows[-1] == "does not offer what the rule is about | 1 backendmlx-fast 1.5"
    assert "jax-portable" not in text
    assert "<code>jax-nn</code>" in text.partition("Without stored results: ")[2]
    assert '<td data-label="backends">' in text
    assert "## Who does what" not in site.page("rules/SOFT-1")


@pytest.mark.parametrize("path", ["rules/index", "findings/index", "cases/masking"])
def test_long_tables_have_a_filter_with_a_count(site, path):
    text = site.page(path)
    kind = re.search(r'data-filter="(\w+)"', text)[1]
    assert f'class="data {kind}' in text
    assert '<output for="filter"' in text
    assert "placeholder=" in text


def test_findings_are_chosen_by_library(site):
    text = site.page("findings/index")
    options = re.findall(r"<option[^>]*>([^<]+)", text)
    assert len(options) == 1 + len(
        {name.name.partition("/")[0] for name in site.names if name.kind == "finding"}
    )


def test_the_questions_have_a_page_with_answers(site):
    text = site.page("questions")
    assert "yes, at both bounds" in text
    assert 'href="rules/MASK-8.html"' in text
    front = site.page("index")
    assert "\nquestions\n" in front
    assert "yes, both bounds" in front


def test_calls_and_dialects_stand_beside_the_libraries(site):
    front = site.page("index")
    (contents,) = re.findall(r":caption: Libraries\n\n(.*?)\n```", front, re.DOTALL)
    assert {"spec/calls", "spec/dialects"} <= set(contents.split())
    assert front.count("\nspec/calls\n") == 1
    assert 'href="spec/calls.html"' in front
    index = site.page("libraries/index")
    assert "FlashAttention" in index


def test_a_page_of_a_rule_has_its_findings_before_its_vectors(site):
    text = site.page("rules/MASK-6")
    assert text.index("## Findings") < text.index("## Golden vectors") < text.index("## Tests")
    for head in ("findings", "golden-vectors", "tests", "wrong-implementations"):
        assert f'href="#{head}"' in text
    assert text.count('<details class="vector">') == text.count('data-format="numpy"') > 5
