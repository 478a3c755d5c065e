"""Shards: together they judge what one run judges, and a shard that is missing is named."""

import json

import pytest
from click.testing import CliRunner

from attnspec.conformance.cli.main import main
from attnspec.conformance.results_file import read
from attnspec.conformance.run.plan import Selection, index, share

COUNT = 3


def run(path, *words):
    return CliRunner().invoke(
        main, ["check", "torch-math", "--rule", "MASK-5", "--rule", "NUM-1", "--results", str(path), *words]
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The results of one run, and of its shards."""
    folder = tmp_path_factory.mktemp("shards")
    names = ["whole", *(f"{number}" for number in range(1, COUNT + 1))]
    paths = [folder / f"{name}.jsonl" for name in names]
    for path, words in zip(paths, [(), *(("--shard", f"{name}/{COUNT}") for name in names[1:])], strict=True):
        run(path, *words)
    return paths


def test_shards_have_each_case_once():
    plan = index()
    for count in (1, 2, 8):
        shares = [share(plan, f"{number}/{count}") for number in range(1, count + 1)]
        assert sorted(place for one in shares for place, _ in one) == list(range(len(plan)))
        assert max(map(len, shares)) < 1.2 * len(plan) / count


def test_a_case_stays_in_its_shard_if_others_are_added():
    plan = index()
    before = {case.name for _, case in share(plan[::2], "2/5")}
    assert before == {case.name for _, case in share(plan, "2/5")} & {case.name for case in plan[::2]}


def test_the_results_of_all_shards_are_those_of_one_run(files):
    whole, *shards = files
    for order in (shards, shards[::-1]):
        expected, got = read([whole]), read(order)
        assert got.headers == expected.headers
        assert got.subjects == expected.subjects
        assert [(one.case, one.status, one.rule) for one in got.verdicts] == [
            (one.case, one.status, one.rule) for one in expected.verdicts
        ]
    assert not read(shards).subjects[0].problem


def test_shards_that_are_missing_are_named(files, tmp_path):
    _, first, _, last = files
    assert read([last]).subjects[0].problem == "shards 1, 2 of 3 missing"
    ended = CliRunner().invoke(main, ["report", str(first), str(last), "--html", str(tmp_path)])
    assert "torch-math: shard 2 of 3 missing" in ended.output
    assert (tmp_path / "index.html").exists()
    assert CliRunner().invoke(main, ["table", str(first), str(last)]).exit_code == 4


def test_a_shard_that_is_given_twice_is_an_error(files):
    ended = CliRunner().invoke(main, ["table", str(files[1]), str(files[1])])
    assert "expected shard 1/3 of torch-math once, got it twice" in ended.output


def test_a_shard_that_was_cut_off_is_a_problem(files, tmp_path):
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(files[2].read_text().splitlines(keepends=True)[:-1]))
    assert "the run was cut off" in read([files[1], cut, files[3]]).subjects[0].problem


def test_a_declaration_that_no_shard_shows_is_an_error(files, tmp_path):
    """One that some shard shows is none."""
    unshown = {
        "backend": "torch-math",
        "case": "",
        "group": "",
        "rules": ["NUM-2"],
        "rule": "NUM-2",
        "status": "error",
    }
    paths = []
    for number, path in enumerate(files[1:]):
        *lines, last = path.read_text().splitlines()
        footer = json.loads(last)
        also = [unshown | {"rules": ["SOFT-6"], "rule": "SOFT-6"}] * (number > 0)
        footer["footer"]["unshown"] = [unshown, *also]
        paths.append(tmp_path / path.name)
        paths[-1].write_text("\n".join([*lines, json.dumps(footer)]) + "\n")
    assert [one.rule for one in read(paths).verdicts if not one.case] == ["NUM-2"]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "1/0", "-1/2", "1/3/3"])
def test_a_shard_that_is_none_is_rejected(text):
    ended = CliRunner().invoke(main, ["check", "torch-math", "--shard", text])
    assert ended.exit_code == 2
    assert f"expected I/N with I from 1 to N, such as 3/8, got '{text}'" in ended.output


def test_a_shard_names_its_options():
    assert Selection(shard="3/8").choice == ("--shard 3/8",)
