"""OpenVINO, ScaledDotProductAttention: without keys, the output is memory that was never written (SHAPE-7,
MASK-6).

Rank: memory
Impact: the result holds memory that nobody wrote: other data of the process, or anything.
"""

import subprocess
import sys

SCRIPT = """
import numpy as np, openvino
from openvino import opset13
arrays = [np.ones((2, 2, count, 64), np.float32) for count in (200, 0, 0)]
parameters = [opset13.parameter([-1] * 4, np.float32) for _ in arrays]
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
compiled = openvino.compile_model(model, "CPU")
print(sum(np.count_nonzero(compiled(arrays)[0]) for _ in range(20)))
"""
command = [sys.executable, "-c", SCRIPT]
ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
print("expected 0 numbers other than 0 in 20 results, as a query without a key has the output 0")
print(f"got {ended.stdout.strip() or ended.returncode}")
sys.exit(0 if ended.stdout.strip() not in ("", "0") else 1)
