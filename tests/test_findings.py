"""Findings about released libraries: a script shows each with the library alone."""

import ast
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from run_script import FORKING, run_script
from tests_support import can_compile, installed_backends

from attnspec import find_rule
from attnspec.errors import SpecError
from tools import findings as tool
from tools.findings import FIELDS, Seen, read_finding

FINDINGS = Path(__file__).parents[1] / "backends" / "findings"
SCRIPTS = tool.scripts(FINDINGS)
FAMILIES = tool.read_families(FINDINGS)
ROWS = [row for family in FAMILIES for row in family.rows]
#: What the names in the last line of a script would be if the library were right, for the next test.
ENDED = SimpleNamespace(returncode=0, stdout="0")
CHANGED = SimpleNamespace(abs=lambda: np.ones(2))
RIGHT = {
    "executorch/causal_scale": {"got": [1.0, 1.0, 1.0]},
    "executorch/mask_and_causal": {"got": np.ones(4)},
    "executorch/misfit": {"got": "an error"},
    "executorch/value_depth": {"got": np.ones((1, 64, 1, 128))},
    "flashinfer/no_queries": {"ended": ENDED},
    "flax/nnx_value_depth": {"got": "no error"},
    "iree/deep": {"got": [0.731, 0.731]},
    "iree/dynamic_depth": {"got": [0.731, 0.731]},
    "jax/constant_of_two_widths": {"got": "float64", "expected": "float64"},
    "jax/empty_row_two_ways": {"one": [6.0, 0.0], "other": [6.0, 0.0]},
    "jax/gradient_of_the_top": {"got": {"eager": True, "jit": True}},
    "jax/jit_float16": {"got": "float16"},
    "jax/jit_one_key": {"got": ["bfloat16", "bfloat16"]},
    "jax/lse_no_gradient": {"got": 2.0},
    "jax/product_with_a_mask": {"got": [math.nan], "expected": [math.nan]},
    "jax/subnormal_comparison": {"got": [3, 0, 2, 1], "expected": [3, 0, 2, 1]},
    "jax/subnormal_product": {"got": 2.0**-127, "expected": 2.0**-127},
    "jax/window_overflow": {"got": [1.0, 1.0, 1.0], "expected": [1.0, 1.0, 1.0]},
    "keras/jax_fallback": {"got": ["ValueError", "ValueError"]},
    "keras/numpy_shared_heads": {"got": "no error"},
    "keras/tensorflow_one_key_head": {"got": "no error"},
    "keras/torch_bias_and_mask": {"got": "no error"},
    "keras/torch_half_leaks": {"got": [0.0, 0.0]},
    "mlx/no_key_heads": {"ended": ENDED},
    "onnx/one_row_and_causal": {"got": [0.0, 1.0, 2.0]},
    "onnxruntime/gqa_window": {"got": [1, 2, 3, 3]},
    "onnxruntime/broadcast_mask": {"got": (1, 1, 2, 4)},
    "onnxruntime/float64_lengths_and_causal": {"got": [2.0, 2.0]},
    "onnxruntime/past_offset": {"got": 2},
    "onnxruntime/mha_causal_last": {"got": [3, 4, 5]},
    "onnxruntime/mha_depth_zero": {"ended": ENDED},
    "onnxruntime/mha_mask_leaks": {"got": 0.0},
    "onnxruntime/no_key_heads": {"ended": ENDED},
    "openvino/no_keys": {"ended": ENDED},
    "paddle/causal_finite": {"got": [1.0, 5.0]},
    "paddle/softmax_floor": {"got": 0.0},
    "tinygrad/float16_raises": {"got": ["(1, 1, 15, 4)", "(1, 1, 16, 4)", "(1, 1, 64, 4)"]},
    "tokamax/one_query_one_key": {"got": ["bfloat16: 1", "float32: 1", "float64: 1"]},
    "tokamax/query_lengths": {"got": [3.0, 0.0]},
    "tokamax/window_of_queries": {"got": "no error"},
    "torch/flash_causal_scale": {"got": np.ma.ones(4), "expected": np.ma.ones(4)},
    "torch/flash_float64_bias": {"got": [0.0, 0.0]},
    "torch/flash_value_length": {"got": [1.0]},
    "torch/flex_compiled_mask": {"got": "torch.Size([2, 3, 5, 4])"},
    "torch/flex_compiled_no_keys": {"ended": ENDED},
    "torch/flex_compiled_no_values": {"ended": ENDED},
    "torch/flex_compiled_value_length": {"got": [1.0]},
    "torch/flex_lse_of_lowest": {"lse": np.full((1, 1, 1), np.finfo(np.float32).min)},
    "torch/mask_and_causal": {"got": ["RuntimeError", "RuntimeError"]},
    "torch/mask_of_one_axis": {"got": (1, 1, 3, 4)},
    "torch/mha_empty_row": {"one_way": 0.0, "other": 0.0},
    "torch/mha_fast_path": {"got": [0.0, 0.0]},
    "torch/nested_no_keys": {"got": [0.0, 0.0, 1.0]},
    "torch/ring_float64": {"off": 0.0},
    "torch/unsigned_comparison": {"got": "[True, False]", "expected": [True, False]},
    "transformers/sdpa_bias_and_causal": {"got": [0.0, 3.0]},
    "transformers/sdpa_empty_row_beside_bias": {"alone": 0.0, "got": 0.0},
    "transformers/yarn_truncate": {"alone": CHANGED, "of_a_type": CHANGED},
    "tvm/bottom_right": {"got": [0.0, 0.0, 1.0, 3.0]},
    "tvm/causal_maximum": {"got": [1.0, 5.0]},
    "tvm/no_key_heads": {"ended": ENDED},
    "tvm/no_keys": {"got": [np.zeros(4)]},
    "tvm/other_heads": {"got": [1.0, 1.0, 1.0, 1.0]},
    "x-transformers/tiled_heads": {"got": [1.0, 1.0, 2.0, 2.0]},
}


DECLARED = [(name, one) for name, backend in installed_backends() for one in backend.deviations]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.sample(14)
def test_a_finding_still_shows(script, tmp_path):
    """Exit status 1 says that it does not: then the library has changed, and the declaration goes."""
    if not tool.installed_version(read_finding(script)):
        pytest.skip(f"{script.parent.name} is not installed")
    if "torch.compile" in script.read_text(encoding="utf-8") and not can_compile():
        pytest.skip("needs a C++ compiler and the headers of Python")
    status, told = (forked if script.parent.name == "torch" else started)(script, tmp_path / "told.txt")
    assert status == 0, f"{script.stem} shows no more:\n{told}"
    assert re.fullmatch(r"expected .+\ngot .+\n", told), told


def started(script, told):
    """Run a script: how it ended, and what it printed."""
    with told.open("w") as file:
        command = [sys.executable, "-W", "ignore", str(script)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(command, stdout=file, check=False, env=env)
    return ended.returncode, told.read_text()


def forked(script, told):
    """Run a script in a process that has imported PyTorch already, which takes most of the time."""
    process = FORKING.Process(target=run_script, args=(str(script), str(told)))
    process.start()
    process.join()
    process.kill()
    return process.exitcode, told.read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_check_of_a_script_can_fail(script):
    """The last line exits with 1 on what a right library would give, and depends on nothing else."""
    last = ast.parse(script.read_text(encoding="utf-8")).body[-1]
    right = RIGHT[f"{script.parent.name}/{script.stem}"]
    names = {"np": np, "math": math, "signal": signal, "sys": sys, **right}
    for name in ("got", "expected"):  # tensors ask themselves whether they are NaN
        if isinstance(right.get(name), np.ma.MaskedArray):
            names[name] = SimpleNamespace(isnan=lambda array=right[name]: np.isnan(array))
    with pytest.raises(SystemExit) as ended:
        exec(compile(ast.Module([last], []), str(script), "exec"), names)
    assert ended.value.code == 1


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.finding}-{row.call}")
def test_a_row_can_fail_and_shows_what_its_library_gives(row):
    """What is right, and an exception where a number is expected, are not the finding."""
    assert row.shows(row.got)
    assert not row.shows(row.right)
    assert row.shows("an error") == (row.got == "an error")
    assert not row.shows("something else")
    for rule_id in re.findall(r"[A-Z]+-\d+", row.rules):
        find_rule(rule_id)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.finding}-{row.call}")
def test_a_row_still_shows(row):
    if not row.is_runnable or (row.compiled and not can_compile()):
        pytest.skip(f"{row.library} is not installed, or there is no compiler")
    outcome = sys.modules["table"].observe(row)
    assert row.shows(outcome), f"expected {row.got}, got {outcome}"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_has_a_page_with_its_libraries(family):
    text = tool.family_page(family)
    assert text.startswith(f"# {family.title}\n")
    assert text.count("\n| ") == 2 + len(family.rows)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_uses_the_library_alone_and_names_a_rule(script):
    text = script.read_text(encoding="utf-8")
    assert "attnspec" not in text
    assert len(read_finding(script).code.splitlines()) <= 40
    for rule_id in re.findall(r"\b[A-Z]+-\d+\b", text.split('"""')[1]):
        find_rule(rule_id)


@pytest.mark.parametrize(("name", "deviation"), DECLARED, ids=lambda thing: getattr(thing, "id", thing))
def test_a_declared_deviation_has_its_script_or_link(name, deviation):
    if deviation.source.startswith("https://"):
        return
    place = FINDINGS / tool.place_of(deviation.source)
    theirs = [row.rules for row in ROWS if row.finding == deviation.source]
    said = " ".join(theirs) if theirs else place.read_text(encoding="utf-8")
    assert re.search(rf"\b{deviation.rules[0]}\b", said)
    for rule_id in deviation.rules:
        find_rule(rule_id)


def test_every_script_was_run_once():
    """Run it with the library installed: `python -m tools.findings --only LIBRARY`."""
    seen = tool.last_seen(FINDINGS)
    assert set(seen) == {f"{path.parent.name}/{path.stem}" for path in SCRIPTS}
    assert all(last.expected and last.got for last in seen.values())


FINDING = """\"\"\"NumPy: two is three (MASK-6).

More about it.

Rank: paths
Impact: none.
Documentation: says | nothing
about it.
Known: {known}
\"\"\"

import sys

print("expected 2")
print("got 3")
sys.exit({status})
"""


def test_what_is_written_of_a_script(tmp_path):
    (tmp_path / "numpy").mkdir()
    script = tmp_path / "numpy" / "two.py"
    script.write_text(FINDING.format(known="no thread found", status=0))
    finding = read_finding(script)
    assert (finding.rules, finding.text, finding.status) == (("MASK-6",), ("More about it.",), "new")
    assert finding.fields["Documentation"] == "says | nothing about it."
    assert set(finding.fields) < set(FIELDS)
    version = tool.installed_version(finding)
    assert tool.observe(script, version) == Seen(version, "2", "3")
    seen = Seen(version, "2", "3")
    table = tool.index([finding], FAMILIES, {"numpy/two": seen})
    assert f"| numpy {version} |" in table
    assert "| new |" in table
    text = tool.page(finding, seen)
    assert "says \\| nothing" in text
    assert "(../../../backends/findings/numpy/two.py)" in text
    assert "### Two is three\n" in tool.report(finding, None)
    assert "MASK-6" not in tool.report(finding, None), "a project need not know our rules"
    assert "Impact: none." in tool.report(finding, None)


@pytest.mark.parametrize("rank", ["", "Rank: severe\n", "Rank: promise\n", "Rank: promise\nPromise: three\n"])
def test_a_rank_is_one_of_five_and_a_promise_is_quoted(tmp_path, rank):
    (tmp_path / "two.py").write_text(FINDING.format(known="x", status=0).replace("Rank: paths\n", rank))
    with pytest.raises(SpecError, match="expected"):
        read_finding(tmp_path / "two.py")


def test_the_command_says_which_finding_is_gone_and_writes_the_pages(tmp_path, monkeypatch):
    (tmp_path / "numpy").mkdir()
    (tmp_path / "nothing-of-this-name").mkdir()
    (tmp_path / "numpy" / "two.py").write_text(FINDING.format(known="https://example.org/1", status=1))
    (tmp_path / "nothing-of-this-name" / "two.py").write_text(FINDING.format(known="x", status=0))
    monkeypatch.setattr("tools.findings.FOLDER", tmp_path)
    monkeypatch.setattr("tools.findings.PAGES", tmp_path / "pages")
    output = CliRunner().invoke(tool.main).output
    assert "numpy/two: numpy" in output
    assert "shows it no longer" in output
    assert "2 findings, 1 of them seen" in output
    assert "| shows no longer |" in (tmp_path / "pages" / "README.md").read_text()
    assert "| not run |" in (tmp_path / "pages" / "README.md").read_text()
    assert "this release shows it no longer" in (tmp_path / "pages" / "numpy" / "two.md").read_text()
    assert tool.last_seen(tmp_path)["numpy/two"].shows is False
