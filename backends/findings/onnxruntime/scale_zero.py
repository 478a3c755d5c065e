"""ONNX Runtime: Attention refuses a scale of 0 (SCORE-3).

Documentation: the page Attention of the ONNX operators says nothing of a scale of 0.

Found by: scores-zero-scale-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1,1,2,8] Q) => (float[1,1,2,8] Y) { Y = Attention<scale: float = 0.0>(Q, Q, Q) }"""

try:
    session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
    got = session.run(None, {"Q": np.ones((1, 1, 2, 8), np.float32)})[0].shape
except Exception as error:  # noqa: BLE001 - it has no common type
    got = type(error).__name__
print("expected the mean of the values")
print(f"got {got}")
raise SystemExit(0 if isinstance(got, str) else 1)
