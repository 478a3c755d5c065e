"""The search by symptom: what readers type, in their words, and the page that answers it."""

import json
import re
import shutil
import subprocess

import pytest
from built_site import ASSETS, SITE

from attnspec import find_rule

pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not shipped")

FINDINGS = SITE.parent / "backends" / "findings"
#: What readers typed, and the rules of which one has to be among the first three results, either itself or in
#: a symptom.
SEARCHES = {
    "nan when all keys masked": "MASK-6",
    "causal off by one kv cache": "MASK-7 MASK-3",
    "cu_seqlens empty sequence": "PACK-2",
    "rope interleaved": "POS-3",
    "int8 kv cache": "QUANT-8 QUANT-1",
    "log2 lse flashinfer": "SOFT-6",
    "nan loss with padding": "GRAD-10 MASK-6 MASK-13",
    "gqa wrong head": "HEAD-1",
    "repeat_interleave vs repeat": "HEAD-1",
    "sliding window off by one": "MASK-8",
    "window_size inclusive": "MASK-8",
    "softcap before or after mask": "SCORE-5",
    "gemma logit softcapping": "SCORE-5",
    "is_causal top left or bottom right": "MASK-3 MASK-7",
    "decode with one token attends to only first key": "MASK-3 MASK-7",
    "mask True means masked": "MASK-1",
    "key_padding_mask ignored": "ERR-3 MASK-1",
    "attention mask has no effect": "ERR-3 MASK-1",
    "bf16 tolerance": "NUM-3 NUM-5",
    "allclose fails fp16": "NUM-3 NUM-5",
    "is 0.008 error ok in bfloat16": "NUM-3",
    "what atol should I use": "NUM-3",
    "softmax in fp16 inaccurate": "NUM-5",
    "non contiguous input wrong result": "NUM-8",
    "results differ between runs": "NUM-9",
    "batch size changes output": "NUM-10 INV-1",
    "batch invariant": "NUM-10 INV-1",
    "prefill and decode mismatch": "CACHE-3 INV-5",
    "dropout in eval mode": "DROP-10 ERR-3",
    "attention sink gpt-oss": "SOFT-5",
    "sink logit": "SOFT-5",
    "merge split kv results": "CACHE-6",
    "ring attention merge lse": "CACHE-6",
    "lse of fully masked row": "SOFT-7",
    "gradient of lse": "GRAD-6",
    "dbias wrong shape": "GRAD-4",
    "gqa backward sum": "GRAD-3",
    "alibi 12 heads": "POS-7",
    "alibi sign": "POS-8",
    "position_ids with left padding": "POS-10 POS-5",
    "yarn scaling factor": "POS-21 POS-22",
    "mrope qwen": "POS-15",
    "block table out of range": "PAGE-8",
    "left padding paged cache": "PAGE-6",
    "nan in unused cache": "MASK-13 PAGE-5",
    "document mask packing leak": "PACK-1 MASK-11",
    "fp8 descale": "QUANT-8 QUANT-1",
    "e4m3 nan": "QUANT-3 QUANT-12",
    "seqlen not multiple of 128": "SOFT-3 MASK-9",
    "empty tensor crash": "SHAPE-7",
    "head_dim_v different": "SHAPE-3",
    "mla softmax scale": "LATENT-2",
    "topk index -1": "SPARSE-7",
    "torch.compile drops scale": "SCORE-3 ERR-3",
    "number of heads not divisible": "HEAD-2",
    "RuntimeError: No available kernel": "ERR-3",
    "results differ between cpu and gpu": "NUM-3",
    "score_mod": "SCORE-4",
}


@pytest.fixture(scope="module")
def first_three(site, tmp_path_factory):
    """The first three results of each search, as the script of the pages finds them."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node")
    path = tmp_path_factory.mktemp("search") / "search.js"
    path.write_text(
        f"const {{ prepare, search, unpack }} = require({json.dumps(str(ASSETS / 'search.js'))});"
        "globalThis.attnspecNames = async (data) => { const index = prepare(await unpack(data));"
        f"const said = {json.dumps([*SEARCHES])}.map((query) => search(index, query, 3).found);"
        "console.log(JSON.stringify(said.map((names) => names.map((name) => name.address)))); };"
        + (site.folder / "html" / "_static" / "names.js").read_text(encoding="utf-8"),
        encoding="utf-8",
    )
    done = subprocess.run([node, str(path)], check=True, capture_output=True, text=True)
    return dict(zip(SEARCHES, json.loads(done.stdout), strict=True))


def entries():
    from pages.symptoms import read_symptoms

    return read_symptoms()


def test_symptoms_are_found_in_the_words_of_readers(first_three):
    rules_of = {f"symptoms.html#{symptom.place}": symptom.rules for symptom in entries()}
    missed = {}
    for query, wanted in SEARCHES.items():
        answers = {
            answer
            for address in first_three[query]
            for answer in rules_of.get(address, (re.sub(r"^rules/|\.html.*", "", address),))
        }
        if not answers & set(wanted.split()):
            missed[query] = first_three[query]
    assert len(SEARCHES) == 58
    assert len(missed) <= 6, missed


def test_each_symptom_has_rules_that_exist_and_a_thread():
    symptoms = entries()
    rows = "".join(path.read_text(encoding="utf-8") for path in (FINDINGS / "families").glob("*.py"))
    assert len(symptoms) >= 60
    assert len({symptom.place for symptom in symptoms}) == len(symptoms)
    for symptom in symptoms:
        rule, *_ = [find_rule(rule) for rule in symptom.rules]
        assert symptom.variant in {"", *(variant.name for variant in rule.variants)}, symptom.text
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


def test_the_data_of_the_search_are_small(site):
    assert (site.folder / "html" / "_static" / "names.js").stat().st_size < 500_000
