"""OpenVINO: in float16, the default scale is rounded to float16 (NUM-5, variant storage).

Documentation: in the pseudo-code of the page ScaledDotProductAttention-13, the scale has the dtype of query.

Found by: scores-default-scale-3-float16

Known: no thread found
"""

import math

import numpy as np
import openvino
from openvino import opset13

arrays = [[[60, 0, 0]], [[0, 0, 0], [60, 0, 0]], [[0, 0, 0], [1, 1, 1]], [[0, -2078]]]
arrays = [np.array([[array]], np.float16) for array in arrays]
parameters = [opset13.parameter(array.shape, np.float16) for array in arrays]
model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
settings = {"INFERENCE_PRECISION_HINT": "f32"}
got = float(openvino.Core().compile_model(model, "CPU", settings)(arrays)[0][0, 0, 0, 0])
expected = 1 / (1 + math.exp(2078 - 3600 / math.sqrt(3)))
print(f"expected {expected:.2f}")
print(f"got {got:.2f}")
raise SystemExit(0 if abs(got - expected) > 0.1 else 1)
