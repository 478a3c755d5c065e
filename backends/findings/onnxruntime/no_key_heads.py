"""ONNX Runtime: zero key heads end the process of Attention with SIGFPE (HEAD-2).

Rank: memory
Impact: any caller who can choose the sizes can end the process, a server too.
"""

import subprocess
import sys

SCRIPT = """
import numpy as np, onnxruntime
from onnx.parser import parse_model
model = parse_model('''<ir_version: 10, opset_import: ["" : 23]>
g (float[1,2,2,8] Q, float[1,H,3,8] K, float[1,H,3,8] V) => (float[1,2,2,8] Y) { Y = Attention(Q, K, V) }''')
session = onnxruntime.InferenceSession(model.SerializeToString())
query, key = np.ones((1, 2, 2, 8), np.float32), np.ones((1, 0, 3, 8), np.float32)
session.run(None, {"Q": query, "K": key, "V": key})
"""
command = [sys.executable, "-c", SCRIPT]
ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
print("expected an error: two query heads, no key head")
print(f"got exit status {ended.returncode}")
sys.exit(0 if ended.returncode < 0 else 1)
