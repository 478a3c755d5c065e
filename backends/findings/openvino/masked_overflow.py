"""OpenVINO: a mask is added, so a disallowed key with a score of infinity makes the row NaN (MASK-12).

Documentation: the page ScaledDotProductAttention-13 adds -inf in its pseudo-code, which has this result.

Found by: masking-finite-garbage-mask-and-largest-1-float32

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

query = np.ones((1, 1, 1, 8), np.float32)
key, mask = np.ones((1, 1, 2, 8), np.float32), np.array([[True, False]])
key[0, 0, 1] = np.finfo(np.float32).max
arrays = [query, key, np.ones_like(key), mask]
parameters = [opset13.parameter(array.shape, array.dtype.type) for array in arrays[:3]]
parameters.append(opset13.parameter(mask.shape, bool))
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
got = openvino.compile_model(model, "CPU", settings)(arrays)[0].flatten()
print("expected 1.0: only key 0 is allowed, and its value is 1")
print(f"got {got[0]}")
raise SystemExit(0 if np.isnan(got[0]) else 1)
