"""OpenVINO: a model of float64 with an axis of size 0 is not compiled (SHAPE-7).

Documentation: the page ScaledDotProductAttention-13 says nothing of an empty axis.

Found by: notation-no-batch-float64

Known: no thread found
"""

import numpy as np
import openvino
from openvino import opset13

empty = np.ones((0, 1, 2, 4))
parameters = [opset13.parameter(empty.shape, np.float64) for _ in range(3)]
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
try:
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    got = compiled([empty] * 3)[0].shape
except RuntimeError:
    got = "an error"
print("expected an output of shape (0, 1, 2, 4)")
print(f"got {got}")
raise SystemExit(0 if got == "an error" else 1)
