"""OpenVINO: in a model of dynamic shapes, a mask with more queries than the query crashes or is taken (ERR-15).

Documentation: the page ScaledDotProductAttention-13 says that attention_mask has the shape (N, ..., L, S).

Found by: errors-refused-mask-of-more-queries-1-float32

Known: no thread found
"""

import subprocess
import sys

SCRIPT = """
import numpy as np, openvino
from openvino import opset13
parameters = [opset13.parameter([-1] * 4, np.float32) for _ in range(3)]
parameters.append(opset13.parameter([-1] * 4, bool))
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
one = np.ones((2, 2, 3, 4), np.float32)
for queries in (3, 4, 5):
    mask = np.ones((2, 2, queries, 3), bool)
    print(compiled([one, one, one, mask])[0].shape)
"""
ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
got = ended.stdout.split("\n")[1:-1]
print("expected an error: three queries, and masks of four and of five")
print(f"got exit status {ended.returncode}, shapes {got}")
sys.exit(0 if ended.returncode < 0 or got else 1)
