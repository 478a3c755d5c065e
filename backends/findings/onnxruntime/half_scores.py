"""ONNX Runtime: Attention rounds the scores of float16 to float16 (NUM-5, variant storage).

Documentation: the page Attention of the ONNX operators has scores of the dtype of Q, which allows it.

Found by: numerics-data-set-plain-2-float16

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23]>
g (float16[1,1,1,2] Q, float16[1,1,2,2] K, float16[1,1,2,2] V) => (float16[1,1,1,2] Y)
{ Y = Attention<scale: float = 1.0>(Q, K, V) }"""

# The scores are 2048 and 2049, and float16 has no 2049.
arrays = [[[2048, 1]], [[1, 0], [1, 1]], [[0, 0], [1, 1]]]
session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
inputs = {name: np.array([[array]], np.float16) for name, array in zip("QKV", arrays, strict=True)}
got = session.run(None, inputs)[0][0, 0, 0, 0]
print("expected 0.73, which is 1 / (1 + exp(-1))")
print(f"got {got:.2f}")
raise SystemExit(0 if got == 0.5 else 1)
