"""Which part of the suite is run: the quick one, that of a rule, that of a golden vector, another seed."""

from test_cli import judged

from attnspec import rules


def test_the_quick_part_touches_every_rule_and_is_a_part(tmp_path):
    run, verdicts = judged("numpy-portable", "--quick", tmp_path=tmp_path)
    assert run.returncode == 0, run.stdout
    assert {rule for verdict in verdicts for rule in verdict.rules} == {rule.id for rule in rules()}
    golden = [v.test for v in verdicts if v.test.startswith("test_golden") and "softmax-lse-empty" in v.test]
    assert len(golden) == 1, "one dtype of a vector that is of no rule of dtypes"


def test_a_rule_or_a_vector_alone(tmp_path):
    _, verdicts = judged("numpy-portable", "--rule", "SOFT-7", tmp_path=tmp_path)
    assert verdicts
    assert all("SOFT-7" in verdict.rules for verdict in verdicts)
    (tmp_path / "results.jsonl").unlink()
    _, verdicts = judged("numpy-portable", "--case", "softmax-lse-empty", tmp_path=tmp_path)
    assert verdicts
    assert all("softmax-lse-empty" in verdict.test for verdict in verdicts)


def test_a_seed_draws_other_examples_and_the_same_again(tmp_path):
    """Seen in the share of the budget that a property used at most."""
    used = []
    for seed in ("1", "2", "1"):
        _, verdicts = judged("numpy-portable", "--rule", "SCORE-3", "--seed", seed, tmp_path=tmp_path)
        used.append({v.test: v.used for v in verdicts if v.test.startswith("test_a_given_scale")})
        (tmp_path / "results.jsonl").unlink()
    assert used[0] == used[2]
    assert used[0] != used[1]
