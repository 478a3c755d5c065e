"""ONNX Runtime: the local_window_size of GroupQueryAttention counts its position (MASK-8, exclusive-left).

Rank: difference
Impact: a model exported from a library that counts otherwise sees one key less.
Documentation: the page ContribOperators calls it left_window_size, and does not say what it counts.
Known: https://github.com/microsoft/onnxruntime/pull/25927
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,4,8] Q, float[1,4,8] K, float[1,4,8] V, int32[1] N, int32 T) => (float[1,4,8] Y)
{ Y, PK, PV = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1, local_window_size = 2>
  (Q, K, V, , , N, T) }"""

query, key = np.zeros((1, 4, 8), np.float32), np.zeros((1, 4, 8), np.float32)
value = np.eye(4, 8, dtype=np.float32)[None]
inputs = {"Q": query, "K": key, "V": value, "N": np.array([3], np.int32), "T": np.array(4, np.int32)}
session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
got = np.count_nonzero(session.run(None, inputs)[0][0], axis=-1).tolist()
print("expected [1, 2, 3, 3] keys, if a left window of 2 is two keys before the own")
print(f"got {got}")
raise SystemExit(0 if got == [1, 2, 2, 2] else 1)
