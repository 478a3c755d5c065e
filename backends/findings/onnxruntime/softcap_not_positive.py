"""ONNX Runtime: Attention takes a negative softcap as none, and accepts infinity (SCORE-6).

Documentation: the page Attention of the ONNX operators says that 0 is none, and nothing of other numbers.

Found by: scores-misuse-softcap-negative-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1,1,2,8] Q) => (float[1,1,2,8] Y) { Y = Attention<softcap: float = -1.0>(Q, Q, Q) }"""

session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
got = session.run(None, {"Q": np.ones((1, 1, 2, 8), np.float32)})[0].shape
print("expected an error: the softcap is negative")
print(f"got {got}")
