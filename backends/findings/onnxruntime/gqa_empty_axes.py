"""ONNX Runtime: GroupQueryAttention refuses an axis of size 0 (SHAPE-7).

Documentation: the page ContribOperators says nothing of an empty axis.

Found by: notation-nothing-to-compute-queries-1+d8.16.64-equal.depths-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,S,8] Q, float[1,S,8] K, float[1,S,8] V, int32[1] N, int32 T) => (float[1,S,8] Y)
{ Y, PK, PV = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1>(Q, K, V, , , N, T) }"""

query = key = value = np.ones((1, 0, 8), np.float32)
inputs = {"Q": query, "K": key, "V": value, "N": np.array([-1], np.int32), "T": np.array(0, np.int32)}
try:
    session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
    got = session.run(None, inputs)[0].shape
except Exception as error:  # noqa: BLE001 - it has no common type
    got = type(error).__name__
print("expected an output of shape (1, 0, 8)")
print(f"got {got}")
raise SystemExit(0 if isinstance(got, str) else 1)
