"""ONNX Runtime: Attention refuses a mask of one query for all queries (MASK-1, SCORE-4).

Documentation: the page Attention of the ONNX operators says that attn_mask is broadcastable.

Found by: masking-boolean-mask-keys-1-float32

Known: no thread found
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23]>
g (float[1,1,2,8] Q, bool[1,1,1,2] M) => (float[1,1,2,8] Y) { Y = Attention(Q, Q, Q, M) }"""

session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
inputs = {"Q": np.ones((1, 1, 2, 8), np.float32), "M": np.array([True, False]).reshape(1, 1, 1, 2)}
try:
    got = session.run(None, inputs)[0].shape
except Exception as error:  # noqa: BLE001 - it has no common type
    got = type(error).__name__
print("expected an output of shape (1, 1, 2, 8)")
print(f"got {got}")
raise SystemExit(0 if isinstance(got, str) else 1)
