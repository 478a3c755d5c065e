"""ONNX's reference: values with other heads than the keys are repeated (HEAD-2).

Documentation: the page Attention of the ONNX operators gives K and V the same number of heads.

Found by: errors-refused-other-heads-of-value-than-of-key-1-float32

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,2,2,8] Q, float[1,1,2,8] V) => (float[N] Y) { Y = Attention(Q, Q, V) }"""

inputs = {"Q": np.ones((1, 2, 2, 8), np.float32), "V": np.ones((1, 1, 2, 8), np.float32)}
got = ReferenceEvaluator(parse_model(MODEL)).run(None, inputs)[0].shape
print("expected an error: two heads of keys, one head of values")
print(f"got {got}")
