"""Wrong implementations: each fails under its rule, in a case of this rule.

Most of them live in the gallery, and `tests/test_gallery.py` judges those; these are of other kinds.
"""

import pytest
import wrong

from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import items

WRONG = [
    (wrong.window_lost_beside_a_mask, "ERR-3"),
    (wrong.segments_of_sign, "MASK-11"),
    (wrong.sink_of_first_head, "HEAD-1"),
    (wrong.sink_of_first_head, "SOFT-5"),
    (wrong.infinity_as_zero, "NUM-14"),
    (wrong.first_offset_of_two_calls, "ERR-13"),
    (wrong.noisy, "NUM-9"),
    (wrong.multi_head_attention, "HEAD-7"),
    (wrong.split_heads, "HEAD-5"),
    (wrong.gather_pages, "CACHE-5"),
    (wrong.rotary, "POS-5"),
    (wrong.append_cache, "CACHE-1"),
]


@pytest.mark.parametrize(("backend", "rule"), WRONG, ids=[f"{one.name}-{rule}" for one, rule in WRONG])
def test_what_is_wrong_is_found_under_its_rule(backend, rule):
    found = None
    for item in items(rules=[rule]):
        verdict = judge(backend, item)
        if verdict.rule == rule and verdict.status in ("fail", "should not met"):
            found = item
            break
    assert found is not None, "passes"
    assert judge(wrong.portable, found).status == "pass", "the case that finds it, and not any call"
