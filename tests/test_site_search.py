"""The site: what the search finds, and the tables of its pages. Nothing here needs Sphinx or a browser."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attnspec.conformance.verdict import Verdict

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not shipped")
sys.path.append(str(SITE))

if SITE.is_dir():
    from pages.known import gathered


@pytest.fixture(scope="module")
def known():
    return gathered(ROOT)


def _build():
    spec = importlib.util.spec_from_file_location("site_build", SITE / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def part(known):
    return _build().everything(known, SITE / "nowhere", results=True)


@pytest.fixture(scope="module")
def names(part):
    return part.names


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


def test_the_words_that_readers_type_find_the_page(names, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    program = (
        f"const {{ prepare, search }} = require({json.dumps(str(SITE / 'static' / 'search.js'))});"
        "globalThis.attnspecNames = (rows) => { const index = prepare(rows);"
        f"const said = {json.dumps([*ASKED, 'zzyzzx'])}.map((query) => search(index, query, 3));"
        "console.log(JSON.stringify(said.map(({ found }) => found.map((one) => one.address)))); };"
    )
    path = tmp_path / "search.js"
    path.write_text(program + _build().names_script(names), encoding="utf-8")
    done = subprocess.run([node, str(path)], check=True, capture_output=True, text=True)
    *found, nothing = json.loads(done.stdout)
    missed = {
        query: those
        for (query, address), those in zip(ASKED.items(), found, strict=True)
        if address not in those
    }
    assert missed == {}
    assert nothing == []


def test_words_of_readers_belong_to_names_that_exist(names):
    from pages.words import WORDS

    assert set(WORDS) <= {(name.kind, name.name) for name in names}


def test_what_the_search_shows_has_no_markup(names):
    for name in names:
        assert not re.search(r"[$`\\]|\]\(|\*\*", name.name + name.title), name


def test_every_frequently_asked_question_is_found_with_its_answer(names):
    questions = {name.name: name for name in names if name.kind == "question"}
    assert len(questions) > 15
    assert questions["Is a window inclusive?"].title.startswith("yes, at both bounds")
    assert questions["Is a window inclusive?"].address == "rules/MASK-8.html"


def test_a_rule_says_who_keeps_it_and_what_the_others_do(known):
    from pages.libraries import Standing
    from pages.who import outcomes, who

    from attnspec import find_rule

    def standing(name, *verdicts):
        own = [Verdict(name, f"c{place}", "", ("MASK-6",), *one) for place, one in enumerate(verdicts)]
        return Standing(name, "lib 1.5", (), {}, {}, outcomes(own))

    wrong = replace(Verdict("b", "c", "", ("MASK-6",), "deviation"), rule="MASK-6", variant="nan")
    deviates = Standing("torch-mha", "torch 2", (), {}, {}, outcomes([wrong, replace(wrong, status="pass")]))
    every = [
        standing("torch-sdpa", ("pass",), ("pass",)),
        standing("ncnn-sdpa", ("pass",), ("fail",)),
        standing("mlx-fast", ("unsupported",)),
        standing("jax-portable", ("pass",)),
        deviates,
    ]
    text = who(find_rule("MASK-6"), every, known.ids, results=True)
    rows = [
        re.sub("<[^>]+>", "", row).strip()
        for row in re.findall(r"<tr><td>.*?</td></tr>", re.sub("</td><td[^>]*>", " | ", text))
    ]
    assert rows[0] == "keeps the rule | torch-sdpa 1.5"
    assert "fails, and declares nothing | ncnn-sdpa 1.5 (1 of 2)" in rows
    assert [row for row in rows if row.startswith("nan: ") and row.endswith("| torch-mha 2 (1 of 2)")]
    assert rows[-1] == "does not offer what the rule is about | 1 backendmlx-fast 1.5"
    assert "jax-portable" not in text
    assert "<code>jax-nn</code>" in text.partition("Without stored results: ")[2]
    assert '<td data-label="backends">' in text
    assert who(find_rule("MASK-6"), [], known.ids, results=True) == ""


@pytest.mark.parametrize("path", ["rules/index", "findings/index", "cases/masking"])
def test_long_tables_have_a_filter_with_a_count(part, path):
    text = next(page.text for page in part.pages if page.path == path)
    kind = re.search(r'data-filter="(\w+)"', text)[1]
    assert f'class="data {kind}' in text
    assert '<output for="filter"' in text
    assert "placeholder=" in text


def test_findings_are_chosen_by_library(part, known):
    text = next(page.text for page in part.pages if page.path == "findings/index")
    options = re.findall(r"<option[^>]*>([^<]+)", text)
    assert len(options) == 1 + len({one.library for one in known.findings})


def test_the_questions_have_a_page_with_answers(part):
    text = next(page.text for page in part.pages if page.path == "questions")
    assert "yes, at both bounds" in text
    assert 'href="rules/MASK-8.html"' in text
    front = next(page.text for page in part.pages if page.path == "index")
    assert "\nquestions\n" in front
    assert "yes, both bounds" in front


def test_calls_and_dialects_stand_beside_the_libraries(part):
    front = next(page.text for page in part.pages if page.path == "index")
    (contents,) = re.findall(r":caption: Libraries\n\n(.*?)\n```", front, re.DOTALL)
    assert {"spec/calls", "spec/dialects"} <= set(contents.split())
    assert front.count("\nspec/calls\n") == 1
    assert 'href="spec/calls.html"' in front
    index = next(page.text for page in part.pages if page.path == "libraries/index")
    assert "FlashAttention" in index


def test_a_page_of_a_rule_has_its_findings_before_its_vectors(part):
    text = next(page.text for page in part.pages if page.path == "rules/MASK-6")
    assert text.index("## Findings") < text.index("## Golden vectors") < text.index("## Tests")
    for head in ("findings", "golden-vectors", "tests", "wrong-implementations"):
        assert f'href="#{head}"' in text
    assert text.count('<details class="vector">') == text.count('data-format="numpy"') > 5
