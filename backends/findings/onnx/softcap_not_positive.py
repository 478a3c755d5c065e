"""ONNX's reference: a softcap of 0 or below is none, and infinity is accepted (SCORE-6).

Documentation: the page Attention of the ONNX operators says that 0 is none, and nothing of other numbers.

Found by: scores-misuse-softcap-negative-float32

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,1,2,8] Q) => (float[N] Y) { Y = Attention<softcap: float = -1.0>(Q, Q, Q) }"""

inputs = {"Q": np.ones((1, 1, 2, 8), np.float32)}
got = ReferenceEvaluator(parse_model(MODEL)).run(None, inputs)[0].shape
print("expected an error: the softcap is negative")
print(f"got {got}")
