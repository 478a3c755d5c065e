"""ONNX's reference: a mask is added, so an infinite disallowed score makes the row NaN (MASK-12).

Documentation: the page Attention of the ONNX operators adds the mask in its function body.

Found by: masking-finite-garbage-mask-and-largest-1-float32

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,1,1,8] Q, float[1,1,2,8] K, float[1,1,2,8] V, bool[1,2] M) => (float[N] Y)
{ Y = Attention(Q, K, V, M) }"""

key, value = (np.ones((1, 1, 2, 8), np.float32) for _ in range(2))
key[0, 0, 1] = np.finfo(np.float32).max
inputs = {"Q": value[:, :, :1], "K": key, "V": value, "M": np.array([[True, False]])}
try:
    got = ReferenceEvaluator(parse_model(MODEL)).run(None, inputs)[0][0, 0, 0, 0]
except Exception as error:  # noqa: BLE001 - it has no common type
    got = type(error).__name__
print("expected 1.0: only key 0 is allowed, and its value is 1")
print(f"got {got}")
raise SystemExit(0 if not isinstance(got, str) and np.isnan(got) else 1)
