"""ONNX Runtime: GroupQueryAttention accepts a scale of NaN or infinity (ERR-6).

Documentation: the page ContribOperators says nothing of such a scale.

Found by: errors-refused-scale-of-nan-1+d8.16.64-equal.depths-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx import helper
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,2,8] Q, float[1,2,8] K, float[1,2,8] V, int32[1] N, int32 T) => (float[1,2,8] Y)
{ Y, PK, PV = com.microsoft.GroupQueryAttention<num_heads = 1, kv_num_heads = 1>(Q, K, V, , , N, T) }"""

model = parse_model(MODEL)
model.graph.node[0].attribute.append(helper.make_attribute("scale", float("nan")))
query = key = value = np.ones((1, 2, 8), np.float32)
inputs = {"Q": query, "K": key, "V": value, "N": np.array([1], np.int32), "T": np.array(2, np.int32)}
session = onnxruntime.InferenceSession(model.SerializeToString())
got = session.run(None, inputs)[0][0, -1, 0]
print("expected an error: the scale is NaN")
print(f"got {got}")
