"""A rank makes the inputs of its shard by the formula, and judges its own rows."""

from pathlib import Path

import numpy as np
import pytest
from tests_support import python

from attnspec import SpecError
from attnspec.conformance.sizes.shard import arguments_of_shard, judge_shard
from attnspec.conformance.verdict import Difference
from attnspec.formula import Formula
from attnspec.reference import attention

WHOLE = Formula(
    3000,
    3100,
    8,
    4,
    batch=(2,),
    heads=4,
    key_heads=2,
    options={"is_causal": True, "window": (700, None), "query_offset": 50, "sinks": True},
)
SHARDS = [(range(0), range(700)), (range(1500), range(700, 700)), (range(1500, 3000), range(700, 3100))]


@pytest.mark.parametrize("words", [1, 16, 256])
def test_the_inputs_of_all_ranks_are_those_of_the_whole(words):
    formula = Formula(**{**vars(WHOLE), "words": words})
    whole = formula.arguments("float32")
    parts = [arguments_of_shard(formula, "float32", *shard) for shard in SHARDS]
    for name in ("query", "key", "value"):
        assert np.array_equal(np.concatenate([part[name] for part in parts], axis=-2), whole[name])
    assert all(np.array_equal(part["sinks"], whole["sinks"]) for part in parts)
    joined = {
        f"{side}_positions": np.concatenate([part[f"{side}_positions"] for part in parts], axis=-1)
        for side in ("query", "key")
    }
    small = {name: x[..., :40, :] for name, x in whole.items() if name in ("query", "key", "value")}
    options = {"is_causal": True, "window": (7, None)}
    expected = attention(**small, **options, query_offset=50)
    got = attention(**small, **options, **{name: x[..., :40] for name, x in joined.items()})
    assert np.array_equal(got, expected)


def rows_of(rows):
    """The right results of some rows, computed in float64."""
    arguments = arguments_of_shard(WHOLE, "float32", rows, range(3100))
    floating = [name for name, x in arguments.items() if getattr(x, "dtype", None) == "float32"]
    wide = {name: arguments[name].astype("float64") for name in floating}
    output, lse = attention(**{**arguments, **wide}, return_lse=True)
    return {"output": output.astype("float32"), "lse": lse.astype("float32")}


@pytest.mark.parametrize("rows", [range(3), range(1499, 1600), range(2990, 3000)])
def test_the_rows_of_a_rank_are_judged_alone(rows):
    results = rows_of(rows)
    assert 0 < judge_shard(WHOLE, "float32", rows, results) < 1
    results["output"][1, 2, 1, 3] += 1e-3
    wrong = judge_shard(WHOLE, "float32", rows, results)
    assert isinstance(wrong, Difference)
    assert (wrong.output, wrong.element, wrong.count) == ("output", (1, 2, rows.start + 1, 3), 1)


def test_a_problem_with_other_options_is_refused():
    with pytest.raises(SpecError, match=r"formula: expected words, and some of scale, .*, got segments"):
        arguments_of_shard(Formula(8, 8, 4, 4, options={"segments": 4}), "float32", range(4), range(4))


def test_four_processes_judge_themselves():
    pytest.importorskip("torch")
    program = Path(__file__).parent.parent / "examples" / "ring" / "million.py"
    run = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 4, program, 8192)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(": right, ") == 4
