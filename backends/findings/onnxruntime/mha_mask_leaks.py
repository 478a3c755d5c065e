"""ONNX Runtime: MultiHeadAttention adds -10000 to disallowed scores, which leaves them a weight (MASK-5).

Rank: numbers
Impact: padding determines the output if the scores of the other keys are low.
Documentation: the page ContribOperators says that the default of mask_filter_value is -10000.
Known: https://github.com/microsoft/onnxruntime/issues/14363
"""

import numpy as np
import onnxruntime
from onnx.parser import parse_model

MODEL = """<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>
g (float[1,1,8] Q, float[1,2,8] K, float[1,2,8] V, int32[1,2] M) => (float[1,1,8] Y)
{
  B = Constant<value = float[24] {0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}>()
  Y = com.microsoft.MultiHeadAttention<num_heads = 1, scale: float = 1.0>(Q, K, V, B, M)
}"""

session = onnxruntime.InferenceSession(parse_model(MODEL).SerializeToString())
query, key, value = (np.zeros((1, count, 8), np.float32) for count in (1, 2, 2))
query[0, 0, 0], key[0, 0, 0], value[0, 1] = 200, -200, 1  # the scores are -40000 and 0
got = session.run(None, {"Q": query, "K": key, "V": value, "M": np.array([[1, 0]], np.int32)})[0][0, 0, 0]
print("expected 0.0, the value of key 0, the only one that is allowed")
print(f"got {got}")
raise SystemExit(0 if got == 1 else 1)
