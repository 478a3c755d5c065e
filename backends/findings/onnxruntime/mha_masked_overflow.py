"""ONNX Runtime: MultiHeadAttention adds a mask, so an infinite disallowed score makes the row NaN (MASK-12).

Documentation: the page ContribOperators says that a value is filled in the mask.

Found by: masking-finite-garbage-mask-and-largest-1-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,1,8] Q, float[1,2,8] K, float[1,2,8] V, float[1,1,1,2] A) => (float[1,1,8] Y)
{ Y = com.microsoft.MultiHeadAttention<num_heads = 1>(Q, K, V, , , A) }"""

session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
key, value = np.ones((1, 2, 8), np.float32), np.ones((1, 2, 8), np.float32)
key[0, 1] = np.finfo(np.float32).max
bias = np.array([0, -np.inf], np.float32).reshape(1, 1, 1, 2)
got = session.run(None, {"Q": key[:, :1], "K": key, "V": value, "A": bias})[0][0, 0, 0]
print("expected 1.0: only key 0 is allowed, and its value is 1")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got) else 1)
