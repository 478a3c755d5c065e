"""A function of decoding has as many keys as queries, or more: `lengths = "enough"` under `[backend]`."""

import sys

import numpy as np
import pytest

from attnspec import reference
from attnspec.backends import BackendError
from attnspec.backends.constraints import Constraints, fits
from attnspec.backends.user.inference import infer_configuration
from attnspec.conformance import check

ENOUGH = Constraints(lengths="enough")
ONES = np.ones((2, 3, 4, 8))
#: Rows of queries and pages of keys, with three keys of the first sequence and one of the second.
ROWS = {"query": ONES[0], "key_pages": ONES, "value_pages": ONES, "block_table": np.zeros((2, 2), int)}
ROWS |= {"key_lengths": np.array([3, 1])}


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
        ("packed_paged_attention", ROWS | {"query_starts": np.array([0, 1, 3])}, 1),
        ("packed_paged_attention", ROWS | {"query_starts": np.array([0, 2, 3])}, None),
        (
            "paged_attention",
            {"query": ONES, "key_pages": ONES, "value_pages": ONES, "new_key": ONES[..., :2, :]}
            | {"block_table": np.zeros((2, 2), int), "key_lengths": np.array([2, 1])},
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


def refusing(query, key, value):
    if query.shape[-2] > key.shape[-2]:
        raise ValueError("more queries than keys")
    return decode(query, key, value)


def of_latent(query, query_rotary, latent, key_rotary, *, key_weight, value_weight, key_lengths):
    arrays = query, query_rotary, latent, key_rotary
    rows = np.arange(query.shape[-2]) >= query.shape[-2] - key_lengths[:, None]
    own = {"key_weight": key_weight, "value_weight": value_weight, "key_lengths": key_lengths}
    return reference.latent_attention(*arrays, **own, mask=rows[:, None, :, None], dtype=query.dtype)


def of_packed_pages(query, key_pages, value_pages, *, query_starts, block_table, key_lengths):
    if (np.diff(query_starts) > key_lengths).any():
        raise ValueError("more queries than keys")
    own = {"query_starts": query_starts, "block_table": block_table, "key_lengths": key_lengths}
    return reference.function("packed_paged_attention")(query, key_pages, value_pages, **own).astype(
        query.dtype
    )


def plain(query, key, value):
    return reference.attention(query, key, value, dtype=query.dtype)


def wrong_with_few_keys(query, key, value):
    return decode(query, key, value) * (2 if query.shape[-2] > key.shape[-2] else 1)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (decode, "; with more queries than keys the first ones give 0: if they stand for no token, write"),
        (of_latent, "; with more queries than keys the first ones give 0: if they stand for no token, write"),
        (refusing, 'lengths = "enough"  # it raised an error with more queries than keys\n'),
        (of_packed_pages, 'lengths = "enough"  # it raised an error with more queries than keys\n'),
        (wrong_with_few_keys, ""),
        (plain, ""),
    ],
)
def test_init_writes_it_if_calls_raise_and_names_it_if_they_give_0(function, why):
    sys.modules.setdefault("test_enough_keys", sys.modules[__name__])
    text = infer_configuration(f"{function.__module__}:{function.__name__}")
    assert ('lengths = "enough"' in text) == bool(why)
    assert why in text
    assert ('\nlengths = "enough"' in text) == (function in (refusing, of_packed_pages))
