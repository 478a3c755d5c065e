"""ONNX Runtime: GroupQueryAttention takes a scale of 0 as no scale (SCORE-3).

Documentation: the page ContribOperators says that a given scale is used.

Found by: scores-given-scale-0-0-5+d8.16.64-equal.depths-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,2,8] Q, float[1,2,8] K, float[1,2,8] V, int32[1] N, int32 T) => (float[1,2,8] Y)
{ Y, PK, PV = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1, scale = 0.0, causal = 0>
  (Q, K, V, , , N, T) }"""

query, key, value = (np.zeros((1, 2, 8), np.float32) for _ in range(3))
query[:], key[0, 0], value[0, 0] = 3, 3, 1
inputs = {"Q": query, "K": key, "V": value, "N": np.array([1], np.int32), "T": np.array(2, np.int32)}
try:
    session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
    got = session.run(None, inputs)[0][0, -1, 0]
except Exception as error:  # noqa: BLE001 - it has no common type
    got = type(error).__name__
print("expected 0.5, the mean of the values")
print(f"got {got}")
raise SystemExit(0 if got != 0.5 and not isinstance(got, str) else 1)
