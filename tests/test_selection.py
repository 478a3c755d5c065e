"""The parts of the suite: the quick part, the cases of a rule or a name, another seed."""

import pytest
from click.testing import CliRunner
from test_session import check

from attnspec.conformance.attribution.levels import rules_of
from attnspec.conformance.cli.main import main


def test_a_rule_a_name_or_an_expression_alone(tmp_path):
    for words, holds in (
        (("--rule", "POS-7"), lambda verdict: "POS-7" in verdict.rules),
        (("-k", "pos-7"), lambda verdict: "POS-7" in verdict.rules),
        (("--case", "softmax-lse-empty"), lambda verdict: verdict.case.startswith("softmax-lse-empty-")),
        (("--case", "softmax-lse-empty-float32"), lambda verdict: verdict.dtype == "float32"),
    ):
        ended, found = check("numpy-portable", *words, cwd=tmp_path)
        assert ended.returncode == 0, ended.stdout
        assert found.verdicts
        assert all(map(holds, found.verdicts)), words
        assert found.headers[0].part == "chosen"
        assert not found.whole


def test_a_filter_that_nothing_fits_is_no_success():
    done = CliRunner().invoke(main, ["check", "numpy-portable", "-k", "no such thing"])
    assert done.exit_code == 2
    assert done.output == "Error: case: expected some that fit what was asked for, got none\n"


@pytest.mark.exhaustive
def test_a_level_is_judged_as_a_whole_and_told(tmp_path):
    ended, found = check("numpy-portable", "--level", "grouped", "--require", "core", cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout
    assert (found.headers[0].part, found.headers[0].level) == ("level", "grouped")
    assert ended.stdout.splitlines()[1].startswith("numpy-portable: values: conforms to levels core, grouped")
    rules = {*rules_of("grouped")}
    assert rules <= {rule for verdict in found.verdicts for rule in verdict.rules}
    assert {verdict.case for verdict in found.verdicts} == {*found.headers[0].cases}
    assert "strict" not in ended.stdout
    strict, found = check("numpy-portable", "--level", "strict", cwd=tmp_path)
    assert strict.stdout.splitlines()[1].startswith("numpy-portable: values: conforms to levels core, strict")
    refusals = [verdict for verdict in found.verdicts if verdict.refusal]
    assert 500 < len(refusals) < len(found.verdicts)
    assert {"ERR-6", "SHAPE-6"} <= {verdict.rules[0] for verdict in refusals}
