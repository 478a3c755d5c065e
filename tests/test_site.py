"""The site: what can be tested without Sphinx and without a browser."""

import ctypes
import importlib.util
import json
import lzma
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import attnspec
from attnspec import CHAPTERS, cases, find_case, rules
from attnspec.backends.names import ADAPTERS, LIBRARY_NAMES, PORTABLE, SEPARATE, backends_of, library_of
from attnspec.case_json import decode, from_json
from attnspec.conformance.judge.comparison import compare
from attnspec.conformance.judge.dtypes import in_each
from attnspec.reference.budget.budget import budget, plain

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not shipped")
sys.path.append(str(SITE))

if SITE.is_dir():
    from check import problems
    from pages.allowed import in_dtypes
    from pages.chapters import chapters, guides, section
    from pages.known import gathered
    from pages.libraries import Standing, libraries
    from pages.links import addresses, relinked
    from pages.page import inline
    from pages.rules import rules as pages_of_rules
    from pages.snippets import in_c, in_jax, in_json, in_numpy, in_torch


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


@pytest.fixture(scope="module")
def known():
    return gathered(ROOT)


@pytest.fixture(scope="module")
def address(known):
    return addresses(ROOT, tuple(known.rules.values()), {}, results=False)


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


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_snippet_of_numpy_holds_the_numbers_of_its_vector(chapter):
    for case in cases():
        if case.chapter == chapter:
            _run(in_numpy(case), case)


@pytest.mark.parametrize("name", CASES)
def test_a_snippet_of_pytorch_holds_the_numbers_of_its_vector(name):
    pytest.importorskip("torch")
    _run(in_torch(find_case(name)), find_case(name), lambda tensor: tensor.numpy())


@pytest.mark.parametrize("name", CASES)
def test_a_snippet_of_jax_holds_the_numbers_of_its_vector(name):
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    try:
        _run(in_jax(find_case(name)), find_case(name))
    finally:
        jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("name", CASES)
def test_a_snippet_of_c_compiles_and_holds_the_numbers_of_its_vector(name, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    case = find_case(name)
    text = in_c(case)
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
def test_a_snippet_of_json_is_the_entry_of_the_vector_file(name):
    case = from_json(json.loads(in_json(find_case(name))))
    assert case.fingerprint == find_case(name).fingerprint
    for key, array in find_case(name).expected.items():
        np.testing.assert_array_equal(case.expected[key], array)


@pytest.mark.parametrize("name", CASES)
def test_copies_hold_the_errors_that_the_budget_allows_in_each_dtype(name):
    """A budget computed here, without the way by which the site has it."""
    case = find_case(name)
    found = in_dtypes(name)
    assert list(found) == [one.dtype for one in in_each(case)]
    for dtype, (one, allowed) in found.items():
        scope = {}
        exec(in_numpy(one, allowed), scope)
        entry = json.loads(in_json(one, allowed)).get("allowed", {})
        text = in_c(one, allowed)
        assert set(scope.get("allowed", {})) == set(entry) == set(allowed)
        if case.misuse is None:
            assert set(allowed) == set(case.expected)
        if not allowed:  # the call must be refused
            continue
        operation, arguments = plain(one.operation, one.arguments)
        accuracy = "cast" if dtype in ("float16", "bfloat16") else "full"
        budgets = budget(operation, arguments, dtype, accuracy=accuracy)
        for output, array in scope.get("allowed", {}).items():
            ordinary = np.isfinite(array)
            expected = np.broadcast_to(budgets[output], array.shape)
            np.testing.assert_array_equal(array[ordinary], expected[ordinary], err_msg=f"{dtype} {output}")
            np.testing.assert_array_equal(decode(entry)[output], array)
            assert f"allowed_{output}" in text
            # Only what is not a number has no ordinary budget.
            values = case.expected.get("lse", case.expected[output])
            assert ordinary.all() or not np.isfinite(values).all()


def test_a_result_at_its_allowed_error_passes_and_one_beyond_it_fails():
    case, allowed = in_dtypes("masking-window-both")["float32"]
    values = case.expected["output"]
    at, beyond = values + allowed["output"] * 0.99, values + allowed["output"] * 1.01
    assert compare("output", at, values, allowed["output"], "float64") <= 1
    assert not isinstance(compare("output", beyond, values, allowed["output"], "float64"), float)
    assert in_dtypes("masking-window-both")["float16"][1]["output"].max() > 100 * allowed["output"].max()


@pytest.mark.exhaustive
def test_every_rule_has_a_page_with_its_sentence_variants_and_vectors(known, address):
    pages = {page.path: page.text for page in pages_of_rules(known, address, results=False).pages}
    for rule in rules():
        text = pages[f"rules/{rule.id}"]
        assert f"# {rule.id} {rule.title}\n" in text
        for variant in rule.variants:
            assert f"{{#{variant.name}}}" in text, rule.id
        for case in cases():
            if case.rules[0] == rule.id:
                assert f"({case.id})=\n" in text
                assert text.count(f'data-case="{case.id}"') == 5


def test_the_section_of_a_rule_ends_at_the_next_heading(known, address):
    sentence, rest = section(known, "MASK-6", "masking", address)
    assert sentence.startswith("For a query with no allowed key, the output and the weights MUST be 0")
    assert "MASK-7" not in rest.partition("\n[")[0]
    assert "[MASK-13]: page:MASK-13.html" in rest


def test_names_are_unique_and_their_pages_exist(known, address):
    module = _build()
    part = module.everything(known, SITE / "nowhere", results=False)
    pages = {page.path for page in part.pages}
    seen = set()
    for name in part.names:
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


def _build():
    spec = importlib.util.spec_from_file_location("site_build", SITE / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_linked_file_of_the_repository_exists(known, address):
    # A link to a file that is not there raises.
    assert len(chapters(known, address).pages) > 20
    assert len(guides(known, address).pages) > 5


def test_links_in_code_are_kept(address):
    text = "`[x](y.md)`\n\n```python\na[0](b)\n```\n\n[a](masking.md)\n\n[MASK-6]: masking.md#m\n"
    new = relinked(text, "spec/softmax.md", "rules/SOFT-1", address)
    assert "`[x](y.md)`" in new
    assert "a[0](b)" in new
    assert "[a](../spec/masking.md)" in new


def test_sentences_keep_code_and_link_rules():
    ids = frozenset(["MASK-6"])
    assert inline("a `x < y` of MASK-6", known=ids) == (
        'a <code>x &lt; y</code> of <a href="../rules/MASK-6.html">MASK-6</a>'
    )


def test_every_library_with_a_finding_or_a_backend_has_a_page(known):
    names = {*ADAPTERS, *SEPARATE, *PORTABLE}
    assert {one.library for one in known.findings} <= set(LIBRARY_NAMES)
    assert {backend for library in LIBRARY_NAMES for backend in backends_of(library)} == names


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


def test_portable_code_is_kept_apart_from_the_library_that_it_runs_on(known):
    standing = (
        Standing("jax-portable", "jax 1", ("core", "masked"), {"pass": 9}, {}, {}),
        Standing("torch-sdpa", "torch 2", ("core",), {"pass": 9}, {}, {}),
        Standing("torch-portable", "torch 2", ("core", "masked"), {"pass": 9}, {}, {}),
    )
    pages = {one.path: one.text for one in libraries(known, standing, results=True).pages}
    own, _, portable = pages["libraries/index"].partition("## Portable code")
    rows = {row.partition('.html"')[0]: row for row in own.split('<a href="') if ".html" in row}
    assert "not run" in rows["jax"]
    assert "masked" not in rows["jax"]
    assert "masked" not in rows["torch"]
    assert "core" in rows["torch"]
    assert "portable code on JAX" in portable
    assert "masked" in portable
    assert "say nothing about the attention functions of the library" in portable
    page = pages["libraries/jax"]
    assert page.index("jax-nn-jit") < page.index("portable code on JAX")
    assert page.count("no stored results") == 2


def _site(folder, **pages):
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(
            f"<!doctype html><html><body>{body}</body></html>", encoding="utf-8"
        )
    return folder


def test_the_check_finds_what_is_wrong_with_a_site(tmp_path):
    good = '<h1 id="a">x</h1><a href="two.html#b">two</a> <a href="https://example.org">out</a>'
    assert problems(_site(tmp_path, one=good, two='<p id="b">y</p>')) == []
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
        found = problems(_site(tmp_path, one=body))
        assert len(found) == 1, body[:60]
        assert said in found[0]


def test_a_name_without_its_anchor_is_found(tmp_path):
    folder = _site(tmp_path, one='<p id="b">y</p>')
    assert problems(folder, ["one.html#b", "one.html"]) == []
    assert problems(folder, ["one.html#c"]) == ["names: one.html#c leads nowhere"]


def test_styles_from_elsewhere_are_found(tmp_path):
    (tmp_path / "site.css").write_text("a { background: url(https://example.org/x.png) }", encoding="utf-8")
    assert "from elsewhere" in problems(_site(tmp_path, one="x"))[0]


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


def test_the_site_has_the_version_of_the_standard(known):
    from pages.front import front

    (index, *_) = front(known, results=True).pages
    assert attnspec.__version__ in index.text
    assert "results/compare.html" in index.text
    (index, *_) = front(known, results=False).pages
    assert "results/" not in index.text
