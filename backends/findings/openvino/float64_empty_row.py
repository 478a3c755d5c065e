"""OpenVINO: an empty row is NaN in float32 and the mean of all values in float64 (MASK-6, variant uniform).

Documentation: by the pseudo-code of the page ScaledDotProductAttention-13, the row is NaN.

Found by: masking-empty-head-float64

Known: https://github.com/openvinotoolkit/openvino/issues/35959 (of float32)
"""

import numpy as np
import openvino
from openvino import opset13

got = []
for dtype in (np.float32, np.float64):
    query, value = np.ones((1, 1, 1, 3), dtype), np.eye(3, dtype=dtype)[None, None]
    arrays = [query, value, value, np.zeros((1, 3), bool)]
    parameters = [opset13.parameter(array.shape, dtype) for array in arrays[:3]]
    parameters.append(opset13.parameter([1, 3], bool))
    model = openvino.Model([opset13.scaled_dot_product_attention(*parameters)], parameters)
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    got.append(float(openvino.compile_model(model, "CPU", settings)(arrays)[0].flatten()[0]))
print("expected [0.0, 0.0]")
print(f"got {got}")
raise SystemExit(0 if np.isnan(got[0]) and abs(got[1] - 1 / 3) < 1e-6 else 1)
