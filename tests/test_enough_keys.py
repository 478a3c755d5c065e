"""A function of decoding has as many keys as queries, or more: `lengths = "enough"` under `[backend]`."""

import numpy as np
import pytest

from attnspec import reference
from attnspec.backends import BackendError
from attnspec.backends.constraints import Constraints, fits
from attnspec.conformance import check

ENOUGH = Constraints(lengths="enough")
ONES = np.ones((2, 3, 4, 8))


def decode(query, key, value, *, key_lengths=None):
    """Queries that stand for no token give 0."""
    keys = key.shape[-2] if key_lengths is None else np.asarray(key_lengths).astype(int)
    output = reference.attention(query, key, value, key_lengths=key_lengths, dtype=query.dtype)
    rows = np.arange(query.shape[-2]) >= query.shape[-2] - np.expand_dims(keys, -1)
    rows = rows[..., None, :, None] if rows.ndim > 1 else rows[:, None]
    return np.where(rows, output, 0).astype(query.dtype)


@pytest.mark.parametrize(
    ("operation", "arguments", "keys"),
    [
        ("attention", {"query": ONES, "key": ONES[..., :3, :], "value": ONES[..., :3, :]}, 3),
        ("attention", {"query": ONES, "key": ONES, "value": ONES}, None),
        ("attention", {"query": ONES, "key": ONES, "value": ONES, "key_lengths": np.array([4, 2])}, 2),
        ("attention", {"query": ONES, "key": ONES, "value": ONES, "key_lengths": 1}, 1),
        (
            "packed_attention",
            dict.fromkeys(("query", "key", "value"), ONES[0])
            | {"query_starts": np.array([0, 2, 4]), "key_starts": np.array([0, 1, 4])},
            1,
        ),
        (
            "paged_attention",
            {"query": ONES, "key_pages": ONES, "value_pages": ONES}
            | {"block_table": np.zeros((2, 2), int), "key_lengths": np.array([5, 3])},
            3,
        ),
    ],
)
def test_a_sequence_with_fewer_keys_than_queries_does_not_fit(operation, arguments, keys):
    said = f"takes only at least as many keys as queries of a sequence, got {keys} keys" if keys else ""
    assert fits(ENOUGH, arguments, operation) == said
    assert not fits(Constraints(), arguments, operation)


def test_it_is_declared_in_a_claim_and_changes_no_case():
    assert (ENOUGH.suffix, ENOUGH.others) == ("", "keys.enough")
    assert Constraints.of_suffix("a4-keys.enough") == Constraints(axes=4, lengths="enough")


def test_a_decoder_is_judged_where_it_has_enough_keys():
    wanted = {"rules": ["SOFT-1", "SHAPE-5", "MASK-9"], "quick": True}
    assert not check(decode, **wanted).good
    found = check(decode, **wanted, lengths="enough")
    assert found.good
    reasons = {verdict.reason for verdict in found.report.results.verdicts}
    assert any("takes only at least as many keys as queries of a sequence" in reason for reason in reasons)

    def wrong(query, key, value, *, key_lengths=None):
        return decode(
            query, key, value, key_lengths=None if key_lengths is None else np.maximum(key_lengths, 3)
        )

    assert not check(wrong, **wanted, lengths="enough").good
    with pytest.raises(BackendError, match="lengths: expected any, equal or enough, got 'more'"):
        check(decode, **wanted, lengths="more")
