"""ONNX Runtime: Attention refuses an axis of size 0, such as no keys (SHAPE-7, MASK-6).

Documentation: the page Attention of the ONNX operators says nothing of an empty axis.

Found by: notation-no-queries-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1,1,2,8] Q, float[1,1,S,8] K, float[1,1,S,8] V) => (float[1,1,2,8] Y) { Y = Attention(Q, K, V) }"""

session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
query, key = np.ones((1, 1, 2, 8), np.float32), np.ones((1, 1, 0, 8), np.float32)
try:
    got = session.run(None, {"Q": query, "K": key, "V": key})[0].shape
except Exception as error:  # noqa: BLE001 - it has no common type
    got = type(error).__name__
print("expected an output of shape (1, 1, 2, 8)")
print(f"got {got}")
raise SystemExit(0 if isinstance(got, str) else 1)
