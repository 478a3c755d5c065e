"""OpenVINO: one head of values is repeated for several heads of keys (HEAD-2).

Documentation: the page ScaledDotProductAttention-13 gives key and value the same leading axes.

Found by: errors-refused-other-heads-of-value-than-of-key-1-float32

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

query, value = np.ones((1, 2, 3, 8), np.float32), np.ones((1, 1, 3, 8), np.float32)
arrays = [query, query, value]
parameters = [opset13.parameter(array.shape, np.float32) for array in arrays]
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
got = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(arrays)[0].shape
print("expected an error: two heads of keys, one head of values")
print(f"got {got}")
raise SystemExit(0 if got == (1, 2, 3, 8) else 1)
