"""ONNX's reference: a mask with more axes than the scores is accepted (ERR-15).

Documentation: the page Attention of the ONNX operators says that the mask is broadcastable to the scores.

Found by: errors-refused-mask-of-too-many-axes-1-float32

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,1,2,8] Q, bool[1,1,1,2,2] M) => (float[N] Y) { Y = Attention(Q, Q, Q, M) }"""

inputs = {"Q": np.ones((1, 1, 2, 8), np.float32), "M": np.ones((1, 1, 1, 2, 2), bool)}
got = ReferenceEvaluator(parse_model(MODEL)).run(None, inputs)[0].shape
print("expected an error: the scores have four axes, and the mask has five")
print(f"got {got}")
