"""ONNX Runtime: Attention adds a mask, so a disallowed score of infinity makes the row NaN (MASK-12).

Documentation: the page Attention of the ONNX operators adds the mask in its function body.

Found by: masking-finite-garbage-mask-and-largest-1-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1,1,1,8] Q, float[1,1,2,8] K, float[1,1,2,8] V, bool[1,2] M) => (float[1,1,1,8] Y)
{ Y = Attention(Q, K, V, M) }"""

session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
key = np.ones((1, 1, 2, 8), np.float32)
value = key.copy()
key[0, 0, 1] = np.finfo(np.float32).max
inputs = {"Q": key[:, :, :1], "K": key, "V": value, "M": np.array([[True, False]])}
got = session.run(None, inputs)[0][0, 0, 0, 0]
print("expected 1.0: only key 0 is allowed, and its value is 1")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got) else 1)
