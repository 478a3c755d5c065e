"""ONNX Runtime: Attention takes a scale of NaN as no scale, and accepts infinity (ERR-6).

Documentation: the page Attention of the ONNX operators says nothing of such a scale.

Found by: errors-scale-nan-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx import helper
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1,1,2,8] Q) => (float[1,1,2,8] Y) { Y = Attention(Q, Q, Q) }"""

model = parse_model(MODEL)
model.graph.node[0].attribute.append(helper.make_attribute("scale", float("nan")))
session = onnxruntime.InferenceSession(model.SerializeToString())
got = session.run(None, {"Q": np.ones((1, 1, 2, 8), np.float32)})[0][0, 0, 0, 0]
print("expected an error: the scale is NaN")
print(f"got {got}")
