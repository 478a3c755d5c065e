"""Start: few modules are loaded before the first case, and no large ones."""

import os
import subprocess
import sys

from test_cli import TESTS
from test_imports import loaded_by

from attnspec import conformance

#: Libraries that a run on NumPy does without: by their weight, or as they need a compiler or a device.
HEAVY = {"torch", "jax", "flint", "onnx", "safetensors", "dask", "array_api_strict", "mpmath"}


def test_the_command_line_loads_no_array_library():
    loaded = loaded_by("import attnspec.conformance.cli.main, attnspec.backends.names")
    assert "click" in loaded
    assert not {"numpy", "pytest", "hypothesis", "rich", "jsonschema"} & loaded


def test_the_vectors_are_not_validated_at_load():
    """It takes a second; the linter and the tests do it."""
    assert "jsonschema" not in loaded_by("import attnspec; attnspec.cases()")


def test_a_run_on_numpy_loads_nothing_heavy():
    here = os.path.dirname(conformance.__file__)
    program = (
        "import pytest, sys; pytest.main(sys.argv[1:]); "
        "print('loaded', *{name.partition('.')[0] for name in sys.modules})"
    )
    words = ["--pyargs", "attnspec.conformance", "--backend=broken:half", "--case=softmax-000", "-q"]
    words += ["-c", f"{here}/pytest.ini", "--rootdir", here, "-p", "no:cacheprovider", "-p", "no:xdist"]
    run = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True, cwd=TESTS
    )
    loaded = set(run.stdout.rpartition("loaded ")[2].split())
    assert "numpy" in loaded
    assert not HEAVY & loaded
