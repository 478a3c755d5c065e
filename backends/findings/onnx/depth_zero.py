"""ONNX's reference: a depth of 0 is accepted (ERR-5).

Documentation: the page Attention of the ONNX operators says nothing of an empty axis.

Found by: errors-value-depth-float32

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,1,2,8] Q, float[1,1,2,0] V) => (float[N] Y) { Y = Attention(Q, Q, V) }"""

inputs = {"Q": np.ones((1, 1, 2, 8), np.float32), "V": np.ones((1, 1, 2, 0), np.float32)}
got = ReferenceEvaluator(parse_model(MODEL)).run(None, inputs)[0].shape
print("expected an error: the depth of the values is 0")
print(f"got {got}")
