"""The stored expected values are complete, and both oracles agree with them."""

from random import Random

import numpy as np
import pytest

from attnspec import SpecError
from attnspec.conformance.judge import store
from attnspec.conformance.judge.expected import exact, expected
from attnspec.conformance.judge.regenerate import asked, values_of

pytest.importorskip("flint")
ASKED = {case.fingerprint: case for case in asked()}
STORED = [fingerprint for fingerprint in ASKED if store.find(fingerprint) is not None]


def same(one, other):
    return list(one) == list(other) and all(
        one[name].shape == other[name].shape and np.array_equal(one[name], other[name], equal_nan=True)
        for name in one
    )


def test_all_that_is_asked_is_stored_but_for_what_the_exact_oracle_has_no_meaning_for():
    from attnspec.reference.exact.balls import OracleError
    from attnspec.reference.exact.evaluate import evaluate

    missing = [case for fingerprint, case in ASKED.items() if store.find(fingerprint) is None]
    forgotten = []
    for case in missing:
        try:
            evaluate(case.operation, case.arguments)
        except OracleError:
            continue
        forgotten.append(case.name)
        if len(forgotten) > 9:
            break
    assert forgotten == [], "stored anew by `attnspec vectors expected conformance/suite`"
    assert len(missing) < len(ASKED) / 20


def test_nothing_is_stored_that_nobody_asks_for():
    with np.load(store.PATH) as file:
        keys = set(file["keys"].astype(str).tolist())
    assert keys - set(ASKED) == set()


@pytest.mark.parametrize("fingerprint", Random(30).sample(STORED, 30), ids=lambda key: ASKED[key].name)
def test_what_is_stored_is_what_both_oracles_say(fingerprint):
    assert same(store.find(fingerprint), values_of(ASKED[fingerprint]))


def test_stored_values_are_those_that_the_judge_takes_and_nobody_can_change_them(monkeypatch):
    case = ASKED[STORED[0]]
    values = expected(case)
    assert same(values, store.find(case.fingerprint))
    assert not any(array.flags.writeable for array in values.values())
    monkeypatch.setattr(store, "find", lambda _: None)
    computed = exact(case.operation, case.arguments)
    for name, array in values.items():
        assert np.allclose(array, computed[name], rtol=1e-15, atol=0, equal_nan=True)


def test_a_variant_has_values_of_its_own_which_nobody_can_change():
    case = next(
        case for case in ASKED.values() if case.rules[0] == "MASK-6" and case.operation == "attention"
    )
    plain = store.find(case.fingerprint)
    shown = exact(case.operation, case.arguments, {"MASK-6": "nan"})
    assert not np.isnan(plain["output"]).any()
    assert np.isnan(shown["output"]).any()
    assert not any(array.flags.writeable for array in shown.values())


@pytest.mark.parametrize(("steps", "agree"), [(1, True), (2, False)])
def test_values_are_stored_only_where_both_oracles_agree(steps, agree, monkeypatch):
    """To one unit in the last place, in every element."""
    case = ASKED[STORED[0]]
    second = {name: np.array(array) for name, array in values_of(case).items()}
    first = next(iter(second.values()))
    for _ in range(steps):
        first.flat[-1] = np.nextafter(first.flat[-1], np.inf)
    monkeypatch.setattr("attnspec.conformance.judge.regenerate.evaluate", lambda *_: second)
    if agree:
        assert same(values_of(case), store.find(case.fingerprint))
    else:
        with pytest.raises(SpecError, match="expected both oracles to agree"):
            values_of(case)


@pytest.fixture
def another_file(tmp_path, monkeypatch):
    """Put other bytes in the place of the file."""

    def put(content):
        path = tmp_path / "expected.npz"
        path.write_bytes(content)
        monkeypatch.setattr(store, "PATH", path)
        store._columns.cache_clear()
        store._index.cache_clear()

    yield put
    monkeypatch.undo()
    store._columns.cache_clear()
    store._index.cache_clear()


def test_what_is_written_is_read_again_and_its_bytes_are_those_of_the_numbers(another_file):
    entries = {
        "a" * 24: {"output": np.array([[1.0, np.nan]]), "lse": np.array([-np.inf])},
        "b" * 24: {"rotated": np.zeros((0, 2))},
        "c" * 24: {"scores": np.array(0.5)},
    }
    content = store.written(entries.items())
    assert content == store.written(reversed(entries.items()))
    another_file(content)
    for fingerprint, values in entries.items():
        assert same(store.find(fingerprint), values)
    assert store.find("d" * 24) is None


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_changed_byte_is_noticed(share, another_file):
    """By the checksum of the part of the file that it is in."""
    content = bytearray(store.PATH.read_bytes())
    content[int(share * len(content))] ^= 1
    another_file(bytes(content))
    with pytest.raises(Exception, match=r"CRC|decompress|invalid"):
        store.find(STORED[0])


def test_a_changed_number_is_noticed():
    """By the oracles, where the file is whole."""
    case = ASKED[STORED[0]]
    values = {name: np.array(array) for name, array in store.find(case.fingerprint).items()}
    first = next(iter(values.values()))
    first.flat[0] = np.nextafter(first.flat[0], np.inf)
    assert not same(values, values_of(case))
