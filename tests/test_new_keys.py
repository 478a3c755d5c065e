"""Tests of functions that write new keys into pages in each call."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from attnspec.backends import Unsupported, load
from attnspec.backends.user.inference import infer_configuration
from attnspec.backends.user.new_keys import with_own_new_keys
from attnspec.conformance import check, find
from attnspec.conformance.run.plan import index
from attnspec.reference import paged_attention

pytestmark = pytest.mark.usefixtures("here")
KERNEL = """
import numpy as np
from attnspec.reference import paged_attention


def chunk(q, k_new, v_new, k_cache, v_cache, block_table, offset, *, scale=None):
    pages, page = (k_cache.copy(), v_cache.copy()), k_cache.shape[1]
    for entry, row in np.ndindex(q.shape[:2]):
        at = offset[entry] + row
        if WRITES:
            for cache, new in zip(pages, (k_new, v_new)):
                cache[block_table[entry, at // page], at % page] = new[entry, row]
    query, keys, values = (x.swapaxes(1, 2) for x in (q, *pages))
    lengths = offset + np.int32(q.shape[1])
    output, lse = paged_attention(
        query, keys, values, block_table=block_table, key_lengths=lengths, scale=scale, is_causal=True,
        return_lse=True,
    )
    return output.swapaxes(1, 2).astype(q.dtype), RETURNED


def step(q, k_new, v_new, k_pages, v_pages, page_table, lengths):
    assert k_new.ndim == 3
    rows = (x[:, None] for x in (q, k_new, v_new))
    pages = (x.transpose(1, 2, 0, 3) for x in (k_pages, v_pages))
    return chunk(*rows, *pages, page_table, lengths)[0][:, 0], k_pages, v_pages
"""
IN_PLACE = """
from attnspec.reference import paged_attention


def cached(q, k_cache, v_cache, k=None, v=None, *, cache_seqlens, block_table, causal=False):
    page, rows = k_cache.shape[1], 0 if k is None else k.shape[1]
    for entry in range(len(q)):
        for row in range(rows):
            at = int(cache_seqlens[entry]) + row
            for cache, new in ((k_cache, k), (v_cache, v)):
                cache[block_table[entry, at // page], at % page] = new[entry, row]
    query, keys, values = (x.swapaxes(1, 2) for x in (q, k_cache, v_cache))
    options = {"block_table": block_table, "key_lengths": cache_seqlens + rows, "is_causal": causal}
    return paged_attention(query, keys, values, **options).swapaxes(1, 2).astype(q.dtype)
"""
#: Arguments that the widths of tables and masks do not depend on.
PLAIN = {
    *("query", "key_pages", "value_pages", "block_table", "key_lengths", "new_key", "new_value"),
    *("is_causal", "scale", "softcap", "window", "left_padding"),
}


def write(name, *, writes="True", returned="lse"):
    Path(f"{name}.py").write_text(KERNEL.replace("WRITES", writes).replace("RETURNED", returned))


def plain_cases():
    outlines = (x for x in index() if x.calls and not x.related and not x.refusal and x.dtype == "float32")
    outlines = (x for x in outlines if x.calls[0].operation == "paged_attention")
    return [find(x.name) for x in outlines if {*x.calls[0].arguments} <= PLAIN]


def test_the_last_positions_are_new_ones_wherever_a_call_has_them():
    cases, translated, longer = plain_cases(), 0, 0
    for case in cases:
        try:
            own = with_own_new_keys(case.arguments, np)
        except Unsupported:
            continue
        translated += 1
        queries, page = case.arguments["query"].shape[-2], own["key_pages"].shape[-2]
        longer += case.arguments.get("new_key", own["new_key"]).shape[-2] > queries
        assert own["new_key"].shape[-2] == own["new_value"].shape[-2] == queries, case.name
        want, got = (paged_attention(**call) for call in (case.arguments, own))
        np.testing.assert_array_equal(got, want, err_msg=case.name)
        tables = np.reshape(own["block_table"], (-1, own["block_table"].shape[-1]))
        lengths = np.broadcast_to(own["key_lengths"], own["block_table"].shape[:-1]).ravel()
        slots = [(row[at // page], at % page) for row, n in zip(tables, lengths, strict=True)
                 for at in range(n, n + queries)]  # fmt: skip
        assert len({*slots}) == len(slots), "no other sequence has them"
        assert all(not own["key_pages"][number, :, row].any() for number, row in slots), case.name
    assert translated > 40
    assert longer


def test_a_sequence_of_fewer_keys_than_queries_is_declined():
    call = dict(find("paging-new-causal-float32").arguments) | {"key_lengths": np.array(2, np.int32)}
    for name in ("new_key", "new_value"):
        del call[name]
    with pytest.raises(Unsupported, match="got 3 queries of a sequence of 2 keys"):
        with_own_new_keys(call, np)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"key_lengths": 99}, "a malformed call"),
        ({"block_table": np.array([99, 99, 99])}, "a malformed call"),
        ({"new_key": np.ones((2, 2, 3, 2), np.float32)}, "a malformed call"),
        ({"new_value": None}, "the function takes new keys and new values together, got new_key alone"),
    ],
)
def test_a_malformed_call_is_declined_and_not_rejected_in_place_of_the_function(change, reason):
    call = dict(find("paging-new-causal-float32").arguments)
    call = {name: x for name, x in (call | change).items() if x is not None}
    with pytest.raises(Unsupported, match=reason):
        with_own_new_keys(call, np)
    if "new_value" in change:
        assert with_own_new_keys(call, np, needed=False) == call, "which is for the function to reject"


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("chunk", {"always": {"is_causal": True}, "returns": ["output", "lse"]}),
        (
            "step",
            {
                "one_query": True,
                "returns": ["output", "_", "_"],
                "shapes": {"key_pages": "Hkv, P, K, D", "value_pages": "Hkv, P, K, Dv"},
            },
        ),
    ],
)
def test_init_describes_a_function_that_needs_new_keys(name, keys):
    write(f"new_keys_of_{name}")
    text = infer_configuration(f"./new_keys_of_{name}.py:{name}")
    found = tomllib.loads(text)["backend"]
    assert {key: found.get(key) for key in keys} == keys
    assert found["names"]["key_lengths" if name == "chunk" else "block_table"]
    names = [
        "paging-new-float32" if name == "step" else "paging-new-causal-float32",
        "paging-pages-in-any-order-3",
    ]
    for writes in ("True", "False"):
        write(f"new_keys_{writes}", writes=writes)
        Path("attnspec.toml").write_text(text.replace(f"new_keys_of_{name}", f"new_keys_{writes}"))
        verdicts = check(load("."), cases=names).report.results.verdicts
        statuses = {verdict.status for verdict in verdicts if verdict.dtype == "float32"}
        assert statuses == {"pass" if writes == "True" else "fail"}


def test_a_function_that_writes_new_keys_into_its_pages_gets_copies_of_these():
    Path("in_place.py").write_text(IN_PLACE)
    text = infer_configuration("./in_place.py:cached")
    assert "writes = true  # it wrote new keys into its pages, and gets copies of these\n" in text
    assert "per_entry = true  # with new keys and one length" in text
    names = ["paging-new-float32", "paging-new-causal-float32", "paging-new-positions-past-a-page-1"]
    for writes in (True, False):
        Path("attnspec.toml").write_text(text if writes else text.replace("writes = true", ""))
        verdicts = check(load("."), cases=names, dtypes=["float32"]).report.results.verdicts
        judged = {(x.status, x.main_rule if x.bad else "") for x in verdicts if x.dtype == "float32"}
        assert judged == {("pass", "")} if writes else ("fail", "NUM-4") in judged


@pytest.mark.parametrize(
    ("returned", "returns"),
    [("lse", ["output", "lse"]), ("k_cache", ["output", "_"]), ("None", ["output", "_"])],
)
def test_a_second_result_is_an_lse_if_it_has_an_axis_less(returned, returns):
    write(f"second_{returned}", returned=returned)
    found = tomllib.loads(infer_configuration(f"./second_{returned}.py:chunk"))["backend"]
    assert found["returns"] == returns
