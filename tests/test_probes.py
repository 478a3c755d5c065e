"""Probes of other sizes name the condition under which a kernel is wrong, or say nothing."""

import numpy as np
import pytest
from tests_support import command

from attnspec.backends import describe
from attnspec.conformance import find
from attnspec.conformance.attribution import probes
from attnspec.conformance.attribution.probes import Probe, probe_case
from attnspec.conformance.run import run
from attnspec.reference import attention as reference
from attnspec.reference import paged_attention

LONG = "softmax-maximum-over-tiles-rises-in-each-tile-1"
WINDOW = "errors-option-past-large-tiles-window-and-alone-1"
PAGES = "paging-causal-with-an-offset-end-1"


def attention(query, key, value, **options):
    """The reference, in the dtype of the query."""
    return reference(query, key, value, **options).astype(query.dtype)


def with_a_clamped_tile(query, key, value):
    """The start of the last of some tiles is clamped, and its places are counted from another start."""
    keys, tile = key.shape[-2], min(32, key.shape[-2])
    tiles = [(start, min(start, keys - tile)) for start in range(0, keys, tile)]
    read = np.concatenate([clamped + np.arange(min(tile, keys - start)) for start, clamped in tiles])
    return attention(query, key[..., read, :], value[..., read, :])


def with_a_loop_that_ends_early(query, key, value):
    """The rows of a tile see the keys up to the end of this tile."""
    ends = (np.arange(query.shape[-2]) // 40 + 1) * 40
    return attention(query, key, value, mask=np.arange(key.shape[-2]) < ends[:, None])


def with_two_empty_tiles(query, key, value, *, window=None):
    """Two tiles without a visible key are merged to NaN."""
    output = attention(query, key, value, window=window).copy()
    if window is not None and window[0] is not None:
        first = np.arange(query.shape[-2]) - window[0]
        output[..., (first >= 2 * 16) & (first < key.shape[-2]), :] = np.nan
    return output


def with_a_causal_last_page(query, key_pages, value_pages, *, block_table, key_lengths, is_causal=False):
    """The causal mask is applied in the last page of a sequence."""
    queries, page = query.shape[-2], key_pages.shape[-2]
    lengths = np.asarray(key_lengths)[:, None, None, None]
    keys = np.arange(block_table.shape[-1] * page)
    seen = keys <= np.arange(queries)[:, None] + lengths - queries
    mask = seen | (keys < (lengths - 1) // page * page) | (not is_causal)
    pages = {"block_table": block_table, "key_lengths": key_lengths}
    return paged_attention(query, key_pages, value_pages, **pages, mask=mask).astype(query.dtype)


@pytest.mark.parametrize(
    ("kernel", "case", "condition"),
    [
        (with_a_clamped_tile, LONG, "more than 32 keys and a number of keys that is no multiple of 32 fail"),
        (with_a_loop_that_ends_early, f"{LONG}+equal.lengths", "with more than 40 queries and keys fail"),
        (with_two_empty_tiles, WINDOW, "with a row that does not attend to any of its first 32 keys fail"),
        (with_a_causal_last_page, PAGES, "at least 2 of its queries before the last page, of 16 keys, fail"),
    ],
)
def test_the_condition_of_a_bug_is_named(kernel, case, condition):
    operation = "paged_attention" if case == PAGES else "attention"
    lengths = {"lengths": "equal"} if "equal" in case else {}
    said = probe_case(describe(kernel, operation=operation, **lengths), find(f"{case}-float32"), 20.0)
    assert said.startswith("probed: ")
    assert condition in said


def twice(query, key, value):
    return 2 * attention(query, key, value)


@pytest.mark.parametrize("kernel", [attention, twice])
def test_nothing_is_said_where_all_probes_are_alike(kernel):
    assert probe_case(describe(kernel), find(f"{LONG}-float32"), 20.0) == ""


def describe_sizes(*wrong, sizes=range(1, 20), windows=()):
    found = [Probe({"queries": 1, "keys": size, "hidden": 0}, size in wrong) for size in sizes]
    return probes.describe([*found, *windows], found)


def test_a_condition_is_said_of_probes_on_both_its_sides():
    assert "more than 7 keys fail" in describe_sizes(*range(8, 20))
    # With no probe of 8 keys, nothing is known of the bound.
    said = describe_sizes(*range(9, 20), sizes=[*range(1, 8), *range(9, 20)])
    assert said == "probed: with other numbers of keys, 7 from 1 to 7 pass, 11 from 9 to 19 fail"
    assert describe_sizes(3, 4, 5) == (
        "probed: with other numbers of keys, 1, 2 pass, 3 from 3 to 5 fail, 14 from 6 to 19 pass"
    )
    assert describe_sizes(3, 4) == ""
    hidden = [Probe({"queries": 1, "keys": 9, "hidden": n}, n > 0) for n in (0, 0, 0, *range(1, 9))]
    assert "with a row that does not attend to its first key fail" in probes.describe(hidden, [])
    # A condition on sizes that other windows do not meet is one of the window of the call.
    other = [Probe({"queries": 1, "keys": 12, "hidden": 0}, wrong=False)]
    assert "of 19 calls like it with other sizes, exactly the 12" in describe_sizes(
        *range(8, 20), windows=other
    )


def test_bounds_of_both_sizes_are_named_and_before_a_property_of_rows():
    sizes = [(133, n) for n in (64, 73, 74, 139)] + [(n, 139) for n in (16, 32, 33, 64)]
    found = [Probe({"queries": n, "keys": m, "hidden": 0}, n > 32 and m > 73) for n, m in sizes]
    assert "exactly the 4 with more than 32 queries and more than 73 keys fail" in probes.describe(found, [])
    equal = [Probe({"queries": n, "keys": n, "hidden": max(n - 3, 0)}, n > 6) for n in range(1, 20)]
    assert "with more than 6 queries and keys fail" in probes.describe(equal, [])


def test_the_report_says_what_probes_show(monkeypatch):
    monkeypatch.setattr(run, "PROBE_SECONDS", (600.0, 600.0))  # whatever else the machine does
    text = command("check", f"{__file__}:with_a_clamped_tile", "--smoke", "-k", "SOFT", status=1).output
    assert "32 keys and a number of keys that is no multiple of 32 fail" in " ".join(text.split())
