"""ONNX's reference: a call without keys is refused (SHAPE-7, MASK-6).

Documentation: the page Attention of the ONNX operators says nothing of an empty axis.

Found by: masking-no-keys-float32

Known: no thread found
"""

import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (float[1,1,2,8] Q, float[1,1,0,8] K) => (float[N] Y) { Y = Attention(Q, K, K) }"""

inputs = {"Q": np.ones((1, 1, 2, 8), np.float32), "K": np.ones((1, 1, 0, 8), np.float32)}
try:
    got = ReferenceEvaluator(parse_model(MODEL)).run(None, inputs)[0].shape
except Exception as error:  # noqa: BLE001 - it has no common type
    got = type(error).__name__
print("expected an output of shape (1, 1, 2, 8)")
print(f"got {got}")
raise SystemExit(0 if isinstance(got, str) else 1)
