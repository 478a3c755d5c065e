"""ONNX's reference: integers are taken (ERR-2).

Documentation: the page Attention of the ONNX operators lists floating-point types.

Found by: errors-integer-key-float32

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,1,2,8] Q, int32[1,1,2,8] K) => (float[N] Y) { Y = Attention(Q, K, Q) }"""

inputs = {"Q": np.ones((1, 1, 2, 8), np.float32), "K": np.ones((1, 1, 2, 8), np.int32)}
got = ReferenceEvaluator(parse_model(MODEL)).run(None, inputs)[0].shape
print("expected an error: the keys are integers")
print(f"got {got}")
