"""ONNX Runtime: GroupQueryAttention takes a negative softcap as none, and accepts NaN and infinity (SCORE-6).

Documentation: the page ContribOperators says nothing of such a softcap.

Found by: errors-refused-softcap-of-nan-1+d8.16.64-equal.depths-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,2,8] Q, float[1,2,8] K, float[1,2,8] V, int32[1] N, int32 T) => (float[1,2,8] Y)
{ Y, PK, PV = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1, softcap = -1.0>
  (Q, K, V, , , N, T) }"""

query = key = value = np.ones((1, 2, 8), np.float32)
inputs = {"Q": query, "K": key, "V": value, "N": np.array([1], np.int32), "T": np.array(2, np.int32)}
session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
got = session.run(None, inputs)[0][0, -1, 0]
print("expected an error: the softcap is negative")
print(f"got {got}")
