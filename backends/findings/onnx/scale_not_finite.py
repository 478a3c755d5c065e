"""ONNX's reference: a scale of NaN or infinity is accepted (ERR-6).

Documentation: the page Attention of the ONNX operators says nothing of such a scale.

Found by: errors-scale-nan-float32

Known: no thread found
"""

import numpy as np
from onnx import helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,1,2,8] Q) => (float[N] Y) { Y = Attention(Q, Q, Q) }"""

model = parse_model(MODEL)
model.graph.node[0].attribute.append(helper.make_attribute("scale", float("nan")))
inputs = {"Q": np.ones((1, 1, 2, 8), np.float32)}
got = ReferenceEvaluator(model).run(None, inputs)[0][0, 0, 0, 0]
print("expected an error: the scale is NaN")
print(f"got {got}")
