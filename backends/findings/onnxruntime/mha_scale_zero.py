"""ONNX Runtime: MultiHeadAttention takes a scale of 0 as no scale (SCORE-3).

Documentation: the page ContribOperators says that a given scale is used.

Found by: scores-given-scale-0-0-3-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,2,8] Q, float[1,2,8] V) => (float[1,2,8] Y)
{ Y = com.microsoft.MultiHeadAttention<num_heads = 1, scale: float = 0.0>(Q, Q, V) }"""

session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
query, value = np.zeros((1, 2, 8), np.float32), np.zeros((1, 2, 8), np.float32)
query[0, 0], value[0, 0] = 3, 1
got = session.run(None, {"Q": query, "V": value})[0][0, 0, 0]
print("expected 0.5, the mean of the values")
print(f"got {got}")
raise SystemExit(0 if got != 0.5 else 1)
