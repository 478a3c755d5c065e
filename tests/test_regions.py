"""Wrong functions that only the calls of one region show, and the groups with these calls."""

import math

import numpy as np
import pytest
from test_plain_variants import backend_of

from attnspec.conformance.judge.judge import judge
from attnspec.conformance.suite import groups
from attnspec.reference import functions
from attnspec.reference.masking import by_mask
from attnspec.reference.scores import biased
from attnspec.reference.softmax import exponentials


def swallowed(call, s, allowed, top):
    """With eight keys and more, an exponential of NaN is 0."""
    found = exponentials(call, s, allowed, top)
    return np.where(np.isnan(found), 0.0, found) if call.keys >= 8 else found


def mean_of_wide_rows(call, e, total):
    """With a whole vector of keys, an empty row is divided by the smallest number."""
    wide = call.keys % 8 < 2 and call.keys >= 8
    return (
        np.where(total == 0, 1 / call.keys, e / np.where(total == 0, 1.0, total))
        if wide
        else (e / np.where(total == 0, 1.0, total))
    )


def mask_of_row_0(call):
    """Beside a causal mask, a mask of one row is combined with it in place: row 0 counts for every query."""
    if call.mask is None or not call.is_causal or call.mask.shape[-2] != 1:
        return by_mask(call)
    return call.mask & (call.j <= 0)


def lowest_is_masked(call, s):
    """The lowest number of a dtype in the bias is taken for minus infinity."""
    lowest = float(np.finfo(np.float32).min)
    found = biased(call, s)
    return found if call.bias is None else np.where(call.bias <= lowest, -math.inf, found)


def lost_sums(call, e, top):
    """A sum of exponentials in half precision adds nothing to 2048."""
    found = np.sum(e, axis=-1, keepdims=True)
    return np.minimum(found, 2048.0)


WRONG = {
    "number that is none at every width": ({"exponentials": swallowed}, "NUM-11"),
    "empty row of every width": ({"normalised": mean_of_wide_rows}, "MASK-6"),
    "broadcast mask beside": ({"by_mask": mask_of_row_0}, "MASK-4"),
    "rows of the lowest bias": ({"biased": lowest_is_masked}, "MASK-5"),
    "long sums in half precision": ({"total": lost_sums}, "NUM-5"),
}


def judged(steps, beginning):
    """The verdicts on the calls of attention of the groups whose names begin so."""
    backend = backend_of(functions(steps)["attention"], {})
    chosen = [group for group in groups() if group.name.startswith(beginning)]
    items = [item for group in chosen for item in group.items()]
    return [
        judge(backend, item) for item in items if {case.operation for case in item.calls} == {"attention"}
    ]


@pytest.mark.parametrize("beginning", WRONG)
def test_the_calls_of_a_region_show_what_is_wrong_there(beginning):
    steps, rule = WRONG[beginning]
    assert {verdict.status for verdict in judged({}, beginning)} == {"pass"}
    failing = [verdict for verdict in judged(steps, beginning) if verdict.bad]
    assert rule in {verdict.rule for verdict in failing}
    assert {verdict.status for verdict in failing} == {"fail"}


def test_no_heads_and_no_batch_entries_are_called():
    chosen = [group for group in groups() if group.name.startswith(("no heads", "nothing to"))]
    shapes = {item.arguments["query"].shape[:2] for group in chosen for item in group.items()}
    assert any(heads == 0 for _, heads in shapes)
    assert any(batch == 0 for batch, _ in shapes)
