"""ONNX Runtime: MultiHeadAttention accepts a scale of NaN or infinity (ERR-6).

Documentation: the page ContribOperators says nothing of such a scale.

Found by: errors-scale-nan-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx import helper
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,2,8] Q) => (float[1,2,8] Y) { Y = com.microsoft.MultiHeadAttention<num_heads = 1>(Q, Q, Q) }"""

model = parse_model(MODEL)
model.graph.node[0].attribute.append(helper.make_attribute("scale", float("nan")))
inputs = {"Q": np.ones((1, 2, 8), np.float32)}
session = onnxruntime.InferenceSession(model.SerializeToString())
got = session.run(None, inputs)[0][0, -1, 0]
print("expected an error: the scale is NaN")
print(f"got {got}")
