"""ONNX's reference: a sum of exponentials in bfloat16 stops at 256 (NUM-6, NUM-5 variant storage).

Documentation: the page Attention of the ONNX operators has softmax_precision, by default the type of the
inputs.

Found by: numerics-rounding-has-no-bias-1-bfloat16

Known: no thread found
"""

import ml_dtypes
import numpy as np
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

MODEL = """<ir_version: 11, opset_import: ["" : 24]>
g (bfloat16[1,1,1,8] Q, bfloat16[1,1,512,8] K) => (bfloat16[N] Y) { Y = Attention(Q, K, K) }"""

ones = np.ones((1, 1, 512, 8), ml_dtypes.bfloat16)
got = float(ReferenceEvaluator(parse_model(MODEL)).run(None, {"Q": ones[:, :, :1], "K": ones})[0].ravel()[0])
print("expected 1.0: all 512 values are 1")
print(f"got {got}")
raise SystemExit(0 if got == 2.0 else 1)
