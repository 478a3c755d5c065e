"""ONNX Runtime: GroupQueryAttention adds a bias, so an infinite disallowed score makes the row NaN (MASK-12).

Documentation: the page ContribOperators says that attention_bias is added.

Found by: masking-finite-garbage-bias-and-largest-1+d8.16.64-equal.depths-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,2,8] Q, float[1,2,8] K, float[1,2,8] V,
 int32[1] N, int32 T, float[1,1,2,2] A) => (float[1,2,8] Y)

{
  Y, PK, PV = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1, causal = 0>
  (Q, K, V, , , N, T, , , , A)
}"""

query, key, value = (np.ones((1, 2, 8), np.float32) for _ in range(3))
key[0, 1] = np.finfo(np.float32).max
bias = np.array([0, -np.inf] * 2, np.float32).reshape(1, 1, 2, 2)
inputs = {"Q": query, "K": key, "V": value, "N": np.array([1], np.int32), "T": np.array(2, np.int32)}
inputs["A"] = bias
session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
got = session.run(None, inputs)[0][0, 0, 0]
print("expected 1.0: only key 0 is allowed, and its value is 1")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got) else 1)
