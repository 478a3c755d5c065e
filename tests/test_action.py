"""The action for GitHub: its steps run here on a project with a bug, and its workflows are what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
KERNEL = """\
import numpy as np


def attention(query, key, value):
    scores = query @ np.swapaxes(key, -1, -2){scale}
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
"""


def judge(folder, **inputs):
    """Run the step that judges, as GitHub runs it."""
    (step,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "judge")
    names = {variable: text.strip("${} ").removeprefix("inputs.") for variable, text in step["env"].items()}
    assert set(names.values()) <= set(ACTION["inputs"])
    given = {variable: inputs.get(name.replace("-", "_"), "") for variable, name in names.items()}
    files = {name: folder / name for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    for path in files.values():
        path.write_text("")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    where = {"PATH": path, "RUNNER_TEMP": str(folder)}
    environment = {**os.environ, **where, **given, **{name: str(path) for name, path in files.items()}}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    run = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return run, {name: path.read_text() for name, path in files.items()}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "my_kernels.py").write_text(KERNEL.format(scale=" * 0.5"))
    return tmp_path


def test_a_bug_is_an_annotation_at_its_function(project):
    run, written = judge(project, backend="my_kernels:attention", options="--case softmax-000-float64")
    assert run.returncode == 1, run.stderr
    assert "::error file=my_kernels.py,line=4,title=attnspec " in run.stdout
    assert "does not conform" in written["GITHUB_STEP_SUMMARY"]
    assert written["GITHUB_OUTPUT"].splitlines() == ["status=1", f"results={project}/attnspec"]
    names = {path.name for path in (project / "attnspec").iterdir()}
    assert names == {"results.jsonl", "junit.xml", "badge.svg", "pages", "summary.md", "annotations.txt"}


def test_a_correct_kernel_ends_with_status_0(project):
    (project / "my_kernels.py").write_text(KERNEL.format(scale=" / query.shape[-1] ** 0.5"))
    run, _ = judge(project, backend="my_kernels:attention", options="--case softmax-000-float64", shard="1/1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "::error" not in run.stdout
    (project / "my_kernels.py").write_text(KERNEL.format(scale=" + undefined"))
    run, _ = judge(project, backend="my_kernels:attention", options="--case softmax-000-float64")
    assert "::error file=my_kernels.py,line=5,title=" in run.stdout


def test_inputs_are_no_part_of_the_script(project):
    run, _ = judge(project, backend='$(touch made); `touch made`" & touch made', options="--quick;touch made")
    assert run.returncode not in (0, 1)
    assert not (project / "made").exists()
    assert "${{" not in "".join(step.get("run", "") for step in ACTION["runs"]["steps"])


def test_a_file_of_known_failures_is_read(project):
    known = (
        "[[known]]\nrule = 'SOFT-1'\nbackend = 'my_kernels:attention'\nstatus = 'fail'\nreason = 'a test'\n"
    )
    (project / "known.toml").write_text(known)
    options = {"options": "--case softmax-000-float64", "known_failures": "known.toml"}
    run, _ = judge(project, backend="my_kernels:attention", **options)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_workflow_gives_the_action_inputs_that_it_has():
    workflow = yaml.safe_load((ROOT / "examples" / "ci" / "github.yml").read_text())
    (step,) = (step for step in workflow["jobs"]["judge"]["steps"] if "attnspec@" in step.get("uses", ""))
    assert set(step["with"]) <= set(ACTION["inputs"])
    assert workflow["jobs"]["judge"]["strategy"]["matrix"]["shard"] == list(range(1, 9))
    assert step["with"]["shard"] == "${{ matrix.shard }}/8"
