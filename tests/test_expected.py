"""The stored expected values are complete and used: both oracles agree, and a constant fails each group."""

import io
import re
import zipfile
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner
from tests_support import whole_suite

from attnspec import OPERATIONS, Case, SpecError, find_case
from attnspec.backends import load
from attnspec.conformance.cli.vectors import vectors
from attnspec.conformance.judge import store
from attnspec.conformance.judge.budget import budgets_of
from attnspec.conformance.judge.cause import outputs_to_judge
from attnspec.conformance.judge.dtypes import accepted_dtypes, own_dtypes
from attnspec.conformance.judge.expected import differences, exact, expected
from attnspec.conformance.run import expected_values
from attnspec.conformance.run.expected_values import chapters, values_of
from attnspec.conformance.sizes.cases import sized_cases
from attnspec.conformance.sizes.dialect import gradients_in_dialect, in_dialect, precisions
from attnspec.conformance.sizes.judge import compare_outputs
from attnspec.conformance.verdict import Difference
from attnspec.golden import from_json, to_json
from attnspec.schema import VECTORS

pytest.importorskip("flint")
CASES = {case.fingerprint: case for _, cases in chapters() for case in cases}
STORED = [fingerprint for fingerprint in CASES if store.find(fingerprint) is not None]


def same(values, others):
    return list(values) == list(others) and all(
        values[name].shape == others[name].shape
        and np.array_equal(values[name], others[name], equal_nan=True)
        for name in values
    )


def test_all_that_is_asked_is_stored_but_for_what_the_exact_oracle_has_no_meaning_for():
    from attnspec.reference.exact.balls import OracleError
    from attnspec.reference.exact.evaluate import evaluate

    missing = [case for fingerprint, case in CASES.items() if store.find(fingerprint) is None]
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
    assert len(missing) < len(CASES) / 20


def test_a_file_holds_the_values_of_its_chapter_and_no_others():
    chapters = {}
    for path in store.FOLDER.glob("*.npz"):
        with np.load(path) as file:
            chapters |= dict.fromkeys(file["keys"].astype(str).tolist(), path.stem)
    assert chapters == {fingerprint: CASES[fingerprint].chapter for fingerprint in STORED}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_stored_is_what_both_oracles_say(operation):
    own = [fingerprint for fingerprint in STORED if CASES[fingerprint].operation == operation]
    assert own
    for fingerprint in Random(30).sample(own, min(12, len(own))):
        assert same(store.find(fingerprint), values_of(CASES[fingerprint])), CASES[fingerprint].name


def test_stored_values_are_those_that_the_judge_takes_and_nobody_can_change_them(monkeypatch):
    case = CASES[STORED[0]]
    values = expected(case)
    assert same(values, store.find(case.fingerprint))
    assert not any(array.flags.writeable for array in values.values())
    monkeypatch.setattr(store, "find", lambda _: None)
    computed = exact(case.operation, case.arguments)
    for name, array in values.items():
        assert np.allclose(array, computed[name], rtol=1e-15, atol=0, equal_nan=True)


def test_a_variant_has_values_of_its_own_which_nobody_can_change():
    own = (case for case in CASES.values() if case.rules[0] == "MASK-6")
    case = next(case for case in own if case.operation == "attention")
    plain = store.find(case.fingerprint)
    shown = exact(case.operation, case.arguments, {"MASK-6": "nan"})
    assert not np.isnan(plain["output"]).any()
    assert np.isnan(shown["output"]).any()
    assert not any(array.flags.writeable for array in shown.values())


@pytest.mark.parametrize(("steps", "agree"), [(1, True), (2, False)])
def test_values_are_stored_only_where_both_oracles_agree(steps, agree, monkeypatch):
    """To one unit in the last place, in every element."""
    case = CASES[STORED[0]]
    second = {name: np.array(array) for name, array in values_of(case).items()}
    first = next(iter(second.values()))
    for _ in range(steps):
        first.flat[-1] = np.nextafter(first.flat[-1], np.inf)
    monkeypatch.setattr("attnspec.conformance.run.expected_values.evaluate", lambda *_: second)
    if agree:
        assert same(values_of(case), store.find(case.fingerprint))
    else:
        with pytest.raises(SpecError, match="expected both oracles to agree"):
            values_of(case)


@pytest.fixture
def other_files(tmp_path, monkeypatch):
    """Put other files in the place of the stored ones."""

    def put(**contents):
        for name, content in contents.items():
            (tmp_path / f"{name}.npz").write_bytes(content)
        monkeypatch.setattr(store, "FOLDER", tmp_path)
        store._index.cache_clear()

    yield put
    monkeypatch.undo()
    store._index.cache_clear()


def test_what_is_written_is_read_again_and_its_bytes_are_those_of_the_numbers(other_files):
    masking = {
        "a" * 24: {"output": np.array([[1.0, np.nan]]), "lse": np.array([-np.inf])},
        "c" * 24: {"scores": np.array(0.5)},
    }
    positions = {"b" * 24: {"rotated": np.zeros((0, 2))}, "e" * 24: {"output": np.ones((2, 1, 3))}}
    content = store.encode(masking)
    assert content == store.encode(dict(reversed(masking.items())))
    other_files(masking=content, positions=store.encode(positions))
    for fingerprint, values in {**masking, **positions}.items():
        assert same(store.find(fingerprint), values)
    assert store.find("d" * 24) is None


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_changed_byte_is_noticed(share, other_files):
    """By the checksum of the part of the file that it is in."""
    case = CASES[STORED[0]]
    content = bytearray((store.FOLDER / f"{case.chapter}.npz").read_bytes())
    content[int(share * len(content))] ^= 1
    other_files(**{case.chapter: bytes(content)})
    with pytest.raises(Exception, match=r"CRC|decompress|invalid"):
        store.find(case.fingerprint)


@pytest.mark.parametrize(
    ("files", "ends"),
    [
        pytest.param(["projection"], "projection.npz: unchanged\n", marks=pytest.mark.exhaustive),
        ([], "projection.npz: rewritten\n"),
        pytest.param(
            ["projection", "nothing"],
            "nothing.npz: of no chapter, removed\n",
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_the_command_writes_what_changed_and_removes_what_is_of_no_chapter(
    files, ends, tmp_path, monkeypatch
):
    """One chapter stands for all."""
    folder, content = tmp_path / "expected", (store.FOLDER / "projection.npz").read_bytes()
    folder.mkdir()
    for name in files:
        (folder / f"{name}.npz").write_bytes(content)
    if "nothing" in files:
        whole = [*chapters("projection")]
        monkeypatch.setattr("attnspec.conformance.run.expected_values.chapters", lambda _: whole)
    for name in ("run.index.write", "run.expected_values.write_packaged", "suite.decisions.write"):
        monkeypatch.setattr(f"attnspec.conformance.{name}", lambda *_, **__: False)
    only = [] if "nothing" in files else ["--only", "projection"]
    before = sorted(path.name for path in folder.iterdir())
    check = CliRunner().invoke(vectors, ["expected", str(tmp_path), "--check", *only])
    assert check.exit_code == (files != ["projection"])
    assert sorted(path.name for path in folder.iterdir()) == before
    result = CliRunner().invoke(vectors, ["expected", str(tmp_path), *only])
    assert result.exit_code == 0
    assert ends in result.output
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("projection.npz", content)]


def test_what_is_missing_alone_is_computed(monkeypatch):
    cases = [case for case in CASES.values() if case.chapter == "scores"][:3]
    kept = {case.fingerprint: {"output": np.array([0.5])} for case in cases[1:]}
    monkeypatch.setattr(expected_values, "find", kept.get)
    values = expected_values.values_by_fingerprint(cases, only_missing=True)
    assert same(values[cases[0].fingerprint], values_of(cases[0]))
    assert all(values[name] is kept[name] for name in kept)
    for case in cases:
        assert same(expected_values.values_by_fingerprint([case])[case.fingerprint], values_of(case))


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """As in a wheel, which has one file instead of those of the chapters."""
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    monkeypatch.setattr("attnspec.conformance.judge.expected._KNOWN", {})
    store.forget()
    yield
    monkeypatch.undo()
    store.forget()


def test_a_wheel_has_the_values_that_take_long_and_digests_of_the_others(tmp_path, monkeypatch):
    assert store.PACKAGED.stat().st_size < 3_000_000
    proven = {fingerprint: store.find(fingerprint) for fingerprint in STORED}
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    store.forget()
    try:
        own = {fingerprint: store.find(fingerprint) for fingerprint in STORED}
        for fingerprint, values in proven.items():
            digests = {name: store.digest(array) for name, array in values.items()}
            assert (own[fingerprint] is None) == (fingerprint in store.digests())
            assert store.digests().get(fingerprint, digests) == digests
            assert own[fingerprint] is None or same(own[fingerprint], values)
        assert len([x for x in own.values() if x is not None]) > 1000
    finally:
        monkeypatch.undo()
        store.forget()


@pytest.mark.sample(2)
@pytest.mark.parametrize("part", range(40))
def test_what_a_wheel_leaves_out_is_computed_to_the_same_bits(part, request):
    cases = [CASES[x] for number, x in enumerate(STORED) if x in store.digests() and number % 40 == part]
    proven = {case.fingerprint: store.find(case.fingerprint) for case in cases}
    request.getfixturevalue("wheel")
    for case in cases:
        values = exact(case.operation, case.arguments)
        wanted = proven[case.fingerprint]
        assert same({name: values[name] for name in wanted}, wanted), case.name


@pytest.mark.usefixtures("wheel")
def test_a_computed_value_that_is_not_the_proven_one_is_an_error(monkeypatch):
    fingerprint = next(x for x in STORED if x in store.digests())
    case, (name, digest) = CASES[fingerprint], next(iter(store.digests()[fingerprint].items()))
    assert name in exact(case.operation, case.arguments)
    monkeypatch.setattr(store, "digests", lambda: {fingerprint: {name: digest ^ 1}})
    monkeypatch.setattr("attnspec.conformance.judge.expected._KNOWN", {})
    with pytest.raises(AssertionError, match=f"{name}: expected the proven values, got others"):
        exact(case.operation, case.arguments)


def test_values_that_are_compressed_otherwise_are_the_same():
    content = (store.FOLDER / "projection.npz").read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in store.members(content).items():
            archive.writestr(name, data)
    assert buffer.getvalue() != content
    assert store.members(buffer.getvalue()) == store.members(content)


def test_the_command_refuses_a_chapter_that_does_not_exist(tmp_path):
    result = CliRunner().invoke(vectors, ["expected", str(tmp_path), "--only", "softmx"])
    assert "expected one of notation, " in result.output
    assert "got 'softmx'" in result.output


BACKEND = load("numpy-portable")
#: No case expects it in all elements.
CONSTANT = 7.0
_KEY = attrgetter("chapter", "group", "operation")
GROUPS = {
    key: [*cases]
    for key, cases in groupby(sorted((x for x in whole_suite() if isinstance(x, Case)), key=_KEY), key=_KEY)
}
SIZED = {key: [*cases] for key, cases in groupby(sized_cases(), key=attrgetter("group", "operation"))}


def constant(shape, name, dtype):
    return np.full(shape, CONSTANT, accepted_dtypes(name, dtype)[0])


def is_noticed(case, name):
    """Whether the judge sees a constant in place of an output."""
    values, own = expected(case), own_dtypes(case)
    got = {name: constant(values[name].shape, name, own.get(name, case.dtype))}
    found = differences(outputs_to_judge(got, case), values, budgets_of(BACKEND, case), case.dtype, own)
    return any(isinstance(difference, Difference) for difference in found)


def cases_with_values(cases):
    """Yield the cases that have values, and the names of these, the smallest cases first."""
    for case in sorted(cases, key=lambda case: sum(np.size(x) for x in case.arguments.values())):
        if not case.must_raise and case.dtype in BACKEND.dtypes:
            yield case, OPERATIONS[case.operation].judged(case.arguments, case.outputs)


def pairs():
    """Return, for each group and each output that it judges, the cases that judge it."""
    found = {}
    for key, cases in GROUPS.items():
        for case, names in cases_with_values(cases):
            for name in names:
                found.setdefault((*key, name), []).append(case)
    return found


@pytest.fixture(scope="module")
def judged():
    return pairs()


def is_defined(case, name):
    """Whether the standard defines numbers of an output of a case: not those of no page (CACHE-4)."""
    if case.operation == "gather_pages" and (case.arguments["block_table"] < 0).all():
        return False
    try:
        return expected(case)[name].size > 0
    except ValueError:
        return False


def test_a_constant_is_noticed_in_every_output_of_every_group(judged):
    wanted = {(operation, name) for operation, form in OPERATIONS.items() for name in form.outputs}
    assert wanted - {key[-2:] for key in judged} == set()
    passed = []
    for key, cases in judged.items():
        told = (is_noticed(case, key[-1]) for case in cases if is_defined(case, key[-1]))
        if next(told, None) is False and not any(told):
            passed.append(key)
    assert passed == []


@pytest.mark.parametrize("key", SIZED, ids=" ".join)
@pytest.mark.sample(4)
def test_a_constant_is_noticed_in_every_output_of_every_sized_group(key):
    seen = set()
    for item in sorted(SIZED[key], key=attrgetter("work")):
        names = {*item.outputs} - seen
        if not names:
            continue
        seen |= names
        dialect = (gradients_in_dialect if item.gradients else in_dialect)(
            item.formula, {}, **({} if item.gradients else {"lse": True})
        )
        for name in names:
            shape = shape_of(item, name)
            got = {name: constant(shape, name, item.dtype)}
            precision = next(iter(precisions(BACKEND, item.dtype)))
            assert isinstance(compare_outputs(item, dialect, got, precision), Difference), (item.name, name)


def shape_of(item, name):
    arguments = item.case.arguments
    rows = arguments["query"].shape[:-1]
    other = {"lse": rows, "output": (*rows, arguments["value"].shape[-1])}
    return other[name] if name in other else arguments[name.removeprefix("d_")].shape


def test_every_name_is_an_output_and_stored_whole(tmp_path, monkeypatch):
    values = {"a" * 24: {"inverse_frequencies_of_a_band": np.ones(2)}}
    (tmp_path / "positions.npz").write_bytes(store.encode(values))
    monkeypatch.setattr(store, "FOLDER", tmp_path)
    store._index.cache_clear()
    try:
        assert [*store.find("a" * 24)] == ["inverse_frequencies_of_a_band"]
    finally:
        monkeypatch.undo()
        store._index.cache_clear()
    names = {name for path in store.FOLDER.glob("*.npz") for name in np.load(path)["names"].astype(str)}
    assert names <= {name for form in OPERATIONS.values() for name in form.outputs}
    text = VECTORS.with_name("pack").joinpath("attnspec.h").read_text()
    words = "".join(re.findall(r'"(.*)"', text.split("attnspec_names_of_outputs[] =")[1].split(";")[0]))
    assert {*words.split()} == {name for form in OPERATIONS.values() for name in form.outputs}


def test_a_value_that_is_missing_or_of_no_output_is_an_error():
    case = find_case("masking-empty-last")
    less = {name: array for name, array in case.expected.items() if name != "lse"}
    for values in (less, {**case.expected, "logits": case.expected["lse"]}):
        with pytest.raises(AssertionError, match=r"masking-empty-last.*: expected the value of each output"):
            expected(replace(case, expected=values))
    with pytest.raises(AssertionError, match="lse: expected a value and a budget"):
        [*differences({"lse": case.expected["lse"]}, less, budgets_of(BACKEND, case), case.dtype)]
    with pytest.raises(SpecError, match="expected values of output, lse, weights, got output, weights"):
        from_json(to_json(replace(case, expected=less)))
    item = next(item for (_, name), items in SIZED.items() if name == "attention_vjp" for item in items)
    query = item.case.arguments["query"]
    precision = next(iter(precisions(BACKEND, item.dtype)))
    with pytest.raises((AssertionError, KeyError), match="d_scale"):
        compare_outputs(item, gradients_in_dialect(item.formula, {}), {"d_scale": query}, precision)
